/* The engine beside three measured runs of vLLM (experiments/data/vllm-measured): what it predicts
 * for the same requests. core/engine/README.md has the table that this prints. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "fit.h"
#include "measured_run.h"

/* ---- predicted beside measured ---- */

struct pair {
    double predicted;
    double measured;
};

static double error_of(struct pair pair)
{
    return pair.predicted / pair.measured - 1;
}

/* The quantile q of both, ms. */
static struct pair quantile(const double *predicted, const double *measured, uint32_t len, double q)
{
    return (struct pair){1e3 * measured_quantile(predicted, len, q),
                         1e3 * measured_quantile(measured, len, q)};
}

struct comparison {
    struct pair ttft; /* medians, ms */
    struct pair tpot;
};

/* Of requests [from, until): a row of the table. */
static struct comparison compare(const char *name, const struct measured_run *run,
                                 const struct predicted *predicted, uint32_t from, uint32_t until)
{
    double ttft_s[MEASURED_MAX], tpot_s[MEASURED_MAX], last_s[MEASURED_MAX];
    double ttft_errors[MEASURED_MAX], tpot_errors[MEASURED_MAX];
    uint32_t len = until - from;
    double tokens = 0;
    for (uint32_t i = 0; i < len; i++) {
        const struct measured_request *request = &run->requests[from + i];
        ttft_s[i] = request->ttft_s;
        tpot_s[i] = request->tpot_s;
        last_s[i] = request->last_s;
        ttft_errors[i] = fabs(predicted->ttft_s[from + i] / ttft_s[i] - 1);
        tpot_errors[i] = fabs(predicted->tpot_s[from + i] / tpot_s[i] - 1);
        tokens += request->output_tokens;
    }
    struct comparison all = {quantile(predicted->ttft_s + from, ttft_s, len, 0.5),
                             quantile(predicted->tpot_s + from, tpot_s, len, 0.5)};
    struct pair ttft_p90 = quantile(predicted->ttft_s + from, ttft_s, len, 0.9);
    struct pair end = quantile(predicted->last_s + from, last_s, len, 1);
    struct pair speed = {1e3 * tokens / end.predicted, 1e3 * tokens / end.measured};
    print_message("| %s | %.0f of %.0f, %+.1f %% | %.0f of %.0f, %+.1f %% | %.1f of %.1f, %+.1f %% "
                  "| %.0f of %.0f, %+.1f %% | %.1f %%, %.1f %% |\n",
                  name, all.ttft.predicted, all.ttft.measured, 100 * error_of(all.ttft),
                  ttft_p90.predicted, ttft_p90.measured, 100 * error_of(ttft_p90),
                  all.tpot.predicted, all.tpot.measured, 100 * error_of(all.tpot), speed.predicted,
                  speed.measured, 100 * error_of(speed),
                  100 * measured_quantile(ttft_errors, len, 0.5),
                  100 * measured_quantile(tpot_errors, len, 0.5));
    return all;
}

static void assert_within(struct comparison all, double bound)
{
    if (!(fabs(error_of(all.ttft)) <= bound && fabs(error_of(all.tpot)) <= bound))
        fail_msg("a median is off by more than %.0f %%", 100 * bound);
}

/* ---- a profile from kernel timings alone ---- */

#define KERNEL_LAYERS 32
#define KERNEL_ROWS   9000
#define KERNEL_SIZES  160

/* Times of one kernel by size, ascending. */
struct curve {
    double size[KERNEL_SIZES];
    double us[KERNEL_SIZES];
    uint32_t len;
};

static double curve_at(const struct curve *curve, double size)
{
    uint32_t i = 1;
    if (size <= curve->size[0])
        return curve->us[0];
    while (i + 1 < curve->len && curve->size[i] < size)
        i++;
    double part = (size - curve->size[i - 1]) / (curve->size[i] - curve->size[i - 1]);
    return curve->us[i - 1] + part * (curve->us[i] - curve->us[i - 1]);
}

