/* Threads of turns about one key: the part of workload.h about `thread_more`. A thread is a user;
 * threads begin at the times of a renewal process, and each goes through its turns whatever has
 * become of the ones before.
 *
 * How long a thread lives is exponential, since a number of gaps that is geometric is a sum that is
 * exponential: mean thread_gap_ms / thread_end. So the process is followed from LIVES of these
 * before the start, and of threads that began then only the turns after the start are sent: the
 * rate is what it will be from the first request on. */
#include <math.h>

#include "real.h"
#include "workload_parts.h"

#define LIVES     14   /* exp(-14): one in a million is still alive */
#define TURNS_MAX 1024 /* of a thread, two pieces each */

double kvr_threads_mean(const struct kvr_workload_options *o)
{
    return o->thread_more > 0 ? 1 + o->thread_more / o->thread_end : 1;
}

double kvr_threads_before_ms(const struct kvr_workload_options *o)
{
    return o->thread_more > 0 ? LIVES * o->thread_gap_ms / o->thread_end : 0;
}

uint32_t kvr_thread_turns(const struct kvr_workload_options *o, uint64_t user)
{
    double unit = kvr_unit(kvr_draw(o->seed, KVR_FOR_THREAD, user, 0));
    if (!(unit < o->thread_more))
        return 1;
    if (!(o->thread_end < 1))
        return 2;
    /* What is left of the draw, uniform in [0, 1), says after how many more it ends. */
    double left = 1 - unit / o->thread_more;
    double more = floor(kvr_real_log(left) / kvr_real_log(1 - o->thread_end));
    return more < TURNS_MAX - 2 ? 2 + (uint32_t)more : TURNS_MAX;
}

static uint64_t gap_ns(const struct kvr_workload_options *o, uint64_t user, uint64_t turn)
{
    struct kvr_rng rng;
    kvr_rng_init(&rng, kvr_draw(o->seed, KVR_FOR_THREAD_GAP, user, turn));
    return kvr_arrivals_ns(o->thread_gap_ms * kvr_gamma_gap(&rng, 1));
}

static bool take_start(struct kvr_workload *workload)
{
    struct kvr_threads *threads = &workload->threads;
    threads->starts = kvr_arrivals_next(&workload->arrivals, &threads->start_ns);
    return threads->starts;
}

/* Waits for that turn of a thread, or the first behind it that comes after the start. */
static void await(struct kvr_workload *workload, uint64_t user, uint32_t turn, uint64_t time_ns)
{
    const struct kvr_workload_options *o = &workload->options;
    struct kvr_threads *threads = &workload->threads;
    uint32_t turns = kvr_thread_turns(o, user);
    while (turn < turns && time_ns < threads->before_ns)
        time_ns += gap_ns(o, user, ++turn);
    if (turn < turns)
        kvr_event_queue_add(&threads->due, time_ns, false, 0, turn, user);
}

void kvr_threads_rewind(struct kvr_workload *workload)
{
    struct kvr_threads *threads = &workload->threads;
    kvr_event_queue_deinit(&threads->due);
    *threads = (struct kvr_threads){
        .before_ns = kvr_arrivals_ns(kvr_threads_before_ms(&workload->options)),
    };
    kvr_event_queue_init(&threads->due);
    take_start(workload);
}

bool kvr_threads_next(struct kvr_workload *workload, struct kvr_arrival *arrival)
{
    struct kvr_threads *threads = &workload->threads;
    /* All that begin before the next turn is due: one of them may be sooner. */
    while (threads->starts && threads->start_ns <= kvr_event_queue_time(&threads->due)) {
        await(workload, threads->begun++, 0, threads->start_ns);
        take_start(workload);
    }
    if (threads->due.len == 0)
        return false;
    struct kvr_sim_event event = kvr_event_queue_take(&threads->due);
    uint64_t user = event.b, now_ns = event.time_ns;
    uint32_t after = event.a + 1;
    *arrival =
        (struct kvr_arrival){.due_ns = now_ns - threads->before_ns, .user = user, .turn = event.a};
    threads->sent++;
    await(workload, user, after, now_ns + gap_ns(&workload->options, user, after));
    return true;
}
