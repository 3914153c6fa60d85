# Warnings, hardening and sanitizers for every target of this project.
add_compile_options(-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
                    -Wpointer-arith -Wwrite-strings -Wno-unused-parameter
                    -fno-strict-aliasing -fstack-protector-strong)
if(CMAKE_C_COMPILER_ID MATCHES Clang)
  # Tests have structs with a record of variable size followed by its data, which GNU C allows.
  add_compile_options(-Wno-gnu-variable-sized-type-not-at-end)
endif()
if(KILN_WERROR)
  add_compile_options(-Werror)
endif()
add_compile_definitions(_GNU_SOURCE KILN_VERSION="${PROJECT_VERSION}")
if(CMAKE_BUILD_TYPE STREQUAL "RelWithDebInfo" AND NOT KILN_SANITIZE)
  add_compile_options(-D_FORTIFY_SOURCE=2)
  add_link_options(-Wl,-z,relro,-z,now)
endif()
if(KILN_SANITIZE)
  # -g1: reports of sanitizers need line numbers, but no variables.
  add_compile_options(-fsanitize=${KILN_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${KILN_SANITIZE})
  if(KILN_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()
if(KILN_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
