/* Numbers as JSON writes them: their grammar, and their value on any machine alike. */
#ifndef KVR_JSON_NUMBER_H
#define KVR_JSON_NUMBER_H

#include <stdbool.h>

#include "slice.h"

/* Moves *at behind the number that starts there. False when it is malformed or, with *at == end,
 * when the text ends inside it. */
bool kvr_json_number_scan(const char **at, const char *end);

/* Value of a scanned number. Exact for up to 15 digits and small exponents, otherwise within a few
 * units in the last place: never strtod, whose locale is not ours. Too large becomes infinity. */
double kvr_json_number_value(struct kvr_slice number);

#endif
