/* A workload from inside: shared by workload*.c and by nobody else. */
#ifndef KVR_WORKLOAD_PARTS_H
#define KVR_WORKLOAD_PARTS_H

#include "arrivals.h"
#include "buffer.h"
#include "event_queue.h"
#include "popularity.h"
#include "rng.h"
#include "workload.h"

/* What a draw is for: draws of different purposes are independent. */
enum kvr_purpose {
    KVR_FOR_SESSION = 1, /* which conversation a visit is */
    KVR_FOR_SYSTEM_SHARE,
    KVR_FOR_BRANCH_SHARE,
    KVR_FOR_FAMILY,
    KVR_FOR_KEY,
    KVR_FOR_VARIANT,
    KVR_FOR_LENGTH,
    KVR_FOR_OUTPUT,
    KVR_FOR_THINKING,
    KVR_FOR_GAPS,
    KVR_FOR_ORDER,
    KVR_FOR_NAME,
    KVR_FOR_TAG,
    /* texts */
    KVR_TEXT_SYSTEM,
    KVR_TEXT_USER,
    KVR_TEXT_ASSISTANT,
    KVR_TEXT_FAMILY_USER,
    KVR_TEXT_FAMILY_ASSISTANT,
    KVR_TEXT_TEMPLATE,
    KVR_TEXT_CONTEXT,
    KVR_TEXT_VARIANT,
    KVR_TEXT_UNIQUE,
    /* keys */
    KVR_FOR_DRIFT,
    KVR_FOR_KEY_LENGTH,
    KVR_FOR_THREAD,
    KVR_FOR_THREAD_GAP,
};

#define KVR_WORKLOAD_PIECES_MAX 4096 /* of one request that is not of a list */

struct kvr_list_row {
    struct kvr_list_request request; /* its pieces stand at pieces_at */
    uint64_t pieces_at;
    uint64_t user;
};

/* The requests of a list. Sorted when the first is asked for: then `by_user` holds the rows of
 * user u at [user_at[u], user_at[u + 1]), in the order in which they came, and `by_time` all of
 * them. */
struct kvr_request_list {
    struct kvr_list_row *rows;
    uint64_t rows_len, rows_capacity;
    struct kvr_piece *pieces;
    uint64_t pieces_len, pieces_capacity;
    uint64_t *sessions; /* open-addressed: session, user + 1; 0 free */
    uint64_t sessions_mask;
    uint64_t users;
    uint64_t *user_at;
    uint64_t *by_user;
    uint64_t *by_time;
    uint64_t *turn_of; /* by row: its place among those of its user */
    bool sorted;
};

/* A key's weight is share * exp(drift_sigma * walk). */
struct kvr_drift {
    double share; /* at the start */
    double walk;  /* sum of so many normal numbers as it has taken steps */
};

/* Threads under way. Times are of a clock that has run for before_ns when the first request may be
 * sent. */
struct kvr_threads {
    struct kvr_event_queue due; /* the next turn of each: a is the turn, b the thread */
    uint64_t before_ns;
    uint64_t begun;    /* threads, so the number of the one that begins next ... */
    uint64_t start_ns; /* ... at that time ... */
    bool starts;       /* ... unless none does */
    uint64_t sent;     /* turns */
};

struct kvr_workload {
    struct kvr_workload_options options; /* derived fields filled in; borrowed arrays NULL */
    struct kvr_popularity popularity;    /* of sessions or keys; drifting, as they are now */
    struct kvr_drift *drift;             /* by key; NULL: weights stay */
    uint64_t drift_steps;                /* that all have taken */
    struct kvr_arrivals arrivals;        /* of requests; with threads, of these */
    struct kvr_threads threads;
    struct kvr_request_list list;
    struct kvr_piece *pieces; /* of the request last asked for */
    struct kvr_buffer name;
    double *times_ms; /* owned copy */
    uint64_t *order;  /* SESSIONS, open: the users of the round under way, in its order */
    uint64_t order_round;
};

/* 64 random bits that are a function of what they are for. */
static inline uint64_t kvr_draw(uint64_t seed, enum kvr_purpose purpose, uint64_t a, uint64_t b)
{
    uint64_t hash = kvr_mix64(seed + (uint64_t)purpose * 0x9e3779b97f4a7c15u);
    hash = kvr_mix64(hash ^ (a + 0x632be59bd9b4e019u));
    return kvr_mix64(hash + kvr_mix64(b + 0x9e3779b97f4a7c15u));
}

/* Those bits as a number in [0, 1). */
static inline double kvr_unit(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1.0p-53;
}

/* The identity of a text of this workload. */
static inline uint64_t kvr_text_id(const struct kvr_workload *workload, enum kvr_purpose text,
                                   uint64_t a, uint64_t b)
{
    return kvr_draw(workload->options.seed ^ kvr_mix64(workload->options.epoch), text, a, b);
}

bool kvr_sessions_turn(struct kvr_workload *workload, uint64_t user, uint64_t turn,
                       struct kvr_workload_request *request);
void kvr_keys_start_drift(struct kvr_workload *workload);
bool kvr_keys_turn(struct kvr_workload *workload, uint64_t user, uint64_t turn,
                   struct kvr_workload_request *request);

/* Turns of a thread on average, and of this one; 1 without threads. */
double kvr_threads_mean(const struct kvr_workload_options *options);
uint32_t kvr_thread_turns(const struct kvr_workload_options *options, uint64_t user);
/* So long before the start threads are followed. */
double kvr_threads_before_ms(const struct kvr_workload_options *options);
void kvr_threads_rewind(struct kvr_workload *workload);
bool kvr_threads_next(struct kvr_workload *workload, struct kvr_arrival *arrival);

void kvr_request_list_sort(struct kvr_request_list *list);
void kvr_request_list_deinit(struct kvr_request_list *list);
bool kvr_request_list_turn(struct kvr_workload *workload, uint64_t user, uint64_t turn,
                           struct kvr_workload_request *request);

#endif
