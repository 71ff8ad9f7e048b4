/* Reads the answer to a call: its head, its body in whatever framing, what its events say. Bytes
 * come cut anywhere; nothing here knows a connection. */
#ifndef KVR_LOAD_ANSWER_H
#define KVR_LOAD_ANSWER_H

#include "http.h"
#include "load_call.h"

/* Takes what has come. 0: more is to come; 1: the answer is whole; KVR_E_INVALID: it is no HTTP.
 * `head` is scratch. */
int kvr_load_answer_take(struct kvr_load_call *call, const char *data, size_t len, uint64_t now_ns,
                         struct kvr_http_head *head);
/* No more will come, and that is as it should be: what is to be said of the answer. */
enum kvr_load_failure kvr_load_answer_judge(struct kvr_load_call *call, uint64_t now_ns);

#endif
