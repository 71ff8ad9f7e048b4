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
    uint32_t served = loop->outbox.served;
    kvr_outbox_turn(&loop->outbox);
    if (kvr_pace_matters(&loop->pace))
        keep_pace(loop, served);
    loop->asleep = true;
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
}

void kvr_loop_deinit(struct kvr_loop *loop)
{
    uv_close((uv_handle_t *)&loop->prepare, NULL);
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
    loop->outbox.served++;
    if (loop->asleep) {
        loop->asleep = false;
        loop->woke_ns = uv_hrtime();
    }
}

uint64_t kvr_loop_now(void)
{
    return uv_hrtime();
}

uint64_t kvr_loop_coarse(const struct kvr_loop *loop)
{
    return uv_now(loop->uv) * 1000000;
}