/* Adds a file's kernels, each times how often a step runs it. */
static void read_curve(const char *name, struct curve *curve)
{
    FILE *file = measured_open(name);
    char line[128], kernel[32];
    double size, us;
    *curve = (struct curve){.len = 0};
    KVR_CHECK(fgets(line, sizeof line, file));
    while (fgets(line, sizeof line, file)) {
        KVR_CHECK(sscanf(line, "%31[^,],%lf,%lf", kernel, &size, &us) == 3);
        bool once = strcmp(kernel, "embedding") == 0 || strcmp(kernel, "final_layernorm") == 0 ||
                    strcmp(kernel, "lm_head") == 0 || strcmp(kernel, "sampler") == 0;
        double times = once                               ? 1
                       : strcmp(kernel, "layernorm") == 0 ? 2 * KERNEL_LAYERS
                                                          : KERNEL_LAYERS;
        uint32_t at = 0;
        while (at < curve->len && curve->size[at] != size)
            at++;
        KVR_CHECK(at < KERNEL_SIZES);
        if (at == curve->len)
            curve->size[curve->len++] = size;
        curve->us[at] += times * us;
    }
    fclose(file);
}

/* Decoding only, prefilling only, both. */
static int kind_of(const struct kvr_step_shape *step)
{
    return (step->prefill_tokens > 0) + 2 * (step->decoding > 0);
}

/* Each line of the attention table is a step; those that this engine could not take are left out.
 * Of 5,732 only 71 decode without prefilling, which is what an engine does most of the time: so the
 * three kinds count the same. (Line by line, medians of the run would be 16 % too high.) */
static uint32_t read_kernels(const struct kvr_profile *profile, struct kvr_fit_row *rows,
                             struct kvr_step_shape *steps)
{
    static struct curve dense, sequences;
    uint32_t len = 0;
    char line[128];
    read_curve("rtx4090_dense.csv", &dense);
    read_curve("rtx4090_per_sequence.csv", &sequences);
    FILE *file = measured_open("rtx4090_attention.csv");
    KVR_CHECK(fgets(line, sizeof line, file));
    while (fgets(line, sizeof line, file)) {
        unsigned chunk, before, decoding, context;
        double us;
        KVR_CHECK(sscanf(line, "%u,%u,%u,%u,%lf", &chunk, &before, &decoding, &context, &us) == 5);
        if (chunk + decoding > profile->max_num_batched_tokens || chunk + decoding == 0 ||
            chunk + before + decoding * context > profile->blocks * KVR_BLOCK_TOKENS)
            continue;
        KVR_CHECK(len < KERNEL_ROWS);
        steps[len] = (struct kvr_step_shape){
            .prefill_tokens = chunk,
            .prefill_context = (uint64_t)chunk * (2 * before + chunk),
            .decoding = decoding,
            .decode_context = (uint64_t)decoding * context,
        };
        double all_us = us * KERNEL_LAYERS + curve_at(&dense, chunk + decoding) +
                        curve_at(&sequences, decoding + (chunk > 0));
        rows[len] = (struct kvr_fit_row){.ms = all_us * 1e-3, .steps = &steps[len], .steps_len = 1};
        len++;
    }
    fclose(file);
    uint32_t kinds[4] = {0};
    for (uint32_t i = 0; i < len; i++)
        kinds[kind_of(&steps[i])]++;
    for (uint32_t i = 0; i < len; i++)
        rows[i].weight = (double)len / kinds[kind_of(&steps[i])];
    return len;
}

static void fit_kernels(struct kvr_profile *profile, enum kvr_step_form form)
{
    static struct kvr_fit_row rows[KERNEL_ROWS];
    static struct kvr_step_shape steps[KERNEL_ROWS];
    uint32_t len = read_kernels(profile, rows, steps);
    struct kvr_fit_report report;
    int failed = kvr_fit(rows, len, form, profile, &report);
    KVR_CHECK(!failed);
    print_message("%u steps: error median %.1f %%, p90 %.1f %%, worst %.1f %%\n", len,
                  100 * report.median, 100 * report.p90, 100 * report.worst);
    print_message("floor %.3f weights %.3f prefill step %.3f token %.5f context %.3g, seq %.4f "
                  "squared %.5f context %.3g\n",
                  profile->step_floor_ms, profile->weights_ms, profile->prefill_step_ms,
                  profile->prefill_token_ms, profile->prefill_context_ms, profile->decode_seq_ms,
                  profile->decode_seq_squared_ms, profile->decode_context_ms);
}

static struct kvr_profile settings(uint32_t blocks, uint32_t max_num_seqs)
{
    return (struct kvr_profile){
        .name = "measured",
        .bytes_per_token = 4,
        .blocks = blocks,
        .max_num_batched_tokens = 2048,
        .max_num_seqs = max_num_seqs,
        .max_model_len = 32768,
        .replicas = 1,
        .cache_generated = true,
    };
}

