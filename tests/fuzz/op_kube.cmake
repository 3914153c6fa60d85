foreach(name IN ITEMS stream pod json)
  fuzz_test(op_kube_${name} SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_op_kube_${name}.c
            DEPS kiln_op_kube_wire PkgConfig::LIBCJSON
            CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/op_kube_${name})
endforeach()
