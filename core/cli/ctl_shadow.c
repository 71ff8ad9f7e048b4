#include <stdio.h>
#include <string.h>

#include "ctl_body.h"
#include "pick.h"
#include "table.h"

/* ---- showing ---- */

/* "p2c (generation 1), spill load_min"; "-" for none. */
static void print_scripts(struct kvr_slice scripts)
{
    if (kvr_pick(scripts, "policy.name").len == 0) {
        fputs("-", stdout);
        return;
    }
    printf("%s (generation %s)", kvr_pick_text(scripts, "policy.name").text,
           kvr_ctl_number(scripts, "policy.generation", 1, 0).text);
    if (kvr_pick(scripts, "policy.params").len > 2)
        printf(" %s", kvr_pick_text(scripts, "policy.params").text);
    if (kvr_pick(scripts, "spill.name").len)
        printf(", spill %s", kvr_pick_text(scripts, "spill.name").text);
}

static double share(struct kvr_slice json, const char *part, const char *whole)
{
    double of = kvr_pick_number(json, whole);
    return of > 0 ? 100 * kvr_pick_number(json, part) / of : 0;
}

static void print_summary(struct kvr_slice shadow, bool matching)
{
    printf("  %s decisions in %s: %.1f %% agreed, %s disagreed\n",
           kvr_ctl_number(shadow, "evaluated", 1, 0).text,
           kvr_ctl_duration(kvr_pick_number(shadow, "since_s")).text,
           share(shadow, "agreed", "evaluated"), kvr_ctl_number(shadow, "disagreed", 1, 0).text);
    printf("  of them %s spilled, %s by the fallback; %s more failed\n",
           kvr_ctl_number(shadow, "spilled", 1, 0).text,
           kvr_ctl_number(shadow, "fallbacks", 1, 0).text,
           kvr_ctl_number(shadow, "failed", 1, 0).text);
    if (!matching) {
        puts("  match: not looked up, no script in force needs it");
        return;
    }
    printf("  match: %.1f %% of %s prompt tokens where they went, %.1f %% where it would have sent "
           "them\n",
           share(shadow, "acting_match_tokens", "prompt_tokens"),
           kvr_ctl_number(shadow, "prompt_tokens", 1, 0).text,
           share(shadow, "match_tokens", "prompt_tokens"));
}

static void print_state(struct kvr_slice shadow, bool matching)
{
    if (kvr_pick_number(shadow, "evaluated") + kvr_pick_number(shadow, "failed") > 0)
        print_summary(shadow, matching);
    else
        puts("  no decision yet");
    if (kvr_pick_true(shadow, "quarantined"))
        puts("  QUARANTINED: it is asked nothing until its next good load");
    if (kvr_pick(shadow, "error").len > 4)
        printf("  %s\n", kvr_pick_text(shadow, "error").text);
}

static void print_replicas(struct kvr_slice shadow)
{
    struct kvr_table table;
    struct kvr_walk walk;
    kvr_table_init(&table, "llrrr");
    kvr_table_row(&table, (const char *const[]){"", "REPLICA", "ACTING", "SHADOW", "BOTH"});
    for (kvr_walk_start(&walk, shadow, "replicas"); kvr_walk_next(&walk);) {
        kvr_table_cell(&table, "%s", "");
        kvr_table_cell(&table, "%s", kvr_pick_text(walk.item, "name").text);
        kvr_table_cell(&table, "%s", kvr_ctl_number(walk.item, "acting", 1, 0).text);
        kvr_table_cell(&table, "%s", kvr_ctl_number(walk.item, "shadow", 1, 0).text);
        kvr_table_cell(&table, "%s", kvr_ctl_number(walk.item, "agreed", 1, 0).text);
    }
    kvr_table_print(&table, stdout, KVR_TABLE_WIDTH);
    kvr_table_deinit(&table);
}

/* Tokens a decision. */
static void put_mean(struct kvr_table *table, struct kvr_slice pair, const char *sum, bool known)
{
    if (known)
        kvr_table_cell(table, "%.0f", kvr_pick_number(pair, sum) / kvr_pick_number(pair, "count"));
    else
        kvr_table_cell(table, "%s", "-");
}

