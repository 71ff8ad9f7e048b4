/* Reasons of decisions: short constant strings from scripts, kept once for the life of the process
 * so that rows and metrics can name them after the script is gone. Bounded: past KVR_REASONS_MAX
 * different ones, all further ones are "other". */
#ifndef KVR_REASON_H
#define KVR_REASON_H

#include <stdint.h>

#include "check.h"
#include "slice.h"

#define KVR_REASONS_MAX    128
#define KVR_REASON_LEN_MAX 48

/* 0 is "none", 1 is "other"; the fallback's own are interned at start. Characters outside
 * [a-z0-9_] are written as '_', and the text is cut at KVR_REASON_LEN_MAX. */
uint16_t kvr_reason_intern(struct kvr_slice text);
KVR_EXPORT const char *kvr_reason_text(uint16_t reason);
uint16_t kvr_reason_count(void);

#endif
