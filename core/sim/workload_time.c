/* When requests are sent: the part of workload.h about users and arrivals. */
#include <math.h>

#include "memory.h"
#include "workload_parts.h"

#define ORDER_NONE UINT64_MAX
#define POOL_MAX   1000000

/* ---- closed loop ---- */

uint64_t kvr_workload_users(const struct kvr_workload *workload)
{
    return workload->options.kind == KVR_WORKLOAD_LIST ? workload->list.users
                                                       : workload->options.users;
}

uint64_t kvr_workload_start_ns(const struct kvr_workload *workload, uint64_t user)
{
    const struct kvr_workload_options *o = &workload->options;
    const struct kvr_request_list *list = &workload->list;
    if (o->kind != KVR_WORKLOAD_LIST)
        return kvr_arrivals_ns(o->start_ms * (double)user / o->users);
    KVR_CHECK(list->sorted && user < list->users);
    return kvr_arrivals_ns(list->rows[list->by_user[list->user_at[user]]].request.due_ms *
                           o->time_scale);
}

uint64_t kvr_workload_think_ns(const struct kvr_workload *workload, uint64_t user, uint64_t turn)
{
    const struct kvr_workload_options *o = &workload->options;
    const struct kvr_request_list *list = &workload->list;
    if (o->kind == KVR_WORKLOAD_LIST) {
        KVR_CHECK(list->sorted && user < list->users);
        uint64_t at = list->user_at[user] + turn;
        if (at >= list->user_at[user + 1])
            return 0; /* it sends no more */
        return kvr_arrivals_ns(list->rows[list->by_user[at]].request.think_ms * o->time_scale);
    }
    if (!(o->think_cv > 0))
        return kvr_arrivals_ns(o->think_ms);
    struct kvr_rng rng;
    kvr_rng_init(&rng, kvr_draw(o->seed, KVR_FOR_THINKING, user, turn));
    return kvr_arrivals_ns(o->think_ms * kvr_gamma_gap(&rng, o->think_cv));
}

/* ---- open loop ---- */

/* Users who take turns in rounds: as many as send within pool_s. */
static uint64_t pool_of(const struct kvr_workload *workload)
{
    const struct kvr_workload_options *o = &workload->options;
    const struct kvr_arrivals_options *given = &workload->arrivals.options;
    double rate = o->rate;
    if (!(rate > 0) && given->times_len > 1) {
        double span_ms = given->times_ms[given->times_len - 1] - given->times_ms[0];
        rate = span_ms > 0 ? (double)(given->times_len - 1) / span_ms * 1e3 : 0;
    }
    double users = floor(rate * o->pool_s + 0.5);
    return users < 1 ? 1 : users > POOL_MAX ? POOL_MAX : (uint64_t)users;
}

/* The length of blocks that suits a series of so many gaps. */
static uint32_t usual_block(uint64_t gaps)
{
    uint64_t root = 1;
    while ((root + 1) * (root + 1) * (root + 1) <= gaps)
        root++;
    return (uint32_t)root;
}

/* The times to follow: the given ones, or those of the list in `times_ms`. */
static void take_times(struct kvr_workload *workload, struct kvr_arrivals_options *options)
{
    struct kvr_request_list *list = &workload->list;
    if (workload->options.times_len == 0 && workload->options.kind == KVR_WORKLOAD_LIST) {
        if (!workload->times_ms)
            workload->times_ms = kvr_alloc(list->rows_len * sizeof *workload->times_ms + 1);
        for (uint64_t i = 0; i < list->rows_len; i++)
            workload->times_ms[i] = list->rows[list->by_time[i]].request.due_ms;
        options->times_len = list->rows_len;
    } else {
        options->times_len = workload->options.times_len;
    }
    options->times_ms = workload->times_ms;
}

void kvr_workload_rewind(struct kvr_workload *workload)
{
    const struct kvr_workload_options *o = &workload->options;
    workload->order_round = ORDER_NONE;
    if (o->kind == KVR_WORKLOAD_LIST)
        kvr_request_list_sort(&workload->list);
    if (o->arrivals == KVR_ARRIVALS_CLOSED)
        return;
    struct kvr_arrivals_options options = {
        .process = o->arrivals == KVR_ARRIVALS_RATE    ? KVR_PROCESS_RENEWAL
                   : o->arrivals == KVR_ARRIVALS_TIMES ? KVR_PROCESS_TIMES
                                                       : KVR_PROCESS_BOOTSTRAP,
        .seed = kvr_draw(o->seed, KVR_FOR_GAPS, 0, 0),
        .rate = o->rate / kvr_threads_mean(o),
        .gap_cv = o->gap_cv,
        .rate_end = o->rate_end,
        .ramp_ms = o->ramp_ms,
        .time_scale = o->time_scale,
        .block_len = o->block_len,
    };
    if (options.process != KVR_PROCESS_RENEWAL)
        take_times(workload, &options);
    if (options.block_len == 0)
        options.block_len = usual_block(options.times_len);
    if (options.process == KVR_PROCESS_BOOTSTRAP && options.times_len < 2)
        options.process = KVR_PROCESS_TIMES; /* there is nothing to draw from */
    kvr_arrivals_init(&workload->arrivals, &options);
    if (o->thread_more > 0)
        kvr_threads_rewind(workload);
}

/* Who is `place`-th in that round: each round goes through all users in an order of its own, since
 * a fixed one could make a rotation over replicas look like affinity. */
static uint64_t user_in_round(struct kvr_workload *workload, uint64_t round, uint64_t place,
                              uint64_t pool)
{
    if (!workload->order)
        workload->order = kvr_alloc(pool * sizeof *workload->order);
    if (workload->order_round != round) {
        struct kvr_rng rng;
        kvr_rng_init(&rng, kvr_draw(workload->options.seed, KVR_FOR_ORDER, round, 0));
        for (uint64_t i = 0; i < pool; i++)
            workload->order[i] = i;
        for (uint64_t i = pool; i-- > 1;) {
            uint64_t other = kvr_rng_below(&rng, i + 1);
            uint64_t user = workload->order[i];
            workload->order[i] = workload->order[other];
            workload->order[other] = user;
        }
        workload->order_round = round;
    }
    return workload->order[place];
}

bool kvr_workload_next(struct kvr_workload *workload, struct kvr_arrival *arrival)
{
    const struct kvr_workload_options *o = &workload->options;
    const struct kvr_request_list *list = &workload->list;
    KVR_CHECK(o->arrivals != KVR_ARRIVALS_CLOSED);
    if (o->kind == KVR_WORKLOAD_LIST && !list->sorted)
        kvr_workload_rewind(workload);
    bool threads = o->thread_more > 0;
    uint64_t n = threads ? workload->threads.sent : workload->arrivals.count;
    if (o->arrivals_max && n >= o->arrivals_max)
        return false;
    if (o->kind == KVR_WORKLOAD_LIST && n >= list->rows_len)
        return false;
    if (threads)
        return kvr_threads_next(workload, arrival);
    if (!kvr_arrivals_next(&workload->arrivals, &arrival->due_ns))
        return false;
    if (o->kind == KVR_WORKLOAD_LIST) {
        uint64_t row = list->by_time[n];
        arrival->user = list->rows[row].user;
        arrival->turn = list->turn_of[row];
    } else if (o->kind == KVR_WORKLOAD_SESSIONS) {
        uint64_t pool = pool_of(workload);
        arrival->turn = n / pool;
        arrival->user = user_in_round(workload, arrival->turn, n % pool, pool);
    } else {
        arrival->user = n;
        arrival->turn = 0;
    }
    return true;
}