static void print_disagreements(struct kvr_slice shadow, bool matching)
{
    struct kvr_table table;
    struct kvr_walk walk;
    kvr_table_init(&table, "lllrrr");
    kvr_table_row(&table, (const char *const[]){"", "ACTING REASON", "SHADOW REASON", "TIMES",
                                                "ACTING MATCH", "SHADOW MATCH"});
    for (kvr_walk_start(&walk, shadow, "disagreements"); kvr_walk_next(&walk);) {
        kvr_table_cell(&table, "%s", "");
        kvr_table_cell(&table, "%s", kvr_pick_text(walk.item, "acting_reason").text);
        kvr_table_cell(&table, "%s", kvr_pick_text(walk.item, "reason").text);
        kvr_table_cell(&table, "%s", kvr_ctl_number(walk.item, "count", 1, 0).text);
        put_mean(&table, walk.item, "acting_match_tokens", matching);
        put_mean(&table, walk.item, "match_tokens", matching);
    }
    kvr_table_print(&table, stdout, KVR_TABLE_WIDTH);
    kvr_table_deinit(&table);
    double other = kvr_pick_number(shadow, "disagreements_other");
    if (other > 0)
        printf("  %.0f more for other pairs of reasons\n", other);
}

static void show_shadows(struct kvr_slice answer)
{
    struct kvr_walk walk;
    bool any = false, matching = kvr_pick_true(answer, "matching");
    double canary = 100 * kvr_pick_number(answer, "acting.canary_share");
    for (kvr_walk_start(&walk, answer, "shadows"); kvr_walk_next(&walk); any = true) {
        struct kvr_slice shadow = walk.item;
        printf("%s%s: ", any ? "\n" : "", kvr_pick_text(shadow, "role").text);
        print_scripts(shadow);
        fputs("\n  against ", stdout);
        print_scripts(kvr_pick(answer, "acting"));
        if (canary > 0 && kvr_pick(answer, "acting.canary.name").len)
            printf(", and for %g %% the canary %s", canary,
                   kvr_pick_text(answer, "acting.canary.name").text);
        puts("");
        print_state(shadow, matching);
        if (kvr_pick_number(shadow, "evaluated") > 0)
            print_replicas(shadow);
        if (kvr_pick_number(shadow, "disagreed") > 0)
            print_disagreements(shadow, matching);
    }
    puts(any ? "\nBiased: beliefs and loads are what the acting policy made of them. Matches are "
               "estimated tokens."
             : "no shadow is on");
}

/* ---- setting ---- */

/* NAME [KEY=VALUE ...], again and again. */
static int put_shadows(struct kvr_json_writer *json, int argc, char **argv)
{
    int rc = KVR_CTL_OK;
    for (int i = 0; rc == KVR_CTL_OK && i < argc;) {
        if (strchr(argv[i], '='))
            return kvr_ctl_usage("\"%s\" has no NAME before it", argv[i]);
        int params = 0;
        while (i + 1 + params < argc && strchr(argv[i + 1 + params], '='))
            params++;
        kvr_json_object_begin(json, NULL);
        kvr_ctl_put_script(json, argv[i]);
        rc = kvr_ctl_put_params(json, params, argv + i + 1);
        kvr_json_object_end(json);
        i += 1 + params;
    }
    return rc;
}

int kvr_ctl_run_shadow(struct kvr_ctl *ctl, int argc, char **argv)
{
    if (argc == 0)
        return kvr_ctl_look(ctl, "/admin/shadow", show_shadows);
    bool off = strcmp(argv[0], "off") == 0;
    if (off && argc > 1)
        return kvr_ctl_usage("shadow takes NAME [KEY=VALUE ...] ..., or off");
    struct kvr_ctl_body body;
    kvr_ctl_body_begin(&body);
    kvr_json_array_begin(&body.json, "shadows");
    int rc = off ? KVR_CTL_OK : put_shadows(&body.json, argc, argv);
    kvr_json_array_end(&body.json);
    return kvr_ctl_body_send(&body, rc, ctl, "/admin/shadow", show_shadows);
}
