#include "ctl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pick.h"
#include "table.h"

#define ID_SHOWN_MAX 16

/* ---- numbers ---- */

struct kvr_ctl_text kvr_ctl_bytes(double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    struct kvr_ctl_text out;
    unsigned unit = 0;
    for (; bytes >= 1024 && unit < 4; unit++)
        bytes /= 1024;
    snprintf(out.text, sizeof out.text, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return out;
}

struct kvr_ctl_text kvr_ctl_duration(double seconds)
{
    struct kvr_ctl_text out;
    unsigned long s = seconds > 0 ? (unsigned long)seconds : 0;
    if (isnan(seconds))
        snprintf(out.text, sizeof out.text, "-");
    else if (s < 100)
        snprintf(out.text, sizeof out.text, "%.1f s", seconds);
    else if (s < 86400)
        snprintf(out.text, sizeof out.text, "%lu:%02lu:%02lu", s / 3600, s / 60 % 60, s % 60);
    else
        snprintf(out.text, sizeof out.text, "%lu d %lu:%02lu", s / 86400, s / 3600 % 24,
                 s / 60 % 60);
    return out;
}

struct kvr_ctl_text kvr_ctl_number(struct kvr_slice json, const char *path, double factor,
                                   int decimals)
{
    struct kvr_ctl_text out;
    double value = kvr_pick_number(json, path) * factor;
    if (isnan(value))
        snprintf(out.text, sizeof out.text, "-");
    else
        snprintf(out.text, sizeof out.text, "%.*f", decimals, value);
    return out;
}

/* ---- the fleet ---- */

/* One word while all is well: what the operator says only where it is not "ready". */
static void put_state(struct kvr_table *table, struct kvr_slice replica)
{
    struct kvr_picked administrative = kvr_pick_text(replica, "administrative");
    bool ready = strcmp(administrative.text, "ready") == 0;
    kvr_table_cell(table, "%s%s%s", kvr_pick_text(replica, "operational").text, ready ? "" : "+",
                   ready ? "" : administrative.text);
}

static void put_replica(struct kvr_table *table, struct kvr_slice replica)
{
    kvr_table_cell(table, "%s", kvr_pick_text(replica, "name").text);
    put_state(table, replica);
    kvr_table_cell(table, "%s", kvr_pick_text(replica, "weight").text);
    kvr_table_cell(table, "%s", kvr_ctl_number(replica, "in_flight", 1, 0).text);
    kvr_table_cell(table, "%s", kvr_ctl_number(replica, "uncached_tokens", 1, 0).text);
    kvr_table_cell(table, "%s", kvr_ctl_number(replica, "requests", 1, 0).text);
    kvr_table_cell(table, "%s", kvr_ctl_number(replica, "ttft_ms", 1, 0).text);
    kvr_table_cell(table, "%s", kvr_ctl_number(replica, "error_rate", 100, 0).text);
    kvr_table_cell(table, "%s", kvr_ctl_number(replica, "index_blocks", 1, 0).text);
    kvr_table_cell(table, "%s", kvr_ctl_number(replica, "engine.running", 1, 0).text);
    kvr_table_cell(table, "%s", kvr_ctl_number(replica, "engine.waiting", 1, 0).text);
    kvr_table_cell(table, "%s", kvr_ctl_number(replica, "engine.kv_usage", 100, 0).text);
}

void kvr_ctl_show_replicas(struct kvr_slice answer)
{
    static const char *const headers[] = {"REPLICA", "STATE",  "WEIGHT",  "FLIGHT",
                                          "TOKENS",  "SERVED", "TTFT_MS", "ERR%",
                                          "BLOCKS",  "RUN",    "WAIT",    "KV%"};
    struct kvr_table table;
    struct kvr_walk walk;
    kvr_table_init(&table, "llrrrrrrrrrr");
    kvr_table_row(&table, headers);
    for (kvr_walk_start(&walk, answer, "replicas"); kvr_walk_next(&walk);)
        put_replica(&table, walk.item);
    kvr_table_print(&table, stdout, KVR_TABLE_WIDTH);
    kvr_table_deinit(&table);
}

void kvr_ctl_show_replica(struct kvr_slice answer)
{
    printf("%s is %s and %s, weight %s, %s in flight\n", kvr_pick_text(answer, "name").text,
           kvr_pick_text(answer, "operational").text, kvr_pick_text(answer, "administrative").text,
           kvr_pick_text(answer, "weight").text, kvr_ctl_number(answer, "in_flight", 1, 0).text);
}

/* ---- scripts ---- */

static void put_script(struct kvr_table *table, struct kvr_slice script)
{
    bool in_force = kvr_pick_true(script, "in_force");
    kvr_table_cell(table, "%s", kvr_pick_text(script, "role").text);
    kvr_table_cell(table, "%s", in_force ? kvr_pick_text(script, "name").text : "(none)");
    kvr_table_cell(table, "%s", kvr_ctl_number(script, "generation", 1, 0).text);
    kvr_table_cell(table, "%s", kvr_pick_text(script, "hash").text);
    kvr_table_cell(table, "%s", kvr_ctl_duration(kvr_pick_number(script, "loaded_s")).text);
    kvr_table_cell(table, "%s", kvr_ctl_number(script, "since_chosen.calls", 1, 0).text);
    kvr_table_cell(table, "%s", kvr_ctl_number(script, "since_chosen.failed", 1, 0).text);
    kvr_table_cell(table, "%s", kvr_ctl_number(script, "since_chosen.refused", 1, 0).text);
    kvr_table_cell(table, "%s",
                   kvr_pick_true(script, "quarantined") ? "quarantined"
                   : in_force                           ? "in force"
                                                        : "-");
}

/* What does not fit a table. */
static void print_details(struct kvr_slice script)
{
    struct kvr_picked role = kvr_pick_text(script, "role");
    double share = kvr_pick_number(script, "share");
    if (kvr_pick_true(script, "in_force")) {
        printf("%s: %s\n", role.text, kvr_pick_text(script, "path").text);
        if (kvr_pick(script, "params").len > 2)
            printf("  params: %s\n", kvr_pick_text(script, "params").text);
        if (share > 0)
            printf("  share: %g %% of sessions\n", share * 100);
    }
    if (kvr_pick_true(script, "quarantined"))
        printf("  %s is quarantined: the fallback decides until a repaired file is saved\n",
               role.text);
    if (kvr_pick(script, "error").len > 4) {
        double ago = kvr_pick_number(script, "refused_s");
        if (isnan(ago))
            printf("  %s failed: %s\n", role.text, kvr_pick_text(script, "error").text);
        else
            printf("  %s refused %s ago: %s\n", role.text, kvr_ctl_duration(ago).text,
                   kvr_pick_text(script, "error").text);
    }
}

/* "policies: a, b", wrapped. */
static void print_names(struct kvr_slice answer, const char *key)
{
    struct kvr_walk walk;
    int column = printf("%s:", strcmp(key, "policies") == 0 ? "policies" : "spill rules");
    for (kvr_walk_start(&walk, answer, key); kvr_walk_next(&walk);) {
        struct kvr_picked name = kvr_pick_text(walk.item, "");
        bool wrap = column + 1 + (int)strlen(name.text) > KVR_TABLE_WIDTH;
        column = (wrap ? 0 : column) + printf(wrap ? "\n  %s" : " %s", name.text);
    }
    puts("");
}

void kvr_ctl_show_scripts(struct kvr_slice answer)
{
    static const char *const headers[] = {"ROLE",  "SCRIPT", "GEN",     "HASH", "AGE",
                                          "CALLS", "FAILED", "REFUSED", "STATE"};
    struct kvr_table table;
    struct kvr_walk walk;
    kvr_table_init(&table, "llrlrrrrl");
    kvr_table_row(&table, headers);
    for (kvr_walk_start(&walk, answer, "scripts"); kvr_walk_next(&walk);)
        put_script(&table, walk.item);
    kvr_table_print(&table, stdout, KVR_TABLE_WIDTH);
    kvr_table_deinit(&table);
    for (kvr_walk_start(&walk, answer, "scripts"); kvr_walk_next(&walk);)
        print_details(walk.item);
    print_names(answer, "policies");
    print_names(answer, "spill_rules");
    if (kvr_pick_true(answer, "lua_off"))
        printf("Lua is off until a restart: %s VMs were left behind\n",
               kvr_pick_text(answer, "abandoned_vms").text);
}

/* ---- index and requests ---- */

void kvr_ctl_show_index(struct kvr_slice answer)
{
    printf("%s of %s blocks of %s bytes, %s beliefs, %s",
           kvr_ctl_number(answer, "blocks", 1, 0).text,
           kvr_ctl_number(answer, "blocks_max", 1, 0).text,
           kvr_ctl_number(answer, "block_bytes", 1, 0).text,
           kvr_ctl_number(answer, "beliefs", 1, 0).text,
           kvr_ctl_bytes(kvr_pick_number(answer, "bytes")).text);
    printf(" reserved of %s%s\n", kvr_ctl_bytes(kvr_pick_number(answer, "bytes_max")).text,
           kvr_pick_true(answer, "in_use") ? "" : "; no script in force uses it");
    printf("%s matches, %s admissions, %s withdrawals, %s purges\n",
           kvr_ctl_number(answer, "counters.matches", 1, 0).text,
           kvr_ctl_number(answer, "counters.admissions", 1, 0).text,
           kvr_ctl_number(answer, "counters.withdrawals", 1, 0).text,
           kvr_ctl_number(answer, "counters.purges", 1, 0).text);
    printf("beliefs ended: %s expired, %s purged, %s by capacity, %s by overflow, %s withdrawn\n\n",
           kvr_ctl_number(answer, "ended.expired", 1, 0).text,
           kvr_ctl_number(answer, "ended.purged", 1, 0).text,
           kvr_ctl_number(answer, "ended.capacity", 1, 0).text,
           kvr_ctl_number(answer, "ended.overflow", 1, 0).text,
           kvr_ctl_number(answer, "ended.withdrawn", 1, 0).text);
    struct kvr_table table;
    struct kvr_walk walk;
    kvr_table_init(&table, "lr");
    kvr_table_row(&table, (const char *const[]){"REPLICA", "BLOCKS"});
    for (kvr_walk_start(&walk, answer, "replicas"); kvr_walk_next(&walk);) {
        kvr_table_cell(&table, "%s", kvr_pick_text(walk.item, "name").text);
        kvr_table_cell(&table, "%s", kvr_ctl_number(walk.item, "blocks", 1, 0).text);
    }
    kvr_table_print(&table, stdout, KVR_TABLE_WIDTH);
    kvr_table_deinit(&table);
}

/* The ends of ids differ, where their beginnings are the process's. */
static void put_id(struct kvr_table *table, struct kvr_slice request)
{
    struct kvr_picked id = kvr_pick_text(request, "id");
    size_t len = strlen(id.text);
    bool all = len <= ID_SHOWN_MAX;
    kvr_table_cell(table, "%s%s", all ? "" : "~", id.text + (all ? 0 : len - (ID_SHOWN_MAX - 1)));
}

void kvr_ctl_show_requests(struct kvr_slice answer)
{
    static const char *const headers[] = {"ID",     "AGE",   "ENDPOINT", "MODEL", "REPLICA",
                                          "REASON", "PHASE", "MOVES",    "OUT"};
    struct kvr_table table;
    struct kvr_walk walk;
    double shown = 0;
    kvr_table_init(&table, "irlllllrr");
    kvr_table_row(&table, headers);
    for (kvr_walk_start(&walk, answer, "requests"); kvr_walk_next(&walk); shown++) {
        struct kvr_slice request = walk.item;
        put_id(&table, request);
        kvr_table_cell(&table, "%s",
                       kvr_ctl_duration(kvr_pick_number(request, "age_ms") / 1e3).text);
        kvr_table_cell(&table, "%s", kvr_pick_text(request, "endpoint").text);
        kvr_table_cell(&table, "%s", kvr_pick_text(request, "model").text);
        kvr_table_cell(&table, "%s", kvr_pick_text(request, "replica").text);
        kvr_table_cell(&table, "%s", kvr_pick_text(request, "reason").text);
        kvr_table_cell(&table, "%s", kvr_pick_text(request, "phase").text);
        kvr_table_cell(&table, "%s", kvr_ctl_number(request, "moves", 1, 0).text);
        kvr_table_cell(&table, "%s", kvr_ctl_number(request, "bytes_out", 1, 0).text);
    }
    kvr_table_print(&table, stdout, KVR_TABLE_WIDTH);
    kvr_table_deinit(&table);
    double open = kvr_pick_number(answer, "open");
    if (open > shown)
        printf("... and %.0f more\n", open - shown);
}
