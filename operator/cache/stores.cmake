module(op_cache
  SOURCES slab.c intern.c kept.c pod_store.c pod_store_record.c pod_store_index.c
          store_items.c meta_store.c json_store.c service_index.c image_ref.c identity.c
  DEPS kiln_lib kiln_op_kube_wire PkgConfig::LIBCJSON)
