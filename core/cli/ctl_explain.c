#include <stdio.h>
#include <string.h>

#include "ctl_body.h"
#include "file.h"
#include "json_reader.h"
#include "pick.h"
#include "replica.h"
#include "table.h"

#define LABEL_WIDTH   10
#define PLANNED_SHOWN 3                   /* replicas of a key in the plan */
#define FILE_MAX      ((size_t)256 << 20) /* what the router takes is its own business */

/* ---- the request ---- */

static int read_file(const char *path, struct kvr_buffer *text)
{
    struct kvr_error error = {0};
    int rc = strcmp(path, "-") == 0
                 ? kvr_file_read_rest(stdin, "standard input", FILE_MAX, text, &error)
                 : kvr_file_read_given(path, FILE_MAX, text, &error);
    return rc ? kvr_ctl_usage("%s", error.text) : KVR_CTL_OK;
}

/* The text must be one JSON value: it becomes part of another. */
static int put_body(struct kvr_json_writer *json, const char *path, struct kvr_slice text)
{
    struct kvr_json_reader reader;
    struct kvr_slice value;
    kvr_json_reader_init(&reader, text);
    if (kvr_json_skip(&reader, &value) && kvr_json_finish(&reader)) {
        kvr_json_raw(json, "body", value);
        return KVR_CTL_OK;
    }
    return kvr_ctl_usage("%s is no JSON: %s at byte %zu", path, reader.reason,
                         kvr_json_offset(&reader));
}

static int put_headers(struct kvr_json_writer *json, const struct kvr_option_list *headers)
{
    kvr_json_object_begin(json, "headers");
    for (uint32_t i = 0; i < headers->len; i++) {
        char name[256];
        const char *header = headers->items[i];
        const char *colon = strchr(header, ':');
        if (!colon || colon == header || (size_t)(colon - header) >= sizeof name)
            return kvr_ctl_usage("\"%s\" is not NAME: VALUE", header);
        snprintf(name, sizeof name, "%.*s", (int)(colon - header), header);
        kvr_json_string(json, name, kvr_slice_trim(kvr_slice_of(colon + 1)));
    }
    kvr_json_object_end(json);
    return KVR_CTL_OK;
}

/* ---- showing ---- */

static void label(const char *text)
{
    printf("%-*s", LABEL_WIDTH, text);
}

static void print_script(struct kvr_slice script)
{
    printf("%s, gen %s", kvr_pick_text(script, "name").text,
           kvr_ctl_number(script, "generation", 1, 0).text);
}

static void print_target(struct kvr_slice json)
{
    printf("%s by %s, match %s blocks", kvr_pick_text(json, "replica").text,
           kvr_pick_text(json, "reason").text, kvr_ctl_number(json, "match_blocks", 1, 0).text);
}

static void print_error(struct kvr_slice script)
{
    if (kvr_pick(script, "error").len > 4)
        printf("%*s%s\n", LABEL_WIDTH, "", kvr_pick_text(script, "error").text);
}

static void show_request(struct kvr_slice answer)
{
    label("request");
    printf("%s", kvr_pick_text(answer, "endpoint").text);
    if (kvr_pick(answer, "model").len > 2)
        printf(", model %.80s", kvr_pick_text(answer, "model").text);
    if (kvr_pick(answer, "session").len > 4)
        printf(", session by %s", kvr_pick_text(answer, "session_source").text);
    if (!kvr_pick_true(answer, "routed"))
        fputs(", not routed by policy", stdout);
    printf("%s\n", kvr_pick_true(answer, "canary") ? ", canary" : "");
    label("prompt");
    printf("%s blocks, %s bytes, about %s tokens\n",
           kvr_ctl_number(answer, "request.chain_len", 1, 0).text,
           kvr_ctl_number(answer, "request.prompt_bytes", 1, 0).text,
           kvr_ctl_number(answer, "request.prompt_tokens", 1, 0).text);
}

/* Where the plan has the request's key; nothing is said of a key that it does not have. */
static void show_plan(struct kvr_slice answer)
{
    struct kvr_walk walk;
    unsigned count = 0;
    if (kvr_pick_number(answer, "view.planned") != 1)
        return;
    label("plan");
    for (kvr_walk_start(&walk, answer, "candidates"); kvr_walk_next(&walk);) {
        if (kvr_pick_number(walk.item, "assigned") != 1)
            continue;
        if (++count <= PLANNED_SHOWN)
            printf("%s%s", count > 1 ? ", " : "", kvr_pick_text(walk.item, "replica").text);
    }
    if (count > PLANNED_SHOWN)
        printf(" and %u more", count - PLANNED_SHOWN);
    puts(count ? "" : "none of its replicas is a candidate");
}

static void show_policy(struct kvr_slice answer)
{
    struct kvr_slice policy = kvr_pick(answer, "policy");
    label("policy");
    if (kvr_pick(policy, "name").len == 0) {
        puts("not asked");
        return;
    }
    print_script(policy);
    fputs(": ", stdout);
    if (strcmp(kvr_pick_text(policy, "verdict").text, "pick") == 0) {
        print_target(policy);
        puts(kvr_pick_true(policy, "affine") ? ", for its cache" : "");
    } else {
        puts(kvr_pick_text(policy, "verdict").text);
    }
    print_error(policy);
}

