/* An assistant's reply in the canonical form that the next turn's history will give it: added
 * behind a prompt, it yields the blocks that the replica holds already when that turn comes. */
#ifndef KVR_API_REPLY_H
#define KVR_API_REPLY_H

#include "prompt.h"
#include "slice.h"

/* `prompt` has been resumed at the end of the request's own prompt. */
void kvr_api_add_reply(struct kvr_prompt *prompt, struct kvr_slice text);

#endif
