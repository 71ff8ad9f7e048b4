/* core/sim/workload: what is asked. Texts, the shapes and shares of conversations and keys, and
 * that a request is a function of who asks for the how-manieth time. */
#include "workload_fixture.h"

#include "rng.h"

static struct kvr_workload_options defaults(void)
{
    struct kvr_workload_options options;
    kvr_workload_defaults(&options);
    return options;
}

/* ---- texts ---- */

static void test_text(void **state)
{
    (void)state;
    char whole[400], part[400];
    kvr_workload_text(77, 0, sizeof whole, whole);
    for (size_t i = 0; i < sizeof whole; i++)
        assert_true(whole[i] >= 'a' && whole[i] <= 'p');
    struct kvr_rng rng;
    kvr_rng_init(&rng, 1);
    for (int i = 0; i < 2000; i++) {
        size_t from = (size_t)kvr_rng_below(&rng, sizeof whole);
        size_t len = (size_t)kvr_rng_below(&rng, sizeof whole - from + 1);
        memset(part, '#', sizeof part);
        kvr_workload_text(77, from, len, part);
        assert_memory_equal(part, whole + from, len);
        assert_true(len == sizeof part || part[len] == '#');
    }
    kvr_workload_text(78, 0, sizeof part, part);
    assert_memory_not_equal(part, whole, 32);
}

/* ---- conversations ---- */

static bool same(const struct kvr_piece *a, const struct kvr_piece *b)
{
    return a->id == b->id && a->bytes == b->bytes && a->speaker == b->speaker &&
           a->continues == b->continues;
}

static void test_turns_extend_each_other(void **state)
{
    (void)state;
    struct kvr_workload_options options = defaults();
    struct kvr_workload *workload = make(&options);
    for (uint64_t user = 0; user < 50; user++) {
        struct kvr_piece before[64];
        uint32_t before_len = 0;
        uint64_t session = 0;
        for (uint64_t turn = 0; turn < 8; turn++) {
            struct kvr_workload_request r;
            assert_true(kvr_workload_turn(workload, user, turn, &r));
            assert_int_equal(r.session_turn, turn % 4 + 1);
            bool system = r.pieces[0].speaker == KVR_SYSTEM;
            assert_int_equal(r.pieces_len, 2 * (turn % 4) + 1 + system);
            if (turn % 4) {
                assert_int_equal(r.session, session);
                for (uint32_t i = 0; i < before_len; i++)
                    assert_true(same(&before[i], &r.pieces[i]));
            }
            uint32_t bytes = 0;
            for (uint32_t i = 0; i < r.pieces_len; i++)
                bytes += r.pieces[i].bytes;
            assert_int_equal(bytes, r.prompt_bytes);
            /* A conversation is as long with the system prompt as without. */
            if (turn % 4 == 3)
                assert_int_equal(bytes, 4 * 1792 + 3 * 256);
            session = r.session;
            before_len = r.pieces_len;
            memcpy(before, r.pieces, before_len * sizeof *before);
        }
    }
    kvr_workload_destroy(workload);
}

