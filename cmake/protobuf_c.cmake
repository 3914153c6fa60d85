# protobuf_c(NAME a.proto b.proto): generates a.pb-c.{c,h} into the build tree as library kiln_NAME.
find_program(KILN_PROTOC_C NAMES protoc-c REQUIRED)

function(protobuf_c name)
  set(sources)
  foreach(proto IN LISTS ARGN)
    get_filename_component(dir ${proto} DIRECTORY)
    get_filename_component(base ${proto} NAME_WE)
    set(out ${CMAKE_CURRENT_BINARY_DIR}/${dir}/${base}.pb-c)
    add_custom_command(
      OUTPUT ${out}.c ${out}.h
      COMMAND ${KILN_PROTOC_C} --c_out=${CMAKE_CURRENT_BINARY_DIR}
              -I${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR}/${proto}
      DEPENDS ${proto} COMMENT "protobuf ${proto}")
    list(APPEND sources ${out}.c)
  endforeach()
  add_library(kiln_${name} STATIC ${sources})
  target_include_directories(kiln_${name} PUBLIC ${CMAKE_CURRENT_BINARY_DIR})
  target_link_libraries(kiln_${name} PUBLIC PkgConfig::LIBPROTOBUF_C)
  target_compile_options(kiln_${name} PRIVATE -w)
endfunction()
