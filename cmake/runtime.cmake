# The list of runtimes (agent/runtime/runtime.h).
#
# runtime(NAME SOURCES a.c b.c DEPS x y)   in the folder of a runtime: its library kiln_runtime_NAME, which defines NAME_ops
# runtime_table(TARGET NAME...)            adds a runtime_table[] with these runtimes to TARGET, and links their libraries
#
# The agent's own table has the runtimes in the folders of agent/runtime: the global property KILN_RUNTIMES. A program with
# more runtimes gets a table of its own, which the linker takes instead of the agent's.
function(runtime name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  module(runtime_${name} SOURCES ${ARG_SOURCES} DEPS kiln_runtime ${ARG_DEPS})
endfunction()

function(runtime_table target)
  set(rows "")
  foreach(name IN LISTS ARGN)
    string(APPEND rows "RUNTIME_ROW(${name})\n")
    target_link_libraries(${target} PUBLIC kiln_runtime_${name})
  endforeach()
  set(dir ${CMAKE_CURRENT_BINARY_DIR}/${target}-rows)
  file(CONFIGURE OUTPUT ${dir}/runtime_rows.def CONTENT "${rows}" @ONLY)
  target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/agent/runtime/table.c)
  target_include_directories(${target} PRIVATE ${dir})
endfunction()
