/* The closed loop: offered load is an outcome. Users that wait are in a heap; all others have a
 * request in flight. */
#include "check.h"
#include "load_driver.h"
#include "memory.h"

/* ---- users that wait ---- */

/* Of those that wake together the first goes first, as in the simulator. */
static bool is_before(const struct kvr_load_wake *a, const struct kvr_load_wake *b)
{
    return a->at_ns < b->at_ns || (a->at_ns == b->at_ns && a->user < b->user);
}

static void push(struct kvr_load_waiting *waiting, uint64_t at_ns, uint32_t user)
{
    const struct kvr_load_wake wake = {at_ns, user};
    uint32_t at = waiting->len++;
    while (at > 0 && is_before(&wake, &waiting->wakes[(at - 1) / 2])) {
        waiting->wakes[at] = waiting->wakes[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    waiting->wakes[at] = wake;
}

static uint32_t pop(struct kvr_load_waiting *waiting)
{
    struct kvr_load_wake *wakes = waiting->wakes;
    KVR_CHECK(waiting->len > 0);
    uint32_t user = wakes[0].user, at = 0, len = --waiting->len;
    struct kvr_load_wake last = wakes[len];
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < len && is_before(&wakes[child + 1], &wakes[child]))
            child++;
        if (child >= len || !is_before(&wakes[child], &last))
            break;
        wakes[at] = wakes[child];
        at = child;
    }
    wakes[at] = last;
    return user;
}

static void set_alarm(struct kvr_load_driver *driver)
{
    const struct kvr_load_waiting *waiting = &driver->waiting;
    kvr_alarm_set(&driver->alarm, waiting->len ? waiting->wakes[0].at_ns : KVR_ALARM_NEVER);
}

/* ---- turns ---- */

/* A user that could not send waits a while, and takes its next turn then. */
static void retreat(struct kvr_load_driver *driver, uint32_t index, uint64_t now_ns)
{
    struct kvr_load_user *user = &driver->users[index];
    user->due_ns = now_ns + KVR_LOAD_RETREAT_NS;
    push(&driver->waiting, user->due_ns, index);
    set_alarm(driver);
}

/* Each user sends at least once, however short the run. */
static void send_turn(struct kvr_load_driver *driver, uint32_t index)
{
    struct kvr_load_user *user = &driver->users[index];
    uint64_t now_ns = kvr_loop_now();
    bool first = user->turn == 0 && !driver->options.requests_max && !driver->stopping;
    if ((!first && !kvr_load_may_send(driver, now_ns)) ||
        !kvr_load_ask(driver, index, user->turn)) {
        driver->users_left--;
        return;
    }
    user->turn++;
    if (!kvr_load_send(driver, user->due_ns, user->before_ns))
        retreat(driver, index, now_ns);
}

void kvr_load_closed_answer(struct kvr_load_driver *driver, const struct kvr_load_request *request)
{
    uint32_t index = (uint32_t)request->user;
    struct kvr_load_user *user = &driver->users[index];
    const struct kvr_load_call *call = &request->call;
    double think_ns = (double)kvr_workload_think_ns(driver->options.workload, index, user->turn);
    uint64_t wait_ns = (uint64_t)(think_ns / driver->clock.scale);
    user->before_ns = call->ended_ns;
    if (call->failure != KVR_LOAD_OK && call->status == 0) {
        retreat(driver, index, call->ended_ns + wait_ns);
        return;
    }
    user->due_ns = call->ended_ns + wait_ns;
    if (wait_ns < KVR_LOAD_WAIT_NS) {
        send_turn(driver, index);
    } else {
        push(&driver->waiting, user->due_ns, index);
        set_alarm(driver);
    }
}

void kvr_load_closed_ring(struct kvr_load_driver *driver)
{
    uint64_t now_ns = kvr_loop_now();
    struct kvr_load_waiting *waiting = &driver->waiting;
    for (int i = 0; i < KVR_LOAD_BURST && waiting->len && waiting->wakes[0].at_ns <= now_ns; i++)
        send_turn(driver, pop(waiting));
    set_alarm(driver);
}

void kvr_load_closed_start(struct kvr_load_driver *driver)
{
    uint64_t count = kvr_workload_users(driver->options.workload);
    KVR_CHECK(count > 0 && count < UINT32_MAX / 2);
    driver->users_left = (uint32_t)count;
    driver->users = kvr_alloc_zero(count, sizeof *driver->users);
    driver->waiting.wakes = kvr_alloc_zero(count, sizeof *driver->waiting.wakes);
    for (uint32_t i = 0; i < count; i++) {
        double start_ns = (double)kvr_workload_start_ns(driver->options.workload, i);
        driver->users[i].due_ns = kvr_load_wall_ns(driver, start_ns);
        push(&driver->waiting, driver->users[i].due_ns, i);
    }
    set_alarm(driver);
}