static void test_shares(void **state)
{
    (void)state;
    struct kvr_workload_options options = defaults();
    options.sessions = 20000;
    struct kvr_workload *workload = make(&options);
    uint32_t system = 0, early = 0, n = 40000;
    uint64_t output = 0, families[64] = {0}, families_len = 0, branches = 0;
    struct kvr_workload_request r;
    for (uint32_t i = 0; i < n; i++) {
        assert_true(kvr_workload_turn(workload, i, 0, &r));
        system += r.pieces[0].speaker == KVR_SYSTEM;
        early += r.stops;
        output += r.stops ? r.output_tokens : 0;
        assert_true(r.output_tokens >= 1 && r.output_tokens <= 64);
        assert_true(r.stops == (r.output_tokens < 64));
    }
    near(system, 0.3 * n, 0.05);
    near(early, 0.2 * n, 0.05);
    near((double)output / early, 32, 0.05);
    /* First messages that several sessions share are those of the families. */
    options.sessions = 400;
    struct kvr_workload *small = make(&options);
    uint64_t seen[2][4096];
    uint32_t seen_len = 0;
    for (uint32_t i = 0; i < 4000; i++) {
        assert_true(kvr_workload_turn(small, i, 0, &r));
        uint64_t id = r.pieces[r.pieces_len - 1].id;
        for (uint32_t k = 0; k < seen_len; k++) {
            if (seen[0][k] != id || seen[1][k] == r.session)
                continue;
            uint64_t f = 0;
            while (f < families_len && families[f] != id)
                f++;
            if (f == families_len)
                families[families_len++] = id;
        }
        seen[0][seen_len] = id;
        seen[1][seen_len++] = r.session;
    }
    assert_int_equal(families_len, 8);
    for (uint32_t i = 0; i < 4000; i++)
        for (uint64_t f = 0; f < families_len; f++)
            branches += seen[0][i] == families[f];
    near((double)branches, 0.3 * 4000, 0.25);
    kvr_workload_destroy(small);
    kvr_workload_destroy(workload);
}

static void test_working_sets(void **state)
{
    (void)state;
    const double sets[] = {0.25, 1, 3, 8};
    const uint32_t sessions[] = {76, 307, 922, 2460};
    for (int i = 0; i < 4; i++) {
        struct kvr_workload_options options = defaults();
        options.working_set = sets[i];
        struct kvr_workload *workload = make(&options);
        assert_int_equal(kvr_workload_options(workload)->sessions, sessions[i]);
        kvr_workload_destroy(workload);
    }
}

static void test_skew(void **state)
{
    (void)state;
    struct kvr_workload_options options = defaults();
    options.skew = 1;
    struct kvr_workload *workload = make(&options);
    double harmonic = 0;
    for (int i = 1; i <= 307; i++)
        harmonic += 1.0 / i;
    uint32_t counts[308] = {0}, n = 60000;
    for (uint32_t i = 0; i < n; i++) {
        struct kvr_workload_request r;
        assert_true(kvr_workload_turn(workload, i, 0, &r));
        assert_true(r.session >= 1 && r.session <= 307);
        counts[r.session]++;
    }
    near(counts[1], n / harmonic, 0.05);
    near(counts[2], n / harmonic / 2, 0.06);
    near(counts[10], n / harmonic / 10, 0.15);
    kvr_workload_destroy(workload);
}

/* ---- functions of (user, turn) ---- */

static bool equal(const struct kvr_workload_request *a, const struct kvr_piece *pieces,
                  const struct kvr_workload_request *b)
{
    if (a->session != b->session || a->tag != b->tag || a->pieces_len != b->pieces_len ||
        a->output_tokens != b->output_tokens || a->prompt_bytes != b->prompt_bytes)
        return false;
    for (uint32_t i = 0; i < a->pieces_len; i++)
        if (!same(&pieces[i], &b->pieces[i]))
            return false;
    return true;
}

static void test_any_order(void **state)
{
    (void)state;
    for (uint32_t kind = KVR_WORKLOAD_SESSIONS; kind <= KVR_WORKLOAD_KEYS; kind++) {
        struct kvr_workload_options options = defaults();
        options.kind = kind;
        struct kvr_workload *a = make(&options), *b = make(&options);
        struct kvr_rng rng;
        kvr_rng_init(&rng, 3);
        for (uint64_t i = 0; i < 300; i++) {
            struct kvr_workload_request forward, again;
            struct kvr_piece pieces[64];
            uint64_t user = i % 20, turn = i / 20;
            assert_true(kvr_workload_turn(a, user, turn, &forward));
            memcpy(pieces, forward.pieces, forward.pieces_len * sizeof *pieces);
            for (int noise = 0; noise < 3; noise++)
                kvr_workload_turn(b, kvr_rng_below(&rng, 99), kvr_rng_below(&rng, 99), &again);
            assert_true(kvr_workload_turn(b, user, turn, &again));
            assert_true(equal(&forward, pieces, &again));
        }
        kvr_workload_destroy(a);
        kvr_workload_destroy(b);
    }
}

