/* Leaving a Lua call that does not end.
 *
 * Happy path: kvr_guard_run makes the sequence odd, arms, calls, disarms, makes it even. A watchdog
 * thread polls the sequence; one that stays odd while the guarded thread uses up the budget is
 * answered with a signal that carries the sequence, and the handler jumps back into kvr_guard_run.
 * Time is the guarded thread's CPU time: on a busy machine an honest call may be old by the wall
 * clock, and must not be killed for it.
 *
 * Why the handler looks at the interrupted instruction. A Lua error unwinds through libgcc, which
 * holds a mutex meanwhile, and may be in malloc: a jump out of there leaves the lock taken, and the
 * next throw in any VM hangs for ever. LuaJIT's own text, its machine code and libm run no code
 * under a lock of libc, libgcc or the loader, so a jump from there is safe. Anywhere else the
 * handler returns, and the watchdog kicks again 50 us later, until it lands well.
 *
 * Our own text counts as safe only within a bracketed leaf (the helpers that scripts call). Chance
 * alone does not do: a loop around two slow calls was never once interrupted outside of them in
 * 44,000 kicks, since an interrupt is taken where the processor waits.
 *
 * Failure modes: a late kick (the call has ended) carries an old sequence and is ignored. A call
 * that is never seen in a safe place for 5 s of CPU is a process to be restarted: abort. A VM that
 * was left may be torn anywhere: it is buried, never closed. Each one buried leaves its unwind
 * frames registered, which makes every later throw dearer, hence KVR_ABANDONED_MAX. */
#include "guard.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>

#include "check.h"
#include "log.h"

#define SEGMENTS_MAX 256
#define LOOK_NS      5000000u /* between two looks */
#define RETRY_NS     50000u   /* while a kick waits to be taken */
#define STUCK_NS     5000000000u

struct segment {
    uintptr_t start;
    uintptr_t end;
    enum { FOREIGN, OWN, SAFE } kind; /* SAFE: a jump out of here holds no lock */
};

static struct segment segments[SEGMENTS_MAX];
static int segments_count;

static pthread_t guarded_thread;
static clockid_t guarded_clock;
static bool started;
/* initial-exec: the hot path must not call the loader. */
static _Thread_local bool guarded __attribute__((tls_model("initial-exec")));

static _Atomic uint64_t sequence; /* odd: a call is running */
static volatile sig_atomic_t armed;
static sigjmp_buf environment;
_Thread_local volatile int kvr_guard_leaf;

static void *graveyard[KVR_ABANDONED_MAX];
static uint32_t buried;

static uintptr_t interrupted_instruction(const void *context)
{
    const ucontext_t *uc = context;
#if defined(__x86_64__)
    return (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
    return (uintptr_t)uc->uc_mcontext.pc;
#else
#error "the guard needs to know where this processor was interrupted"
#endif
}

/* An address in no library is LuaJIT's machine code: nothing else is executable in this process. */
static bool safe_to_leave(uintptr_t pc)
{
    for (int i = 0; i < segments_count; i++)
        if (pc >= segments[i].start && pc < segments[i].end)
            return segments[i].kind == SAFE || (segments[i].kind == OWN && kvr_guard_leaf);
    return true;
}

static void on_kick(int number, siginfo_t *info, void *context)
{
    (void)number;
    if (!armed || (uint64_t)(uintptr_t)info->si_value.sival_ptr != atomic_load(&sequence))
        return;
    if (!safe_to_leave(interrupted_instruction(context)))
        return;
    armed = 0;
    siglongjmp(environment, 1);
}

static bool holds(const struct segment *segment, const void *address)
{
    return (uintptr_t)address >= segment->start && (uintptr_t)address < segment->end;
}

static int on_object(struct dl_phdr_info *object, size_t size, void *lua)
{
    (void)size;
    const char *slash = strrchr(object->dlpi_name, '/');
    bool libm = strncmp(slash ? slash + 1 : object->dlpi_name, "libm.so", 7) == 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &object->dlpi_phdr[i];
        if (header->p_type != PT_LOAD || !(header->p_flags & PF_X))
            continue;
        KVR_CHECK(segments_count < SEGMENTS_MAX);
        uintptr_t start = object->dlpi_addr + header->p_vaddr;
        struct segment *segment = &segments[segments_count++];
        *segment = (struct segment){start, start + header->p_memsz, libm ? SAFE : FOREIGN};
        if (holds(segment, lua))
            segment->kind = SAFE;
        else if (holds(segment, (const void *)(uintptr_t)kvr_guard_start))
            segment->kind = OWN;
    }
    return 0;
}

