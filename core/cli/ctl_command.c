#include <stdio.h>
#include <string.h>

#include "ctl_body.h"
#include "pick.h"

/* ---- looking ---- */

static int run_status(struct kvr_ctl *ctl, int argc, char **argv)
{
    (void)argc, (void)argv;
    return kvr_ctl_look(ctl, "/admin/status", kvr_ctl_show_status);
}

static int run_replicas(struct kvr_ctl *ctl, int argc, char **argv)
{
    (void)argc, (void)argv;
    return kvr_ctl_look(ctl, "/admin/replicas", kvr_ctl_show_replicas);
}

static int run_scripts(struct kvr_ctl *ctl, int argc, char **argv)
{
    (void)argc, (void)argv;
    return kvr_ctl_look(ctl, "/admin/scripts", kvr_ctl_show_scripts);
}

static int run_index(struct kvr_ctl *ctl, int argc, char **argv)
{
    (void)argc, (void)argv;
    return kvr_ctl_look(ctl, "/admin/index", kvr_ctl_show_index);
}

static int run_requests(struct kvr_ctl *ctl, int argc, char **argv)
{
    (void)argc, (void)argv;
    return kvr_ctl_look(ctl, "/admin/requests", kvr_ctl_show_requests);
}

static void show_page(struct kvr_slice page)
{
    fwrite(page.data, 1, page.len, stdout);
}

static int run_metrics(struct kvr_ctl *ctl, int argc, char **argv)
{
    (void)argc, (void)argv;
    ctl->json = false; /* it is no JSON */
    return kvr_ctl_look(ctl, "/metrics", show_page);
}

/* ---- scripts ---- */

static int run_policy(struct kvr_ctl *ctl, int argc, char **argv)
{
    struct kvr_ctl_body body;
    if (argc == 0)
        return run_scripts(ctl, argc, argv);
    kvr_ctl_body_begin(&body);
    kvr_ctl_put_script(&body.json, argv[0]);
    int rc = kvr_ctl_put_params(&body.json, argc - 1, argv + 1);
    return kvr_ctl_body_send(&body, rc, ctl, "/admin/policy", kvr_ctl_show_scripts);
}

static int run_spill(struct kvr_ctl *ctl, int argc, char **argv)
{
    struct kvr_ctl_body body;
    if (argc == 0)
        return run_scripts(ctl, argc, argv);
    kvr_ctl_body_begin(&body);
    kvr_ctl_put_script(&body.json, strcmp(argv[0], "default") == 0 ? "" : argv[0]);
    int rc = kvr_ctl_put_params(&body.json, argc - 1, argv + 1);
    return kvr_ctl_body_send(&body, rc, ctl, "/admin/spill", kvr_ctl_show_scripts);
}

static int run_canary(struct kvr_ctl *ctl, int argc, char **argv)
{
    bool off = strcmp(argv[0], "off") == 0;
    struct kvr_ctl_body body;
    if (off ? argc > 1 : argc < 2)
        return kvr_ctl_usage("canary takes NAME SHARE [KEY=VALUE ...], or off");
    kvr_ctl_body_begin(&body);
    kvr_ctl_put_script(&body.json, off ? "" : argv[0]);
    int rc = KVR_CTL_OK;
    if (!off) {
        kvr_ctl_put_value(&body.json, "share", kvr_slice_of(argv[1]));
        rc = kvr_ctl_put_params(&body.json, argc - 2, argv + 2);
    }
    return kvr_ctl_body_send(&body, rc, ctl, "/admin/canary", kvr_ctl_show_scripts);
}

static int run_set(struct kvr_ctl *ctl, int argc, char **argv)
{
    struct kvr_ctl_body body;
    kvr_ctl_body_begin(&body);
    kvr_json_text(&body.json, "role", argv[0]);
    int rc = kvr_ctl_put_params(&body.json, argc - 1, argv + 1);
    return kvr_ctl_body_send(&body, rc, ctl, "/admin/params", kvr_ctl_show_scripts);
}

static int run_reload(struct kvr_ctl *ctl, int argc, char **argv)
{
    (void)argc, (void)argv;
    return kvr_ctl_do(ctl, "POST", "/admin/reload", kvr_slice_make("", 0), kvr_ctl_show_scripts);
}

static void show_level(struct kvr_slice answer)
{
    printf("log level is %s\n", kvr_pick_text(answer, "level").text);
}

static int run_log(struct kvr_ctl *ctl, int argc, char **argv)
{
    (void)argc;
    struct kvr_ctl_body body;
    kvr_ctl_body_begin(&body);
    kvr_json_text(&body.json, "level", argv[0]);
    return kvr_ctl_body_send(&body, KVR_CTL_OK, ctl, "/admin/log", show_level);
}

/* ---- the table ---- */