static void test_epochs_and_seeds(void **state)
{
    (void)state;
    struct kvr_workload_options options = defaults();
    struct kvr_workload *first = make(&options);
    options.epoch = 1;
    struct kvr_workload *epoch = make(&options);
    options.epoch = 0;
    options.seed = 2;
    struct kvr_workload *seed = make(&options);
    uint32_t same_session = 0;
    for (uint64_t user = 0; user < 200; user++) {
        struct kvr_workload_request a, b, c;
        assert_true(kvr_workload_turn(first, user, 0, &a));
        assert_true(kvr_workload_turn(epoch, user, 0, &b));
        assert_true(kvr_workload_turn(seed, user, 0, &c));
        /* The same conversation with other words. */
        assert_true(a.session == b.session && a.output_tokens == b.output_tokens);
        assert_true(a.pieces_len == b.pieces_len);
        for (uint32_t i = 0; i < a.pieces_len; i++)
            assert_true(a.pieces[i].id != b.pieces[i].id && a.pieces[i].id != c.pieces[0].id);
        same_session += a.session == c.session;
    }
    assert_true(same_session < 10);
    char names[3][32];
    assert_int_equal(kvr_workload_session_name(first, 7, names[0]), 18);
    kvr_workload_session_name(epoch, 7, names[1]);
    kvr_workload_session_name(seed, 7, names[2]);
    assert_string_not_equal(names[0], names[1]);
    assert_string_not_equal(names[0], names[2]);
    kvr_workload_destroy(first);
    kvr_workload_destroy(epoch);
    kvr_workload_destroy(seed);
}

/* ---- keys ---- */

static void test_keys(void **state)
{
    (void)state;
    struct kvr_workload_options options = defaults();
    options.kind = KVR_WORKLOAD_KEYS;
    options.bytes_per_token = 4;
    struct kvr_workload *workload = make(&options);
    uint32_t counts[129] = {0}, n = 100000;
    double unique = 0;
    uint32_t least = UINT32_MAX, most = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct kvr_workload_request r;
        assert_true(kvr_workload_turn(workload, i, 0, &r));
        counts[r.session]++;
        assert_int_equal(r.pieces_len, 4);
        assert_int_equal(r.pieces[0].bytes, 17600);
        assert_int_equal(r.pieces[1].bytes, 720);
        assert_int_equal(r.pieces[2].bytes, 9600);
        assert_true(!r.pieces[1].continues && r.pieces[2].continues && r.pieces[3].continues);
        uint32_t bytes = r.pieces[3].bytes;
        unique += bytes;
        least = bytes < least ? bytes : least;
        most = bytes > most ? bytes : most;
        assert_true(r.output_tokens == 48 && r.max_tokens == 48 && !r.stops);
    }
    near(unique / n, 1600, 0.01);
    assert_true(least >= 800 && least < 810 && most <= 2400 && most > 2390);
    /* (r + 20)^-0.85: the hottest of 128 has 2.0 %, 5.3 times the last. */
    near(counts[1], 0.020 * n, 0.08);
    near((double)counts[1] / counts[128], 5.3, 0.2);
    kvr_workload_destroy(workload);
}

