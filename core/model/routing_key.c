#include "routing_key.h"

static uint64_t of_blocks(const uint64_t *chain, uint32_t chain_len, uint32_t blocks)
{
    KVR_CHECK(blocks > 0);
    if (chain_len == 0)
        return 0;
    return chain[(chain_len < blocks ? chain_len : blocks) - 1];
}

uint64_t kvr_routing_key(const struct kvr_routing_options *options,
                         const struct kvr_header *headers, size_t count,
                         const struct kvr_api_request *request, const struct kvr_session *session,
                         const uint64_t *chain, uint32_t chain_len)
{
    uint64_t key = 0;
    if (options->by == KVR_BY_TENANT)
        key = session->tenant;
    else if (options->by == KVR_BY_KEY)
        key = kvr_session_configured(options->key, headers, count,
                                     request->identities[KVR_IDENTITY_ROUTING_FIELD]);
    else if (options->by == KVR_BY_BLOCKS)
        key = of_blocks(chain, chain_len, options->blocks);
    return key ? key : session->key;
}

static int digit_of(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

uint64_t kvr_routing_key_named(struct kvr_slice text)
{
    uint64_t key = 0;
    if (text.len != 16)
        return kvr_identity_hash(text);
    for (size_t i = 0; i < text.len; i++) {
        int digit = digit_of(text.data[i]);
        if (digit < 0)
            return kvr_identity_hash(text);
        key = key << 4 | (uint64_t)digit;
    }
    return key;
}
