# Turns profile files into the rows of a C table. A built-in profile is plain assignments of
# literals, so a line `key = value -- why` is the member `.key = value,`; a key that there is not, or
# a value of another kind, does not compile.
file(WRITE ${OUTPUT}.new "")
foreach(input ${INPUTS})
  file(READ ${input} text)
  string(REGEX REPLACE "--[^\n]*" "" text "${text}")
  string(REPLACE "\"linear\"" "KVR_STEP_LINEAR" text "${text}")
  string(REPLACE "\"roofline\"" "KVR_STEP_ROOFLINE" text "${text}")
  string(REGEX REPLACE "([a-z_]+) = ([^ \n]+)" ".\\1 = \\2," text "${text}")
  # All that may be left out is zero but these.
  if(NOT text MATCHES "cache_generated")
    string(APPEND text ".cache_generated = true,\n")
  endif()
  if(NOT text MATCHES "replicas")
    string(APPEND text ".replicas = 1,\n")
  endif()
  file(APPEND ${OUTPUT}.new "{\n${text}},\n")
endforeach()
file(RENAME ${OUTPUT}.new ${OUTPUT})