static void test_whales_and_weights(void **state)
{
    (void)state;
    struct kvr_workload_options options = defaults();
    options.kind = KVR_WORKLOAD_KEYS;
    options.whales = 8;
    options.whale_share = 0.45;
    struct kvr_workload *whales = make(&options);
    const double weights[] = {0, 3, 1};
    options.whales = 0;
    options.weights = weights;
    options.weights_len = 3;
    struct kvr_workload *given = make(&options);
    uint32_t big = 0, counts[4] = {0}, n = 40000;
    for (uint32_t i = 0; i < n; i++) {
        struct kvr_workload_request r;
        assert_true(kvr_workload_turn(whales, i, 0, &r));
        big += r.session <= 8;
        assert_true(kvr_workload_turn(given, i, 0, &r));
        counts[r.session]++;
    }
    near(big, 0.45 * n, 0.03);
    assert_int_equal(counts[1], 0);
    near(counts[2], 0.75 * n, 0.03);
    kvr_workload_destroy(whales);
    kvr_workload_destroy(given);
}

/* What the paper's Table 6 says of 128,824 keys: Gini 0.756, no key above 0.3 % of the traffic, 4 %
 * of them about 47 %. */
static void test_lognormal_rates(void **state)
{
    (void)state;
    struct kvr_workload_options options = defaults();
    options.kind = KVR_WORKLOAD_KEYS;
    options.keys = options.population = 128824;
    struct kvr_workload *all = make(&options);
    double gini = 0, top = 0, upto = 0;
    for (uint32_t i = 0; i < options.keys; i++) {
        double share = kvr_workload_key_share(all, i);
        assert_true(share > 0 && share <= 0.0029 * (1 + 1e-9));
        upto += share;
        top += i < options.keys / 25 ? share : 0;
        gini += 2 * (upto - share / 2) / options.keys; /* keys fall: the area is above the line */
    }
    near(gini - 1, 0.756, 0.001);
    near(top, 0.459, 0.002);
    near(kvr_workload_key_share(all, 0), 0.0029, 1e-6);
    options.keys = 128; /* the most frequent of them, whose shares are of what they have together */
    struct kvr_workload *active = make(&options);
    near(kvr_workload_key_share(active, 0), 0.0029 / 0.0735, 0.002);
    near(kvr_workload_key_share(active, 1) / kvr_workload_key_share(active, 127),
         kvr_workload_key_share(all, 1) / kvr_workload_key_share(all, 127), 1e-6);
    kvr_workload_destroy(all);
    kvr_workload_destroy(active);
}

static void test_lognormal_output(void **state)
{
    (void)state;
    struct kvr_workload_options options = defaults();
    options.kind = KVR_WORKLOAD_KEYS;
    options.output_cv = 1.2;
    options.output_max = 4000;
    struct kvr_workload *workload = make(&options);
    double sum = 0, squares = 0;
    uint32_t n = 100000;
    for (uint32_t i = 0; i < n; i++) {
        struct kvr_workload_request r;
        assert_true(kvr_workload_turn(workload, i, 0, &r));
        assert_true(r.output_tokens >= 1 && r.output_tokens <= 4000 && r.max_tokens == 4000);
        sum += r.output_tokens;
        squares += (double)r.output_tokens * r.output_tokens;
    }
    double mean = sum / n;
    near(mean, 48, 0.03);
    near((squares / n - mean * mean) / (mean * mean), 1.2 * 1.2, 0.15);
    kvr_workload_destroy(workload);
}

/* ---- refusals and names ---- */

static void refused(struct kvr_workload_options options, const char *word)
{
    struct kvr_error error = {0};
    assert_null(kvr_workload_create(&options, &error));
    assert_int_equal(error.code, KVR_E_INVALID);
    if (!strstr(error.text, word))
        fail_msg("\"%s\" does not name %s", error.text, word);
}

