/* `kvroute ctl plan`: the plan of routing keys that is in force, and another one. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ctl_body.h"
#include "pick.h"
#include "table.h"

/* ---- showing ---- */

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static void print_origin(struct kvr_slice plan)
{
    if (kvr_pick(plan, "window_s").len && !isnan(kvr_pick_number(plan, "window_s")))
        printf("from %.0f s of traffic", kvr_pick_number(plan, "window_s"));
    else
        printf("from %s", kvr_pick_text(plan, "file").text);
    printf(", in force for %s\n", kvr_ctl_duration(kvr_pick_number(plan, "age_s")).text);
}

static void print_destinations(struct kvr_slice plan)
{
    struct kvr_table table;
    struct kvr_walk walk;
    double weight = 0, load = 0;
    for (kvr_walk_start(&walk, plan, "destinations"); kvr_walk_next(&walk);) {
        weight += fmax(0, kvr_pick_number(walk.item, "weight"));
        load += kvr_pick_number(walk.item, "load");
    }
    kvr_table_init(&table, "llrrrr");
    kvr_table_row(&table,
                  (const char *const[]){"", "REPLICA", "WEIGHT", "KEYS", "LOAD", "OF MEAN"});
    for (kvr_walk_start(&walk, plan, "destinations"); kvr_walk_next(&walk);) {
        double own = kvr_pick_number(walk.item, "weight");
        bool here = !isnan(own), rotates = kvr_pick_true(walk.item, "in_rotation");
        kvr_table_cell(&table, "%s", "");
        kvr_table_cell(&table, "%s%s", kvr_pick_text(walk.item, here ? "replica" : "id").text,
                       !here     ? " (has left)"
                       : rotates ? ""
                                 : " (away)");
        kvr_table_cell(&table, "%s", kvr_ctl_number(walk.item, "weight", 1, 2).text);
        kvr_table_cell(&table, "%s", kvr_ctl_number(walk.item, "keys", 1, 0).text);
        kvr_table_cell(&table, "%s", kvr_ctl_number(walk.item, "load", 1, 2).text);
        kvr_table_cell(&table, here && load > 0 ? "%.3f" : "-",
                       kvr_pick_number(walk.item, "load") * weight / (own * load));
    }
    kvr_table_print(&table, stdout, KVR_TABLE_WIDTH);
    kvr_table_deinit(&table);
}

/* Where there is more than one. */
static void print_models(struct kvr_slice plan)
{
    struct kvr_table table;
    struct kvr_walk walk;
    double all = kvr_pick_number(plan, "models_all"), shown = 0;
    if (!(all > 1))
        return;
    kvr_table_init(&table, "llrrr");
    kvr_table_row(&table, (const char *const[]){"", "MODEL", "KEYS", "COPIES", "REPLICAS"});
    for (kvr_walk_start(&walk, plan, "models"); kvr_walk_next(&walk); shown++) {
        struct kvr_picked name = kvr_pick_text(walk.item, "model");
        bool known = kvr_pick(walk.item, "model").data[0] == '"';
        kvr_table_cell(&table, "%s", "");
        kvr_table_cell(&table, "%s",
                       name.text[0] ? name.text
                       : known      ? "(none named)"
                                    : "(not asked for)");
        kvr_table_cell(&table, "%s", kvr_ctl_number(walk.item, "keys", 1, 0).text);
        kvr_table_cell(&table, "%s", kvr_ctl_number(walk.item, "copies", 1, 0).text);
        kvr_table_cell(&table, "%s", kvr_ctl_number(walk.item, "destinations", 1, 0).text);
    }
    kvr_table_print(&table, stdout, KVR_TABLE_WIDTH);
    kvr_table_deinit(&table);
    if (shown < all)
        printf("  and %.0f models with fewer keys\n", all - shown);
}

static void print_plan(struct kvr_slice plan)
{
    double admitted_rate = kvr_pick_number(plan, "admitted_rate");
    double rate = admitted_rate + kvr_pick_number(plan, "tail_rate");
    printf("%s of %s keys, with %.1f %% of the rate of %.4g/s; %s split, %s copies; ",
           kvr_ctl_number(plan, "admitted", 1, 0).text, kvr_ctl_number(plan, "keys", 1, 0).text,
           percent(admitted_rate, rate), rate, kvr_ctl_number(plan, "split", 1, 0).text,
           kvr_ctl_number(plan, "copies", 1, 0).text);
    printf("imbalance %.3f\n", kvr_pick_number(plan, "imbalance"));
    print_origin(plan);
    print_models(plan);
    print_destinations(plan);
}