void kvr_guard_start(void)
{
    KVR_CHECK(!started);
    void *lua = dlsym(RTLD_DEFAULT, "lua_pcall");
    KVR_CHECK(lua);
    segments_count = 0;
    dl_iterate_phdr(on_object, lua);
    guarded_thread = pthread_self();
    KVR_CHECK(pthread_getcpuclockid(guarded_thread, &guarded_clock) == 0);
    struct sigaction action = {.sa_sigaction = on_kick, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigemptyset(&action.sa_mask);
    KVR_CHECK(sigaction(KVR_GUARD_SIGNAL, &action, NULL) == 0);
    guarded = true;
    started = true;
}

void kvr_guard_stop(void)
{
    KVR_CHECK(started && guarded && !armed);
    signal(KVR_GUARD_SIGNAL, SIG_IGN); /* a late kick must not end the process */
    guarded = false;
    started = false;
}

bool kvr_guard_active(void)
{
    return guarded;
}

static uint64_t cpu_ns(void)
{
    struct timespec now;
    KVR_CHECK(clock_gettime(guarded_clock, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static _Atomic uint64_t last_budget_ns;

uint32_t kvr_guard_budget_ms(void)
{
    return (uint32_t)(atomic_load_explicit(&last_budget_ns, memory_order_relaxed) / 1000000u);
}

uint64_t kvr_guard_watch(uint64_t budget_ns)
{
    atomic_store_explicit(&last_budget_ns, budget_ns, memory_order_relaxed);
    static uint64_t watched; /* the odd sequence seen at the last look */
    static uint64_t since_ns;
    uint64_t now = atomic_load(&sequence);
    if (!(now & 1))
        return LOOK_NS;
    if (now != watched) {
        watched = now;
        since_ns = cpu_ns();
        return LOOK_NS;
    }
    uint64_t used_ns = cpu_ns() - since_ns;
    if (used_ns < budget_ns)
        return LOOK_NS;
    if (used_ns > budget_ns + STUCK_NS) {
        kvr_log(KVR_LOG_ERROR, "guard: a script cannot be left safely: aborting");
        abort();
    }
    pthread_sigqueue(guarded_thread, KVR_GUARD_SIGNAL, (union sigval){.sival_ptr = (void *)now});
    return RETRY_NS;
}

/* The handler runs with its own signal blocked, and the jump does not restore the mask: sigsetjmp
 * without the mask is what makes the hot path cheap. */
static void unblock(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, KVR_GUARD_SIGNAL);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

bool kvr_guard_run(int (*call)(void *), void *argument, int *result)
{
    if (!guarded || armed) {
        *result = call(argument);
        return true;
    }
    if (sigsetjmp(environment, 0)) {
        kvr_guard_leaf = 0;
        atomic_fetch_add(&sequence, 1);
        unblock();
        return false;
    }
    uint64_t running = atomic_load_explicit(&sequence, memory_order_relaxed) + 1;
    atomic_store_explicit(&sequence, running, memory_order_release);
    armed = 1;
    atomic_signal_fence(memory_order_seq_cst);
    *result = call(argument);
    atomic_signal_fence(memory_order_seq_cst);
    armed = 0;
    atomic_store_explicit(&sequence, running + 1, memory_order_release);
    return true;
}

void kvr_guard_bury(void *remains)
{
    if (buried < KVR_ABANDONED_MAX)
        graveyard[buried++] = remains;
}

uint32_t kvr_guard_abandoned(void)
{
    return buried;
}

bool kvr_guard_exhausted(void)
{
    return buried >= KVR_ABANDONED_MAX;
}
