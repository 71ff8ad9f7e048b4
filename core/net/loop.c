#include "loop.h"

#include <sys/prctl.h>
#include <time.h>

#include "check.h"
#include "memory.h"

#define TIMER_SLACK_NS 1000 /* 50 us by default, half of what a wait is to be */

static void keep_pace(struct kvr_loop *loop, uint32_t served)
{
    uint64_t now_ns = uv_hrtime();
    uint64_t woke_ns = loop->asleep ? now_ns : loop->woke_ns;
    uint64_t wait_ns = kvr_pace_turn(&loop->pace, now_ns, woke_ns, served);
    if (wait_ns) {
        /* A signal may end it early, which does no harm. */
        nanosleep(&(struct timespec){.tv_nsec = (long)wait_ns}, NULL);
        now_ns = uv_hrtime();
    }
    kvr_pace_poll(&loop->pace, now_ns);
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct kvr_loop *loop = prepare->data;
    kvr_outbox_flush(&loop->outbox);
    if (kvr_pace_matters(&loop->pace))
        keep_pace(loop, loop->served);
    loop->busy = loop->served >= KVR_LOOP_BUSY;
    loop->served = 0;
    loop->asleep = true;
}

static void on_check(uv_check_t *check)
{
    struct kvr_loop *loop = check->data;
    kvr_inbox_serve(&loop->inbox);
}

void kvr_loop_init(struct kvr_loop *loop, uv_loop_t *uv)
{
    *loop = (struct kvr_loop){.uv = uv};
    loop->read_buffer = kvr_alloc(KVR_READ_BUFFER_BYTES);
    loop->woke_ns = uv_hrtime();
    KVR_CHECK(uv_prepare_init(uv, &loop->prepare) == 0);
    loop->prepare.data = loop;
    KVR_CHECK(uv_prepare_start(&loop->prepare, on_prepare) == 0);
    uv_unref((uv_handle_t *)&loop->prepare);
    KVR_CHECK(uv_check_init(uv, &loop->check) == 0);
    loop->check.data = loop;
    KVR_CHECK(uv_check_start(&loop->check, on_check) == 0);
    uv_unref((uv_handle_t *)&loop->check);
}

void kvr_loop_deinit(struct kvr_loop *loop)
{
    uv_close((uv_handle_t *)&loop->prepare, NULL);
    uv_close((uv_handle_t *)&loop->check, NULL);
    kvr_inbox_deinit(&loop->inbox);
    kvr_outbox_deinit(&loop->outbox);
    kvr_free(loop->read_buffer);
    loop->read_buffer = NULL;
}

void kvr_loop_pace(struct kvr_loop *loop, uint32_t period_us)
{
    loop->pace.period_ns = (uint64_t)period_us * 1000;
    if (period_us)
        prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
}

void kvr_loop_woke(struct kvr_loop *loop)
{
    loop->served++;
    if (loop->asleep) {
        loop->asleep = false;
        loop->woke_ns = uv_hrtime();
    }
}

uint64_t kvr_loop_turn_ns(const struct kvr_loop *loop)
{
    return loop->asleep ? uv_hrtime() : loop->woke_ns;
}

uint64_t kvr_loop_now(void)
{
    return uv_hrtime();
}

uint64_t kvr_loop_coarse(const struct kvr_loop *loop)
{
    return uv_now(loop->uv) * 1000000;
}
