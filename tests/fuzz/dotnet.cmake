fuzz_test(dotnet SOURCES ${CMAKE_CURRENT_LIST_DIR}/fuzz_dotnet.c DEPS kiln_test_dotnet
          CORPUS ${CMAKE_CURRENT_LIST_DIR}/corpus/dotnet)