static void print_change(struct kvr_slice last)
{
    printf("  churn %.1f %% of placements: %s kept, %s added, %s removed; of %s keys in both %s "
           "moved\n",
           100 * kvr_pick_number(last, "change.churn"),
           kvr_ctl_number(last, "change.kept", 1, 0).text,
           kvr_ctl_number(last, "change.added", 1, 0).text,
           kvr_ctl_number(last, "change.removed", 1, 0).text,
           kvr_ctl_number(last, "change.keys_both", 1, 0).text,
           kvr_ctl_number(last, "change.keys_moved", 1, 0).text);
}

static void print_last(struct kvr_slice last)
{
    static const struct {
        const char *result;
        const char *words;
    } words[] = {{"installed", "was installed"},
                 {"same", "changed nothing"},
                 {"not_worth", "was not worth it"},
                 {"withheld", "was withheld"},
                 {"failed", "failed"}};
    const char *became = "";
    struct kvr_picked result = kvr_pick_text(last, "result");
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i].result, result.text) == 0)
            became = words[i].words;
    printf("the last planning, %s ago, %s; it took %.1f ms\n",
           kvr_ctl_duration(kvr_pick_number(last, "age_s")).text, became,
           kvr_pick_number(last, "made_ms"));
    if (kvr_pick_text(last, "why").text[0])
        printf("  %s\n", kvr_pick_text(last, "why").text);
    if (strcmp(result.text, "failed") != 0)
        print_change(last);
}

static void print_decisions(struct kvr_slice answer)
{
    printf("decisions: %s as planned, %s elsewhere, %s of keys without a place\n",
           kvr_ctl_number(answer, "decisions.planned", 1, 0).text,
           kvr_ctl_number(answer, "decisions.planned_away", 1, 0).text,
           kvr_ctl_number(answer, "decisions.unplanned", 1, 0).text);
}

static void show_plan(struct kvr_slice answer)
{
    struct kvr_slice plan = kvr_pick(answer, "plan"), last = kvr_pick(answer, "last");
    bool planned = kvr_pick(plan, "keys").len > 0;
    double interval = kvr_pick_number(answer, "interval_s");
    if (planned)
        print_plan(plan);
    else
        puts("no plan is in force");
    if (kvr_pick_text(answer, "withheld").text[0])
        printf("WITHHELD: %s; kvroute ctl plan on lets plans come again\n",
               kvr_pick_text(answer, "withheld").text);
    if (kvr_pick(last, "result").len)
        print_last(last);
    if (planned)
        print_decisions(answer);
    if (interval > 0)
        printf("a plan is made every %g s\n", interval);
    else
        puts("plans are made when asked for: kvroute ctl plan now (plan.interval_s is 0)");
    if (!kvr_pick_true(answer, "needed"))
        puts("no policy in force needs a plan, as cacheroute does");
}

/* ---- asking ---- */

static int load(struct kvr_ctl *ctl, const char *file)
{
    struct kvr_ctl_body body;
    kvr_ctl_body_begin(&body);
    kvr_ctl_put_file(&body.json, file);
    return kvr_ctl_body_send(&body, KVR_CTL_OK, ctl, "/admin/plan", show_plan);
}

static int withhold(struct kvr_ctl *ctl, const char *why)
{
    struct kvr_ctl_body body;
    kvr_ctl_body_begin(&body);
    if (why)
        kvr_json_text(&body.json, "why", why);
    return kvr_ctl_body_send(&body, KVR_CTL_OK, ctl, "/admin/plan/off", show_plan);
}

int kvr_ctl_run_plan(struct kvr_ctl *ctl, int argc, char **argv)
{
    const char *what = argc ? argv[0] : "";
    if (argc == 0)
        return kvr_ctl_look(ctl, "/admin/plan", show_plan);
    if (strcmp(what, "now") == 0 && argc == 1)
        return kvr_ctl_do(ctl, "POST", "/admin/plan/now", kvr_slice_make("", 0), show_plan);
    if (strcmp(what, "on") == 0 && argc == 1)
        return kvr_ctl_do(ctl, "POST", "/admin/plan/on", kvr_slice_make("", 0), show_plan);
    if (strcmp(what, "load") == 0 && argc == 2)
        return load(ctl, argv[1]);
    if (strcmp(what, "off") == 0 && argc <= 2)
        return withhold(ctl, argc == 2 ? argv[1] : NULL);
    return kvr_ctl_usage("plan takes now, load FILE, off [WHY], on, or nothing");
}
