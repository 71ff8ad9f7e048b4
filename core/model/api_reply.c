#include "api_reply.h"

#include "api_scan.h"

void kvr_api_add_reply(struct kvr_prompt *prompt, struct kvr_slice text)
{
    static const char opening[] = {KVR_TAG_ROLE,   'a', 's', 's', 'i', 's', 't', 'a', 'n', 't',
                                   KVR_TAG_CONTENT};
    static const char end[] = {KVR_TAG_END};
    kvr_prompt_add(prompt, opening, sizeof opening);
    kvr_prompt_add(prompt, text.data, text.len);
    kvr_prompt_add(prompt, end, sizeof end);
}
