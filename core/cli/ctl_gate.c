/* `kvroute ctl gate`: what vouches for the policy in force, and whether live traffic is still like
 * it. */
#include <stdio.h>
#include <string.h>

#include "ctl_body.h"
#include "pick.h"

static struct kvr_ctl_text share(struct kvr_slice json, const char *part, const char *whole)
{
    struct kvr_ctl_text out;
    double of = kvr_pick_number(json, whole);
    if (of > 0)
        snprintf(out.text, sizeof out.text, "%.2f %%", 100 * kvr_pick_number(json, part) / of);
    else
        snprintf(out.text, sizeof out.text, "-");
    return out;
}

static void print_window(struct kvr_slice gate, struct kvr_slice window, const char *name)
{
    printf("%s of %s s: %s requests, %s of known keys (at least %.2f %%);\n", name,
           kvr_ctl_number(gate, "window_s", 1, 1).text,
           kvr_ctl_number(window, "requests", 1, 0).text, share(window, "active", "requests").text,
           100 * kvr_pick_number(gate, "bounds.active_share"));
    printf("  %s guarded streams, %s of them with a first token after %s ms (at most 1 %%);\n",
           kvr_ctl_number(window, "streams.count", 1, 0).text,
           share(window, "streams.late", "streams.count").text,
           kvr_ctl_number(gate, "bounds.ttft_p99_ms", 1, 0).text);
    printf("  %s guarded whole answers, %s of them later than that and %s ms a token more (1 %%)\n",
           kvr_ctl_number(window, "wholes.count", 1, 0).text,
           share(window, "wholes.late", "wholes.count").text,
           kvr_ctl_number(gate, "bounds.token_ms", 1, 1).text);
}

static void show_gate(struct kvr_slice answer)
{
    struct kvr_slice gate = kvr_pick(answer, "gate"), left = kvr_pick(gate, "left");
    if (kvr_pick(gate, "candidate").len == 0) {
        puts("no gate is in force: nothing is guarded");
        return;
    }
    printf("gate of %s against %s, %s keys, in force for %s\n",
           kvr_pick_text(gate, "candidate").text, kvr_pick_text(gate, "against").text,
           kvr_ctl_number(gate, "keys", 1, 0).text,
           kvr_ctl_duration(kvr_pick_number(gate, "age_s")).text);
    printf("from %s\n", kvr_pick_text(gate, "file").text);
    if (kvr_pick_text(gate, "covers").text[0])
        printf("what was judged is in force as %s\n", kvr_pick_text(gate, "covers").text);
    else
        printf("what acts is NOT what was judged:\n  %s\n", kvr_pick_text(gate, "differs").text);
    if (!kvr_pick_true(gate, "baseline_judged"))
        printf(
            "the baseline %s, with its params and spill rule, is not what it was judged against\n",
            kvr_pick_text(gate, "baseline").text);
    if (kvr_pick(left, "reason").len) {
        printf("LEFT %s ago by %s: %s decides until a new gate, %s requests so far\n",
               kvr_ctl_duration(kvr_pick_number(left, "age_s")).text,
               kvr_pick_text(left, "reason").text, kvr_pick_text(gate, "baseline").text,
               kvr_ctl_number(answer, "baseline_requests", 1, 0).text);
        print_window(gate, kvr_pick(left, "window"), "then, the window");
    }
    print_window(gate, kvr_pick(gate, "window"), "now, the window");
}

static int load(struct kvr_ctl *ctl, const char *file)
{
    struct kvr_ctl_body body;
    kvr_ctl_body_begin(&body);
    kvr_ctl_put_file(&body.json, file);
    return kvr_ctl_body_send(&body, KVR_CTL_OK, ctl, "/admin/gate", show_gate);
}

int kvr_ctl_run_gate(struct kvr_ctl *ctl, int argc, char **argv)
{
    if (argc == 0)
        return kvr_ctl_look(ctl, "/admin/gate", show_gate);
    if (strcmp(argv[0], "off") == 0)
        return kvr_ctl_do(ctl, "POST", "/admin/gate/off", kvr_slice_make("", 0), show_gate);
    return load(ctl, argv[0]);
}
