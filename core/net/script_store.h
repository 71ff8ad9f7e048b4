/* Which script is in force for which role, by name, and its file kept in step: a saved file is
 * read, checked and put in force; one that is bad is refused and named, and what was in force
 * stays.
 *
 * Scripts are named as script_file.h says. Params given with a name override the file's own over
 * all its reloads. */
#ifndef KVR_SCRIPT_STORE_H
#define KVR_SCRIPT_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"
#include "loop.h"
#include "reloader.h"
#include "router.h"

#define KVR_SCRIPT_PARAMS_LIST 32

struct kvr_script_choice {
    char name[KVR_SCRIPT_NAME_MAX];
    char path[KVR_SCRIPT_PATH_MAX];                         /* empty: none chosen */
    struct kvr_script_param params[KVR_SCRIPT_PARAMS_LIST]; /* owned copies */
    uint32_t params_count;
    uint64_t loaded_ns;  /* of the generation in force */
    uint64_t refused_ns; /* of the last refusal; 0 none since the last load */
};

struct kvr_script_store {
    struct kvr_router *router;
    struct kvr_reloader reloader;
    char dir[KVR_SCRIPT_PATH_MAX];
    struct kvr_script_choice choices[KVR_ROLES]; /* by role */
    bool spill_chosen; /* by the operator; else it follows the policy's default */
    bool quiet;        /* refusals are not logged: who asked tells of them */
    uint64_t reloads, refusals;
};

/* A script to come: a name, and params over its own. */
struct kvr_script_wish {
    struct kvr_slice name;
    struct kvr_script_param params[KVR_SCRIPT_PARAMS_LIST];
    uint32_t params_count;
};

void kvr_script_store_start(struct kvr_script_store *store, struct kvr_loop *loop,
                            struct kvr_router *router, const char *dir);
void kvr_script_store_close(struct kvr_script_store *store, void *context,
                            void (*on_closed)(void *context));

/* Puts the named script in force. On failure nothing changes and `error` says why, with file and
 * line. Choosing a policy also puts its default spill rule in force, unless one was chosen; a
 * shadow has its own beside it. An empty name for the spill role goes back to the policy's default;
 * for the canary and for shadows it turns them off. */
int kvr_script_store_choose(struct kvr_script_store *store, enum kvr_script_role role,
                            struct kvr_slice name, const struct kvr_script_param *params,
                            uint32_t count, struct kvr_error *error);
/* Replaces all shadows by these, in order; none turns them off. All or nothing: each is checked
 * with its spill rule before the first is put in force. */
int kvr_script_store_set_shadows(struct kvr_script_store *store,
                                 const struct kvr_script_wish *wishes, uint32_t count,
                                 struct kvr_error *error);
/* Changes params of what is in force; they stay over reloads. */
int kvr_script_store_set_params(struct kvr_script_store *store, enum kvr_script_role role,
                                const struct kvr_script_param *params, uint32_t count,
                                struct kvr_error *error);
/* Puts "WHAT: " before the reason of a failure, where there is one. Returns `rc`. */
int kvr_script_store_blame(int rc, const char *what, struct kvr_error *error);
/* Reads all files again now. The first failure is in `error`; the others stay in their slots. */
int kvr_script_store_reload(struct kvr_script_store *store, struct kvr_error *error);

#endif