#define NAMES "REPLICA is a name as `replicas` shows it, the URL it was added by, or its id."

const struct kvr_ctl_command kvr_ctl_commands[] = {
    {"status", "", "a summary of everything", "", 0, 0, 0, run_status},
    {"replicas", "", "the fleet: states, loads, what the engines say",
     "FLIGHT: requests it holds, counted by the router. TOKENS: of their prompts, believed not to "
     "be\n"
     "cached and before the first token. BLOCKS: believed to be cached there. RUN, "
     "WAIT,\n"
     "KV%: as its engine says.",
     0, 0, 0, run_replicas},
    {"add", "URL [KEY=VALUE ...]", "adds a replica",
     "Keys: weight, capacity (0: unlimited), rank, any_model, models=A,B and key, its bearer\n"
     "token; key=@FILE takes the first line of a file, so that no list of processes shows it.",
     1, -1, 0, kvr_ctl_run_add},
    {"remove", "REPLICA", "takes a replica out; open requests on it end by themselves", NAMES, 1, 1,
     KVR_CTL_KNOWS_WAIT, kvr_ctl_run_remove},
    {"drain", "REPLICA", "no new requests to a replica", NAMES, 1, 1, KVR_CTL_KNOWS_WAIT,
     kvr_ctl_run_drain},
    {"restore", "REPLICA", "the reverse of drain", NAMES, 1, 1, 0, kvr_ctl_run_restore},
    {"weight", "REPLICA WEIGHT", "sets a replica's share of the load", NAMES, 2, 2, 0,
     kvr_ctl_run_weight},
    {"policy", "[NAME [KEY=VALUE ...]]", "puts a routing policy in force, with these params",
     "NAME is a file of the policies folder without .lua, or a path with a slash, from here. "
     "Without\n"
     "NAME: what is in force, and which there are.",
     0, -1, 0, run_policy},
    {"spill", "[NAME [KEY=VALUE ...]]", "puts a spill rule in force; default: the policy's own",
     "NAME is a file of the folder spill/ without .lua, a path with a slash, from here, or "
     "default.\n"
     "Without NAME: what is in force, and which there are.",
     0, -1, 0, run_spill},
    {"canary", "NAME SHARE [KEY=VALUE ...] | off",
     "lets a second policy decide a share of sessions", "SHARE is above 0 and up to 1.", 1, -1, 0,
     run_canary},
    {"shadow", "[NAME [KEY=VALUE ...] ...] | off",
     "what other policies would have done; sets which",
     "Up to 4 policies, each with params. They see each live request and do not act. Counted "
     "since\n"
     "one of the scripts that are compared changed. MATCH: of the prompt tokens, believed to be\n"
     "cached. Beliefs and loads are what the acting policy made of them.",
     0, -1, 0, kvr_ctl_run_shadow},
    {"plan", "[now | load FILE | off [WHY] | on]",
     "which replicas routing keys go to; makes another plan",
     "now: a plan from the traffic so far. load: from a file as kvroute plan --out writes it, "
     "whose\n"
     "destinations are names of replicas. off: the plan goes, and none comes until on. LOAD: "
     "requests\n"
     "a second that the plan expects there, OF MEAN: by weight. Policies need a plan as "
     "cacheroute\n"
     "does.",
     0, 2, 0, kvr_ctl_run_plan},
    {"gate", "[FILE | off]", "what vouches for the policy in force; loads another",
     "FILE as kvroute gate --out writes it. When live traffic leaves its envelope, the baseline\n"
     "decides, until another FILE is loaded. off: nothing is guarded, the policy decides again.",
     0, 1, 0, kvr_ctl_run_gate},
    {"explain", "FILE", "what would happen to a request, and why; sends nothing",
     "FILE holds a request's body; - is stdin. The scripts in force are asked: that counts as "
     "calls\n"
     "of theirs, and moves their random numbers on.",
     1, 1, KVR_CTL_KNOWS_REQUEST, kvr_ctl_run_explain},
    {"set", "ROLE KEY=VALUE ...", "changes params of what is in force",
     "ROLE is policy, spill, canary, shadow_N or shadow_N_spill.", 2, -1, 0, run_set},
    {"reload", "", "reads all scripts again", "", 0, 0, 0, run_reload},
    {"scripts", "", "what is in force, and what went wrong", "", 0, 0, 0, run_scripts},
    {"index", "", "the prefix index", "", 0, 0, 0, run_index},
    {"requests", "", "open requests, the oldest first",
     "ID: the end of it, where it is long; --json has all. OUT: bytes of the answer so far.", 0, 0,
     0, run_requests},
    {"log", "LEVEL", "sets the log level: error, warn, info, debug", "", 1, 1, 0, run_log},
    {"metrics", "", "the Prometheus page", "", 0, 0, 0, run_metrics},
    {0},
};