static void test_refusals(void **state)
{
    (void)state;
    struct kvr_workload_options options = defaults();
    options.users = 0;
    refused(options, "users");
    options = defaults();
    options.skew = (double)__builtin_nan("");
    refused(options, "skew");
    options = defaults();
    options.arrivals = KVR_ARRIVALS_RATE;
    refused(options, "rate");
    options.rate = 5;
    options.kind = KVR_WORKLOAD_KEYS;
    options.keys = 0;
    refused(options, "keys");
    options = defaults();
    options.arrivals = KVR_ARRIVALS_BOOTSTRAP;
    refused(options, "times_ms");
    const double times[] = {1, 3, 2};
    options.times_ms = times;
    options.times_len = 3;
    refused(options, "times_ms");
    const double at_once[] = {5, 5, 5}; /* blocks of it would never end */
    options.times_ms = at_once;
    refused(options, "times_ms");
    options = defaults();
    options.system_share = 1.01;
    refused(options, "system_share");
}

/* Weights of which nothing can be drawn. */
static void test_weights_refused(void **state)
{
    (void)state;
    static const double bad[][2] = {{0, 0}, {1, -1}, {1, NAN}, {1e308, 1e308}, {INFINITY, 1}};
    struct kvr_workload_options options = defaults();
    options.kind = KVR_WORKLOAD_KEYS;
    options.weights_len = 2;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        options.weights = bad[i];
        refused(options, "weights");
    }
    options = defaults();
    options.kind = KVR_WORKLOAD_KEYS;
    options.weight_shift = 1e9;
    options.weight_power = 100;
    refused(options, "weights");
    options = defaults();
    options.kind = KVR_WORKLOAD_KEYS;
    options.whales = options.keys;
    refused(options, "whales");
    options = defaults();
    options.kind = KVR_WORKLOAD_KEYS;
    options.population = options.keys - 1;
    refused(options, "population");
    options.population = 1000;
    options.weight_cap = 0.0009; /* a thousand of these are not all */
    refused(options, "weight_cap");
}

/* The law gives all that is not the whales' to no key at all; then they share it alike. */
static void test_whales_of_a_steep_law(void **state)
{
    (void)state;
    struct kvr_workload_options options = defaults();
    options.kind = KVR_WORKLOAD_KEYS;
    options.keys = 10;
    options.weight_shift = 0;
    options.weight_power = 100;
    options.whales = 2;
    options.whale_share = 0.5;
    struct kvr_workload *workload = make(&options);
    uint32_t seen[10] = {0};
    for (uint64_t i = 0; i < 4000; i++) {
        struct kvr_workload_request r;
        assert_true(kvr_workload_turn(workload, i, 0, &r));
        seen[r.session - 1]++;
    }
    for (uint32_t key = 0; key < 10; key++)
        near(seen[key], key < 2 ? 1000 : 250, 0.25);
    kvr_workload_destroy(workload);
}

/* Every 100 requests all weights take a step, whatever order requests are asked for in. */
static void test_drift(void **state)
{
    (void)state;
    struct kvr_workload_options options = defaults();
    options.kind = KVR_WORKLOAD_KEYS;
    options.arrivals = KVR_ARRIVALS_RATE;
    options.rate = 10;
    options.keys = 400;
    struct kvr_workload *still = make(&options);
    options.drift_sigma = 0.3;
    options.drift_requests = 100;
    struct kvr_workload *workload = make(&options);
    static uint64_t sessions[2000];
    struct kvr_workload_request r, s;
    uint32_t moved = 0;
    for (uint32_t i = 0; i < 2000; i++) {
        assert_true(kvr_workload_turn(workload, i, 0, &r));
        assert_true(kvr_workload_turn(still, i, 0, &s));
        sessions[i] = r.session;
        moved += r.session != s.session;
        assert_true(i >= 100 || r.session == s.session);
        assert_int_equal(r.pieces[3].bytes, s.pieces[3].bytes); /* all else is as it was */
    }
    assert_true(moved > 1000);
    /* Nineteen steps: the logarithm of a weight has gone 0.3 sqrt(19) far. */
    double sum = 0, squares = 0;
    for (uint32_t key = 0; key < 400; key++) {
        double step =
            log(kvr_workload_key_share(workload, key)) - log(kvr_workload_key_share(still, key));
        sum += step / 400;
        squares += step * step / 400;
    }
    near(sqrt(squares - sum * sum), 0.3 * sqrt(19), 0.1);
    for (uint32_t i = 2000; i-- > 0; i -= i % 7) {
        assert_true(kvr_workload_turn(workload, i, 0, &r));
        assert_int_equal(r.session, sessions[i]);
    }
    kvr_workload_destroy(workload);
    kvr_workload_destroy(still);
    options.drift_requests = 0;
    assert_null(kvr_workload_create(&options, NULL));
}