static void show_spill(struct kvr_slice answer)
{
    struct kvr_slice spill = kvr_pick(answer, "spill");
    label("spill");
    if (kvr_pick(spill, "name").len == 0) {
        puts("none");
        return;
    }
    print_script(spill);
    if (!kvr_pick_true(spill, "asked")) {
        puts(": not asked");
    } else if (strcmp(kvr_pick_text(spill, "verdict").text, "move") == 0) {
        fputs(": moves it to ", stdout);
        print_target(spill);
        puts("");
    } else {
        puts(": stays");
    }
    print_error(spill);
}

static void show_outcome(struct kvr_slice answer)
{
    struct kvr_picked outcome = kvr_pick_text(answer, "outcome");
    label("outcome");
    if (strcmp(outcome.text, "dispatch") == 0) {
        print_target(answer);
        puts(kvr_pick_true(answer, "fallback") ? "; by the fallback, no script decided" : "");
    } else if (strcmp(outcome.text, "wait") == 0) {
        puts("waits for a replica");
    } else {
        printf("refused: %s\n", kvr_pick_text(answer, "rejection").text);
    }
}

static void show_shadows(struct kvr_slice answer)
{
    struct kvr_walk walk;
    for (kvr_walk_start(&walk, answer, "shadow"); kvr_walk_next(&walk);) {
        label(kvr_pick_text(walk.item, "role").text);
        print_script(walk.item);
        fputs(": ", stdout);
        if (kvr_pick(walk.item, "replica").len > 4)
            print_target(walk.item);
        else
            fputs(kvr_pick_text(walk.item, "verdict").text, stdout);
        puts("");
        print_error(walk.item);
    }
}

/* As the view counts states: one word while all is well. */
static void put_state(struct kvr_table *table, struct kvr_slice row)
{
    unsigned operational = (unsigned)kvr_pick_number(row, "operational");
    unsigned administrative = (unsigned)kvr_pick_number(row, "administrative");
    bool known = operational <= KVR_UP && administrative <= KVR_READY;
    bool ready = administrative == KVR_READY;
    kvr_table_cell(
        table, "%s%s%s%s", known ? kvr_operational_name((enum kvr_operational)operational) : "?",
        ready ? "" : "+",
        ready || !known ? "" : kvr_administrative_name((enum kvr_administrative)administrative),
        kvr_pick_true(row, "available") ? "" : " (no)");
}

static void put_candidate(struct kvr_table *table, struct kvr_slice row, const char *target,
                          const char *preferred)
{
    static const struct {
        const char *field;
        double factor;
        int decimals;
    } columns[] = {{"match_blocks", 1, 0},    {"in_flight", 1, 0}, {"load", 1, 2},
                   {"uncached_tokens", 1, 0}, {"ttft_ms", 1, 0},   {"running", 1, 0},
                   {"waiting", 1, 0},         {"kv_usage", 100, 0}};
    struct kvr_picked name = kvr_pick_text(row, "replica");
    kvr_table_cell(table, "%s",
                   strcmp(name.text, target) == 0      ? ">"
                   : strcmp(name.text, preferred) == 0 ? "x"
                                                       : "");
    kvr_table_cell(table, "%s", name.text);
    put_state(table, row);
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++)
        kvr_table_cell(
            table, "%s",
            kvr_ctl_number(row, columns[i].field, columns[i].factor, columns[i].decimals).text);
}

static void show_candidates(struct kvr_slice answer)
{
    struct kvr_table table;
    struct kvr_walk walk;
    struct kvr_picked target = kvr_pick_text(answer, "replica");
    struct kvr_picked preferred = kvr_pick_text(answer, "policy.replica");
    if (kvr_pick_number(answer, "view.count") == 0.0)
        return;
    puts("");
    kvr_table_init(&table, "lllrrrrrrrr");
    kvr_table_row(&table, (const char *const[]){"", "REPLICA", "STATE", "MATCH", "FLIGHT", "LOAD",
                                                "TOKENS", "TTFT", "RUN", "WAIT", "KV%"});
    for (kvr_walk_start(&walk, answer, "candidates"); kvr_walk_next(&walk);)
        put_candidate(&table, walk.item, target.text, preferred.text);
    kvr_table_print(&table, stdout, KVR_TABLE_WIDTH);
    kvr_table_deinit(&table);
}

static void show_explanation(struct kvr_slice answer)
{
    show_request(answer);
    show_plan(answer);
    show_policy(answer);
    show_spill(answer);
    show_outcome(answer);
    show_shadows(answer);
    show_candidates(answer);
}

int kvr_ctl_run_explain(struct kvr_ctl *ctl, int argc, char **argv)
{
    (void)argc;
    struct kvr_ctl_body body;
    struct kvr_buffer text = {0};
    kvr_ctl_body_begin(&body);
    if (ctl->path)
        kvr_json_text(&body.json, "path", ctl->path);
    int rc = put_headers(&body.json, &ctl->headers);
    if (rc == KVR_CTL_OK)
        rc = read_file(argv[0], &text);
    if (rc == KVR_CTL_OK)
        rc = put_body(&body.json, argv[0], kvr_buffer_slice(&text));
    kvr_buffer_deinit(&text);
    return kvr_ctl_body_send(&body, rc, ctl, "/admin/explain", show_explanation);
}
