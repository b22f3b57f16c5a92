# Installs Spool to a fresh prefix, builds examples/cpp against it with find_package(Spool), trains with it, and checks that no
# Python is linked. Run by ctest as
#   cmake -DSOURCE_DIR=… -DBUILD_DIR=… -DWORK_DIR=… -DTORCH_PREFIX=… -DGENERATOR=… -DCXX=… -P install_test.cmake
cmake_minimum_required(VERSION 3.20)

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "[install test] ${what}: expected exit code 0, got ${code}. The command was\n  ${ARGN}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

file(REMOVE_RECURSE ${WORK_DIR})
set(prefix ${WORK_DIR}/prefix)
set(build ${WORK_DIR}/build)

run("installing" ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})
run("configuring examples/cpp" ${CMAKE_COMMAND} -S ${SOURCE_DIR}/examples/cpp -B ${build} -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${CXX} "-DCMAKE_PREFIX_PATH=${prefix}\;${TORCH_PREFIX}")

# What was found has to be what was installed, not the build folder or another Spool.
file(STRINGS ${build}/CMakeCache.txt found REGEX "^Spool_DIR:")
if(NOT found MATCHES "=${prefix}/")
  message(FATAL_ERROR "[install test] expected Spool from ${prefix}, found ${found}")
endif()

run("building examples/cpp" ${CMAKE_COMMAND} --build ${build})
# --check compares bits.
run("training" ${CMAKE_COMMAND} -E env SPOOL_EXACT=1 ${build}/train_mlp --check --steps 20)
if(NOT output MATCHES "all 20 losses equal the CPU's")
  message(FATAL_ERROR "[install test] expected losses equal to the CPU's, got\n${output}")
endif()

run("listing libraries" ldd ${build}/train_mlp)
if(NOT output MATCHES "libspool.so => ${prefix}/")
  message(FATAL_ERROR "[install test] expected the installed libspool.so to be loaded, got\n${output}")
endif()
if(output MATCHES "libpython|torch_python")
  message(FATAL_ERROR "[install test] expected no Python among the program's libraries, got\n${output}")
endif()
file(REMOVE_RECURSE ${WORK_DIR})
message(STATUS "examples/cpp builds and trains against the installed Spool, without Python")
