# Turns a text file into a C header that defines `static const char SYMBOL[]`, byte by byte.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "(................................................................................)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUTPUT} "static const char ${SYMBOL}[] = {\n${bytes}0x00};\n")