static void test_lengths_of_keys(void **state)
{
    (void)state;
    struct kvr_workload_options options = defaults();
    options.kind = KVR_WORKLOAD_KEYS;
    options.bytes_per_token = 4;
    options.length_sigma = 0.7;
    struct kvr_workload *workload = make(&options);
    double logs = 0, squares = 0, all, one;
    for (uint32_t key = 0; key < 128; key++) {
        kvr_workload_key_tokens(workload, key, &all, &one);
        near(all / one, (180 + 42 * 2400) / 2580.0, 1e-9);
        logs += log(one / 2580) / 128;
        squares += log(one / 2580) * log(one / 2580) / 128;
    }
    assert_true(fabs(logs) < 0.2);
    near(sqrt(squares - logs * logs), 0.7, 0.2);
    for (uint32_t i = 0; i < 1000; i++) {
        struct kvr_workload_request r;
        assert_true(kvr_workload_turn(workload, i, 0, &r));
        kvr_workload_key_tokens(workload, (uint32_t)r.session - 1, &all, &one);
        near(r.pieces[1].bytes + r.pieces[2].bytes, 4 * one, 0.01);
        assert_int_equal(r.pieces[0].bytes, 17600); /* the template is everybody's */
    }
    kvr_workload_destroy(workload);
}

static struct kvr_workload_options threads(void)
{
    struct kvr_workload_options options = defaults();
    options.kind = KVR_WORKLOAD_KEYS;
    options.arrivals = KVR_ARRIVALS_RATE;
    options.rate = 20;
    options.gap_cv = 1;
    options.bytes_per_token = 4;
    options.thread_more = 0.493;
    return options;
}

/* All turns of a thread are about one key, and each begins with what was said before. */
static void test_turns_of_a_thread(void **state)
{
    (void)state;
    struct kvr_workload_options options = threads();
    options.variants = 1; /* what is in front of the turns does not change either */
    struct kvr_workload *workload = make(&options);
    uint64_t requests = 0, of_several = 0, longest = 0, n = 20000;
    for (uint64_t user = 0; user < n; user++) {
        static struct kvr_piece before[4096];
        uint32_t before_len = 0;
        uint64_t turns = 0, session = 0;
        struct kvr_workload_request r;
        for (; kvr_workload_turn(workload, user, turns, &r); turns++) {
            assert_true(turns == 0 || r.session == session);
            assert_int_equal(r.session_turn, turns + 1);
            assert_true(r.session_turns > turns);
            assert_int_equal(r.pieces_len, 4 + 2 * turns);
            for (uint32_t i = 0; i < before_len; i++)
                assert_true(same(&r.pieces[i], &before[i]));
            if (turns > 0)
                assert_int_equal(r.pieces[before_len].bytes, 48 * 4); /* the answer */
            session = r.session;
            before_len = r.pieces_len;
            memcpy(before, r.pieces, before_len * sizeof *before);
        }
        assert_true(turns > 0);
        requests += turns;
        of_several += turns > 1 ? turns : 0;
        longest = turns > longest ? turns : longest;
    }
    near((double)requests / (double)n, 1 + 0.493 / 0.3, 0.02);
    near((double)of_several / (double)requests, 0.808, 0.01);
    assert_true(longest > 15);
    kvr_workload_destroy(workload);
}

