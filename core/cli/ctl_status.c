#include "ctl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pick.h"
#include "table.h"

#define LABEL_WIDTH 12

static struct kvr_ctl_text count(struct kvr_slice json, const char *path)
{
    struct kvr_ctl_text out;
    snprintf(out.text, sizeof out.text, "%.0f", kvr_pick_number(json, path));
    return out;
}

static void label(const char *text)
{
    printf("%-*s ", LABEL_WIDTH - 1, text);
}

/* "name 3, name 4", those above 0, wrapped; `none` when there are none. */
static void print_counts(struct kvr_slice json, const char *path, const char *none)
{
    struct kvr_walk walk;
    uint32_t column = LABEL_WIDTH;
    bool first = true;
    for (kvr_walk_start(&walk, json, path); kvr_walk_next(&walk);) {
        char item[128];
        if (kvr_slice_is(walk.item, "0"))
            continue;
        int len = snprintf(item, sizeof item, "%.*s %.*s", (int)walk.key.len, walk.key.data,
                           (int)walk.item.len, walk.item.data);
        if (!first) {
            bool wrap = column + (uint32_t)len + 2 > KVR_TABLE_WIDTH;
            printf(wrap ? ",\n%*s" : ", %*s", wrap ? LABEL_WIDTH : 0, "");
            column = wrap ? LABEL_WIDTH : column + 2;
        }
        fputs(item, stdout);
        column += (uint32_t)len;
        first = false;
    }
    puts(first ? none : "");
}

static void show_process(struct kvr_slice answer)
{
    struct kvr_walk walk;
    label("kvroute");
    printf("%s, up %s, pid %s, %s resident%s\n", kvr_pick_text(answer, "version").text,
           kvr_ctl_duration(kvr_pick_number(answer, "uptime_s")).text, count(answer, "pid").text,
           kvr_ctl_bytes(kvr_pick_number(answer, "rss_bytes")).text,
           kvr_pick_true(answer, "draining") ? ", DRAINING: it is about to end" : "");
    for (kvr_walk_start(&walk, answer, "listeners"); kvr_walk_next(&walk);) {
        label("listens on");
        printf("%s: %s clients, %s accepted, %s refused\n",
               kvr_pick_text(walk.item, "address").text, count(walk.item, "open").text,
               count(walk.item, "accepted").text, count(walk.item, "refused").text);
    }
}

static void show_scripts(struct kvr_slice answer)
{
    struct kvr_walk walk;
    for (kvr_walk_start(&walk, answer, "scripts"); kvr_walk_next(&walk);) {
        char role[32];
        struct kvr_slice script = walk.item;
        snprintf(role, sizeof role, "%.*s", (int)walk.key.len, walk.key.data);
        label(role);
        if (strlen(role) >= LABEL_WIDTH) /* of a shadow's spill rule */
            printf("\n%*s", LABEL_WIDTH, "");
        if (kvr_slice_is(script, "null")) {
            puts("none");
            continue;
        }
        printf("%s, generation %s%s%s%s", kvr_pick_text(script, "name").text,
               count(script, "generation").text, kvr_pick(script, "params").len > 2 ? ", " : "",
               kvr_pick_text(script, "params").text,
               kvr_pick_true(script, "quarantined") ? ", QUARANTINED" : "");
        if (strcmp(role, "canary") == 0)
            printf(", %g %% of %s", kvr_pick_number(answer, "canary_share") * 100,
                   kvr_pick_true(answer, "canary_by_key") ? "routing keys" : "sessions");
        puts("");
        if (kvr_pick(script, "error").len > 4)
            printf("%*s%s\n", LABEL_WIDTH, "", kvr_pick_text(script, "error").text);
    }
}

static void show_gate(struct kvr_slice gate)
{
    if (kvr_pick(gate, "candidate").len == 0)
        return;
    label("gate");
    printf("of %s", kvr_pick_text(gate, "candidate").text);
    if (kvr_pick(gate, "left.reason").len)
        printf(", LEFT %s ago by %s: %s decides until a new gate\n",
               kvr_ctl_duration(kvr_pick_number(gate, "left.age_s")).text,
               kvr_pick_text(gate, "left.reason").text, kvr_pick_text(gate, "baseline").text);
    else
        printf(", kept; %s\n", kvr_pick_text(gate, "covers").text[0]
                                   ? "what was judged is in force"
                                   : "what acts is NOT what was judged, see ctl gate");
}

