# Parsers of lists and watches as they arrive: cut them into objects, and read the few fields that are kept.
module(op_kube_wire
  SOURCES decode.c decode_json.c decode_proto.c json_scan.c stream.c stream_json.c stream_proto.c
          wire.c
  DEPS kiln_lib)
