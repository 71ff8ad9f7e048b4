/* Requests under way: what the router remembers of each between submit and finish, which is what
 * its row will say. Fixed-size table, names {slot, generation}. */
#ifndef KVR_REQUEST_H
#define KVR_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "ledger.h"
#include "slice.h"
#include "slot.h"

#define KVR_REQUEST_ID_MAX  64
#define KVR_REQUEST_TAG_MAX 128
#define KVR_CANDIDATES_MAX  16 /* whose loads a row shows */
#define KVR_MOVES_MAX       4

struct kvr_request_ref {
    uint32_t slot;
    uint32_t generation; /* 0: none */
};

enum kvr_outcome {
    KVR_OUTCOME_SUCCESS, /* a whole answer below 400 */
    KVR_OUTCOME_FAILED,  /* a whole answer of 400 or more from the replica, or an error inside it */
    KVR_OUTCOME_DROPPED, /* lost after its first byte, or never placed */
    KVR_OUTCOME_CANCELLED, /* the client went away */
};

const char *kvr_outcome_name(enum kvr_outcome outcome);

/* What only the driver can know, at the end. Tokens: -1 unknown. Times: 0 never. */
struct kvr_ending {
    enum kvr_outcome outcome;
    const char *error;        /* constant text or NULL: "lost_mid_stream", "connect_timeout", ... */
    uint16_t status;          /* sent to the client; 0 none */
    uint16_t upstream_status; /* 0 none */
    bool replica_fault;       /* a loss mid-stream that the replica is to blame for */
    bool done_seen;           /* the stream said [DONE] */
    uint64_t bytes_in;        /* of the request body */
    uint64_t bytes_out;       /* of the response body */
    uint32_t events;          /* content events */
    int64_t prompt_tokens, output_tokens, cached_tokens;
    bool cached_inferred; /* absent, and this engine is known to leave zero out */
    double gap_mean_ms, gap_p50_ms, gap_max_ms; /* NaN none */
    const uint64_t *chain;                      /* for row_blocks; NULL none */
    uint32_t chain_len;
};

/* An ending of which nothing more is known: no tokens, no gaps. */
struct kvr_ending kvr_ending_make(enum kvr_outcome outcome, const char *error, uint16_t status);

/* One generation of a script, kept as long as it is in force or a request names it. */
struct kvr_script_record {
    uint32_t references;
    struct kvr_script_info info;
    uint32_t row_len;
    char row[KVR_SCRIPT_NAME_MAX + 128]; /* as rows name it; not terminated */
};

/* One reference more, for whoever keeps what is returned; NULL is allowed. */
struct kvr_script_record *kvr_script_record_share(struct kvr_script_record *record);
/* Takes one reference back; NULL is allowed. */
void kvr_script_record_release(struct kvr_script_record *record);

struct kvr_request_record {
    uint32_t generation; /* odd while open */
    uint32_t next_free;
    void *user;
    char id[KVR_REQUEST_ID_MAX];
    char *tag; /* NULL none */
    struct kvr_model *model;
    char *model_name; /* as sent, when the entry is one that several share; else NULL */
    const char *endpoint;
    const char *session_source;
    const char *client; /* name of its key, the driver's until finish; NULL none */
    uint64_t session, tenant, routing_key;
    uint64_t model_key; /* of routing_key (model_key.h): what is counted and planned; 0 none */
    uint64_t sequence;
    struct kvr_ticket ticket;
    uint32_t replica;            /* KVR_NO_REPLICA: none */
    uint32_t replica_generation; /* at dispatch: beliefs and blame are of that one */
    uint16_t excluded_count;
    uint16_t excluded[KVR_MOVES_MAX + 1]; /* replicas that failed it */
    uint16_t moves;
    uint16_t reason;
    uint16_t preferred_reason; /* of the pick, when the spill rule moved it; 0 none */
    uint32_t preferred;        /* declined replica; KVR_NO_REPLICA none */
    struct kvr_script_record *policy;
    struct kvr_script_record *spill;    /* NULL: not asked */
    struct kvr_shadow_answers *shadows; /* owned; NULL: none was asked */
    bool routed, stream, canary, fallback, got_first_byte, got_first_token;
    bool guarded;     /* decided by what the envelope of a gate is about: its answer counts there */
    uint8_t baseline; /* decided by it, and why: enum kvr_envelope_left; 0: it was not */
    uint16_t upstream_status;
    uint32_t turn, choices;
    uint32_t match_blocks, declined_match_blocks;
    uint32_t chain_len;
    uint64_t *chain;        /* its own copy, once it has waited; else NULL */
    uint64_t *active_chain; /* its own copy, while its blocks are counted as active; else NULL */
    uint32_t active_len;
    uint32_t queue_next, queue_previous; /* slots, while it waits */
    bool queued;
    uint64_t queue_epoch; /* of the queue, when it was last tried */
    uint64_t queued_ns;   /* since when it waits */
    uint64_t waited_ns;   /* over all its waits */
    float priority, slo_ttft_ms;
    uint32_t uncached_tokens; /* as put on the ticket; while it waits, on the best replica */
    float prompt_bytes, prompt_tokens, max_tokens;
    float chosen_in_flight, declined_in_flight, min_in_flight, mean_in_flight;
    uint16_t candidates; /* rows of the view */
    uint16_t available;
    uint16_t candidate_loads[KVR_CANDIDATES_MAX];
    uint64_t received_ns, decided_ns, sent_ns, first_byte_ns, first_token_ns;
    uint32_t admission; /* stamp of what it entered in the index */
    bool admitted;
};

/* The model as the request named it. */
const char *kvr_request_model_name(const struct kvr_request_record *record);

struct kvr_request_table {
    struct kvr_request_record *records;
    uint32_t capacity;
    uint32_t open;
    uint32_t first_free;
};

void kvr_request_table_init(struct kvr_request_table *table, uint32_t capacity);
void kvr_request_table_deinit(struct kvr_request_table *table);
/* A zeroed record, or generation 0 when all are open. */
struct kvr_request_ref kvr_request_open(struct kvr_request_table *table);
static inline struct kvr_request_record *kvr_request_at(const struct kvr_request_table *table,
                                                        struct kvr_request_ref request)
{
    KVR_CHECK(request.slot < table->capacity);
    struct kvr_request_record *record = &table->records[request.slot];
    KVR_CHECK(request.generation % 2 == 1 && record->generation == request.generation);
    return record;
}
void kvr_request_close(struct kvr_request_table *table, struct kvr_request_ref request);

#endif