static void test_threads_refused(void **state)
{
    (void)state;
    struct kvr_workload_options options = threads();
    options.arrivals = KVR_ARRIVALS_CLOSED;
    refused(options, "thread_more");
    options = threads();
    options.kind = KVR_WORKLOAD_SESSIONS;
    refused(options, "thread_more");
    options = threads();
    options.thread_end = 0;
    refused(options, "thread_end");
    options = threads();
    options.thread_gap_ms = 0;
    refused(options, "thread_gap_ms");
    options = threads();
    options.rate_end = 30;
    options.ramp_ms = 1000;
    refused(options, "rate_end");
    options = threads();
    options.drift_sigma = 0.3;
    options.drift_requests = 100;
    refused(options, "drift_sigma");
    options = threads();
    options.thread_gap_ms = 1e9; /* a life of a month */
    options.rate = 1e5;
    refused(options, "threads before the start");
}

/* Times that no clock reaches do not come round to its start: they do not come. */
static void test_times_far_ahead(void **state)
{
    (void)state;
    const double times[] = {1, 1e300};
    struct kvr_workload_options options = defaults();
    options.arrivals = KVR_ARRIVALS_TIMES;
    options.times_ms = times;
    options.times_len = 2;
    struct kvr_workload *workload = make(&options);
    struct kvr_arrival arrival;
    assert_true(kvr_workload_next(workload, &arrival) && arrival.due_ns == 1000000);
    assert_false(kvr_workload_next(workload, &arrival));
    kvr_workload_destroy(workload);
}

/* Every knob that changes a byte changes the name. */
static void test_names(void **state)
{
    (void)state;
    char names[19][400];
    for (uint32_t i = 0; i < 19; i++) {
        struct kvr_workload_options options = defaults();
        options.working_set = i == 1 ? 3 : 1;
        options.skew = i == 2 ? 1.4 : 0;
        options.turns = i == 3 ? 5 : 4;
        options.user_bytes = i == 4 ? 1000 : 1792;
        options.system_share = i == 5 ? 0.31 : 0.3;
        options.branch_turns = i == 6 ? 2 : 1;
        options.early_share = i == 7 ? 0 : 0.2;
        options.users = i == 8 ? 33 : 32;
        options.think_ms = i == 9 ? 2 : 1;
        options.seed = i == 10 ? 2 : 1;
        options.epoch = i == 11;
        bool keys = i == 12 || i == 13 || i > 15;
        options.kind = keys ? KVR_WORKLOAD_KEYS : KVR_WORKLOAD_SESSIONS;
        options.variants = i == 13 ? 3 : 42;
        options.arrivals = i > 13 ? KVR_ARRIVALS_RATE : KVR_ARRIVALS_CLOSED;
        options.rate = 6;
        options.gap_cv = i == 15;
        options.thread_more = i > 16 ? 0.5 : 0;
        options.thread_gap_ms = i == 18 ? 100 : 30000;
        struct kvr_workload *workload = make(&options);
        const char *name = kvr_workload_name(workload);
        assert_true(strlen(name) < sizeof names[i]);
        strcpy(names[i], name);
        assert_string_equal(name, kvr_workload_name(workload));
        kvr_workload_destroy(workload);
        for (uint32_t k = 0; k < i; k++)
            assert_string_not_equal(names[i], names[k]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_turns_extend_each_other),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_working_sets),
        cmocka_unit_test(test_skew),
        cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_epochs_and_seeds),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_whales_and_weights),
        cmocka_unit_test(test_lognormal_rates),
        cmocka_unit_test(test_lognormal_output),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_weights_refused),
        cmocka_unit_test(test_whales_of_a_steep_law),
        cmocka_unit_test(test_drift),
        cmocka_unit_test(test_lengths_of_keys),
        cmocka_unit_test(test_turns_of_a_thread),
        cmocka_unit_test(test_threads_refused),
        cmocka_unit_test(test_times_far_ahead),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
