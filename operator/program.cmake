# The program, once every part of it is there.
if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/operator.c AND TARGET kiln_op_reconcile AND TARGET kiln_op_lease AND TARGET kiln_op_http AND TARGET kiln_op_stream AND TARGET kiln_op_nodes)
  module(operator
    SOURCES operator.c controllers.c handlers.c agents.c leader.c operator_metrics.c world.c world_metrics.c options.c
    DEPS kiln_op_first_config kiln_op_reconcile kiln_op_lease kiln_op_work kiln_op_http kiln_op_stream kiln_op_nodes kiln_parse)
  add_executable(kiln-operator main.c)
  target_link_libraries(kiln-operator PRIVATE kiln_operator)
  if(KILN_JEMALLOC)
    target_link_libraries(kiln-operator PRIVATE PkgConfig::JEMALLOC)
    target_link_options(kiln-operator PRIVATE -Wl,--export-dynamic-symbol=malloc_conf)
  endif()
endif()
