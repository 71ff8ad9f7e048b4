/* The prompt of a simulated request, as the router and as an engine would make it of the text that
 * its pieces stand for: the router's chain of block hashes, the engine's tokens and their blocks.
 * The chain is the very one that the router makes of the request on the wire; tokens are as many,
 * and shared as far, as those of an emulated replica. */
#ifndef KVR_SIM_PROMPT_H
#define KVR_SIM_PROMPT_H

#include <stdint.h>

#include "profile.h"
#include "prompt.h"
#include "tokens.h"
#include "workload.h"

struct kvr_sim_prompt {
    struct kvr_prompt prompt; /* the chain made last */
    struct kvr_tokens tokens; /* the tokens made last */
    uint64_t scope;           /* of the one model of a simulation */
    uint32_t head_tokens, system_head_tokens;
    bool generated;    /* blocks of what is generated follow the prompt's */
    char *text;        /* scratch */
    size_t text_bytes; /* of it */
};

void kvr_sim_prompt_init(struct kvr_sim_prompt *maker, const struct kvr_profile *profile,
                         const struct kvr_prompt_options *options);
void kvr_sim_prompt_deinit(struct kvr_sim_prompt *maker);

/* Makes maker->prompt. Returns the number of user messages. */
uint32_t kvr_sim_prompt_chain(struct kvr_sim_prompt *maker,
                              const struct kvr_workload_request *request);
/* Makes maker->tokens, with what will be generated at the end, and returns how many of them are the
 * prompt's. */
uint32_t kvr_sim_prompt_tokens(struct kvr_sim_prompt *maker,
                               const struct kvr_workload_request *request);

#endif