/* The built-in profile of that machine has these times, rounded. */
static void assert_built_in(const struct kvr_profile *fitted)
{
    const struct kvr_profile *built_in = kvr_profile_find(kvr_slice_of("rtx4090-8b-bf16"));
    const double pairs[][2] = {
        {fitted->step_floor_ms, built_in->step_floor_ms},
        {fitted->prefill_token_ms, built_in->prefill_token_ms},
        {fitted->prefill_context_ms, built_in->prefill_context_ms},
        {fitted->decode_seq_ms, built_in->decode_seq_ms},
        {fitted->decode_context_ms, built_in->decode_context_ms},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        assert_true(fabs(pairs[i][0] / pairs[i][1] - 1) < 0.01);
    assert_true(fitted->prefill_step_ms + fitted->decode_seq_squared_ms == 0);
    assert_int_equal(fitted->blocks, built_in->blocks);
}

static void test_rtx4090_from_kernels(void **state)
{
    (void)state;
    static struct measured_run run;
    static struct predicted predicted;
    measured_read("rtx4090_llama-3.1-8b.csv", &run);
    for (int form = 0; form < 2; form++) {
        struct kvr_profile profile = settings(2588, 256);
        fit_kernels(&profile, (enum kvr_step_form)form);
        if (form == KVR_STEP_LINEAR)
            assert_built_in(&profile);
        measured_predict(&run, &profile, 1, &predicted);
        assert_true(predicted.preemptions > 50); /* it is past what its cache can hold */
        assert_within(
            compare(form ? "RTX 4090, roofline" : "RTX 4090, linear", &run, &predicted, 0, run.len),
            0.08);
    }
}

/* ---- a profile from the first requests of a run ---- */

#define FITTED 100

/* Mean of the logarithms by which the fitted requests' times are wrong. */
static double loss(const struct measured_run *run, const struct kvr_profile *profile,
                   uint32_t replicas)
{
    static struct predicted predicted;
    double sum = 0;
    measured_predict(run, profile, replicas, &predicted);
    for (uint32_t i = 0; i < FITTED; i++) {
        sum += fabs(log(predicted.ttft_s[i] / run->requests[i].ttft_s));
        sum += fabs(log(predicted.tpot_s[i] / run->requests[i].tpot_s));
    }
    return sum / (2 * FITTED);
}

/* Moves one constant at a time, as long as that helps, in ever smaller strides. */
static void fit_requests(const struct measured_run *run, uint32_t replicas,
                         struct kvr_profile *profile)
{
    double *constants[] = {&profile->step_floor_ms, &profile->prefill_token_ms,
                           &profile->decode_seq_ms, &profile->decode_context_ms};
    double best = loss(run, profile, replicas);
    for (double stride = 0.5; stride > 0.01; stride /= 2) {
        for (bool moved = true; moved;) {
            moved = false;
            for (int i = 0; i < 8; i++) {
                double before = *constants[i / 2];
                *constants[i / 2] *= i % 2 ? 1 + stride : 1 / (1 + stride);
                double now = loss(run, profile, replicas);
                if (now < best) {
                    best = now;
                    moved = true;
                } else {
                    *constants[i / 2] = before;
                }
            }
        }
    }
    print_message("mean error %.1f %%: floor %.2f, token %.4f, seq %.3f, context %.2g\n",
                  100 * best, profile->step_floor_ms, profile->prefill_token_ms,
                  profile->decode_seq_ms, profile->decode_context_ms);
}

static void check_fitted(const char *name, uint32_t replicas, double bound)
{
    static struct measured_run run;
    static struct predicted predicted;
    char file[64];
    struct kvr_profile profile = settings(32000, 128);
    profile.step_floor_ms = 10;
    profile.prefill_token_ms = 0.05;
    profile.decode_seq_ms = 0.05;
    profile.decode_context_ms = 1e-4;
    snprintf(file, sizeof file, "%s.csv", name);
    measured_read(file, &run);
    fit_requests(&run, replicas, &profile);
    measured_predict(&run, &profile, replicas, &predicted);
    compare("fitted 0-99", &run, &predicted, 0, FITTED);
    assert_within(compare("predicted 100-299", &run, &predicted, FITTED, run.len), bound);
}

static void test_rtxpro_from_its_first_requests(void **state)
{
    (void)state;
    check_fitted("rtxpro6000_llama-3.1-8b", 1, 0.15);
}

static void test_mixture_of_experts(void **state)
{
    (void)state;
    check_fitted("rtxpro6000_qwen3-30b-a3b_dp2", 2, 0.25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rtx4090_from_kernels),
        cmocka_unit_test(test_rtxpro_from_its_first_requests),
        cmocka_unit_test(test_mixture_of_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
