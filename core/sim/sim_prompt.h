/* The prompt of a simulated request, as the router and as an engine would make it of the text that
 * its pieces stand for: the router's chain of block hashes, the engine's tokens and their blocks.
 * The chain is the very one that the router makes of the request on the wire; tokens are as many,
 * and shared as far, as those of an emulated replica. */
#ifndef KVR_SIM_PROMPT_H
#define KVR_SIM_PROMPT_H

#include <stdint.h>

#include "chain_memo.h"
#include "profile.h"
#include "prompt.h"
#include "tokens.h"
#include "workload.h"

struct kvr_sim_prompt {
    uint64_t *chain; /* owned; the chain made last */
    uint32_t chain_len, chain_capacity;
    uint64_t bytes;           /* canonical bytes of that prompt */
    struct kvr_tokens tokens; /* the tokens made last */
    struct kvr_prompt prompt; /* hashes what the memo does not know */
    struct kvr_chain_memo memo;
    uint64_t scope; /* of the one model of a simulation */
    uint32_t head_tokens, system_head_tokens;
    bool generated;    /* blocks of what is generated follow the prompt's */
    char *text;        /* scratch */
    size_t text_bytes; /* of it */
};

void kvr_sim_prompt_init(struct kvr_sim_prompt *maker, const struct kvr_profile *profile,
                         const struct kvr_prompt_options *options);
void kvr_sim_prompt_deinit(struct kvr_sim_prompt *maker);

/* Makes maker->chain and its bytes. Returns the number of user messages. */
uint32_t kvr_sim_prompt_chain(struct kvr_sim_prompt *maker,
                              const struct kvr_workload_request *request);
/* Makes maker->tokens, with what will be generated at the end, and returns how many of them are the
 * prompt's. */
uint32_t kvr_sim_prompt_tokens(struct kvr_sim_prompt *maker,
                               const struct kvr_workload_request *request);
/* Makes maker->chain the blocks that the reply completes, after those of the prompt. */
void kvr_sim_prompt_reply(struct kvr_sim_prompt *maker, const struct kvr_workload_request *request,
                          uint32_t output_tokens);

#endif
