#include "loop.h"

#include "check.h"
#include "memory.h"

static void on_prepare(uv_prepare_t *prepare)
{
    struct kvr_loop *loop = prepare->data;
    kvr_outbox_turn(&loop->outbox);
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