static void show_latency(struct kvr_slice answer)
{
    static const char *const names[] = {"overhead", "ttft", "total"};
    label("ms");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[48];
        snprintf(path, sizeof path, "requests.%s", names[i]);
        struct kvr_slice latency = kvr_pick(answer, path);
        printf("%s%s ", i ? "; " : "", names[i]);
        if (kvr_pick_number(latency, "count") > 0)
            printf("p50 %.4g, p99 %.4g", kvr_pick_number(latency, "p50_ms"),
                   kvr_pick_number(latency, "p99_ms"));
        else
            fputs("-", stdout);
    }
    puts("");
}

/* "97.5 %"; "-" of nothing. */
static struct kvr_ctl_text percent(struct kvr_slice json, const char *part, const char *whole)
{
    struct kvr_ctl_text out;
    double of = kvr_pick_number(json, whole);
    if (of > 0)
        snprintf(out.text, sizeof out.text, "%.1f %%", 100 * kvr_pick_number(json, part) / of);
    else
        snprintf(out.text, sizeof out.text, "-");
    return out;
}

static void put_reason(bool *any, double times, const char *what)
{
    if (!(times > 0))
        return;
    if (*any)
        fputs(", ", stdout);
    else
        label("at the door");
    printf("%s %.0f", what, times);
    *any = true;
}

/* What was refused before it could be routed; nothing when nothing was. */
static void show_door(struct kvr_slice answer)
{
    struct kvr_walk walk;
    bool any = false;
    double unread = 0;
    for (kvr_walk_start(&walk, answer, "listeners"); kvr_walk_next(&walk);)
        unread += kvr_pick_number(walk.item, "refused_requests");
    put_reason(&any, kvr_pick_number(answer, "client_keys.absent"), "no key");
    put_reason(&any, kvr_pick_number(answer, "client_keys.unknown"), "unknown key");
    put_reason(&any, kvr_pick_number(answer, "client_keys.limited"), "client's limit");
    put_reason(&any, kvr_pick_number(answer, "exchanges.bad_bodies"), "bad body");
    put_reason(&any, unread, "bad head or size");
    if (any)
        puts("");
}

static void show_requests(struct kvr_slice answer)
{
    label("requests");
    printf("%s received, %s open, %s of them waiting for a replica\n",
           count(answer, "requests.received").text, count(answer, "requests.open").text,
           count(answer, "requests.waiting").text);
    label("ended");
    print_counts(answer, "requests.outcomes", "none");
    label("refused");
    print_counts(answer, "requests.rejections", "none");
    show_door(answer);
    label("decisions");
    print_counts(answer, "decisions.reasons", "none");
    printf("%*s%s spills, %s moves, %s fallbacks, %s by the canary\n", LABEL_WIDTH, "",
           count(answer, "decisions.spills").text, count(answer, "decisions.moves").text,
           count(answer, "decisions.fallbacks").text, count(answer, "decisions.canary").text);
    show_latency(answer);
    label("tokens");
    printf("%s prompt (%s cached), %s output\n", count(answer, "tokens.prompt").text,
           percent(answer, "tokens.cached", "tokens.prompt").text,
           count(answer, "tokens.output").text);
    label("belief");
    printf("%s of %s predicted tokens honoured, over %s, under %s\n",
           percent(answer, "belief.honoured_tokens", "belief.predicted_tokens").text,
           count(answer, "belief.predicted_tokens").text, count(answer, "belief.over_tokens").text,
           count(answer, "belief.under_tokens").text);
}

void kvr_ctl_show_status(struct kvr_slice answer)
{
    show_process(answer);
    label("replicas");
    printf("%s members, %s in rotation, %s down, %s draining; %s in flight\n",
           count(answer, "replicas.members").text, count(answer, "replicas.in_rotation").text,
           count(answer, "replicas.down").text, count(answer, "replicas.draining").text,
           count(answer, "replicas.in_flight").text);
    show_scripts(answer);
    show_gate(kvr_pick(answer, "gate"));
    show_requests(answer);
    label("index");
    printf("%s of %s blocks, %s beliefs, ", count(answer, "index.blocks").text,
           count(answer, "index.blocks_max").text, count(answer, "index.beliefs").text);
    printf("%s reserved of %s\n", kvr_ctl_bytes(kvr_pick_number(answer, "index.bytes")).text,
           kvr_ctl_bytes(kvr_pick_number(answer, "index.bytes_max")).text);
    label("rows");
    if (kvr_pick(answer, "rows.path").len == 0)
        puts("off");
    else
        printf("%s written, %s dropped%s, to %s\n", count(answer, "rows.written").text,
               count(answer, "rows.dropped").text,
               kvr_pick_true(answer, "rows.failing") ? ", FAILING" : "",
               kvr_pick_text(answer, "rows.path").text);
}
