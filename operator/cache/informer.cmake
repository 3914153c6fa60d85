# Informers: lists and watches that keep a store equal to the API server; informer_core.c is pure.
module(op_informer
  SOURCES informer.c informer_core.c
  DEPS kiln_op_kube_client kiln_op_kube_wire PkgConfig::LIBUV)
