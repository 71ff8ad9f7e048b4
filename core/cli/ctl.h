/* `kvroute ctl`: talks to the admin interface of a running `kvroute serve` and shows what it says.
 *
 *   ctl.c          options and help
 *   ctl_command.c  the table of commands, and what each asks for
 *   ctl_fleet.c    those that change the fleet
 *   ctl_body.c     requests made of arguments
 *   ctl_client.c   one request and its answer, or an exit code
 *   ctl_shadow.c   shadows, and what they would have done
 *   ctl_plan.c     the plan of routing keys
 *   ctl_gate.c     what vouches for the policy in force
 *   ctl_explain.c  what would happen to a request
 *   ctl_show.c     answers as tables and lines for people
 *   ctl_status.c   the same for the summary */
#ifndef KVR_CTL_H
#define KVR_CTL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "buffer.h"
#include "options.h"
#include "slice.h"

enum kvr_ctl_exit {
    KVR_CTL_OK = 0,
    KVR_CTL_REFUSED = 1,     /* the router answered with an error, or a wait was in vain */
    KVR_CTL_USAGE = 2,       /* the command line makes no sense */
    KVR_CTL_UNREACHABLE = 3, /* no answer, or none of an admin interface */
};

struct kvr_ctl {
    const char *admin;              /* as given: host:port, also with http:// */
    const char *token;              /* NULL: none */
    bool json;                      /* show answers as they are */
    double wait_s;                  /* for drain and remove; negative: do not wait */
    const char *path;               /* for explain; NULL: the default */
    struct kvr_option_list headers; /* for explain: "Name: value" */
    char host[256];                 /* host:port of `admin` */
    struct sockaddr_storage address;
};

/* Options that only some commands know. */
enum kvr_ctl_knows { KVR_CTL_KNOWS_WAIT = 1, KVR_CTL_KNOWS_REQUEST = 2 };

struct kvr_ctl_command {
    const char *name;
    const char *arguments; /* for the usage line */
    const char *help;      /* one line */
    const char *more;      /* further lines of its --help; "" none */
    int min, max;          /* arguments; max -1: any number */
    unsigned knows;        /* enum kvr_ctl_knows */
    /* `argv` are its arguments alone. Returns an enum kvr_ctl_exit. */
    int (*run)(struct kvr_ctl *ctl, int argc, char **argv);
};

/* Ends with one whose name is NULL. */
extern const struct kvr_ctl_command kvr_ctl_commands[];

int kvr_ctl_run_add(struct kvr_ctl *ctl, int argc, char **argv);
int kvr_ctl_run_remove(struct kvr_ctl *ctl, int argc, char **argv);
int kvr_ctl_run_drain(struct kvr_ctl *ctl, int argc, char **argv);
int kvr_ctl_run_restore(struct kvr_ctl *ctl, int argc, char **argv);
int kvr_ctl_run_weight(struct kvr_ctl *ctl, int argc, char **argv);
int kvr_ctl_run_shadow(struct kvr_ctl *ctl, int argc, char **argv);
int kvr_ctl_run_gate(struct kvr_ctl *ctl, int argc, char **argv);
int kvr_ctl_run_plan(struct kvr_ctl *ctl, int argc, char **argv);
int kvr_ctl_run_explain(struct kvr_ctl *ctl, int argc, char **argv);

/* ---- the client ---- */

/* Fills host and address. KVR_CTL_USAGE or KVR_CTL_UNREACHABLE after a message on stderr. */
int kvr_ctl_resolve(struct kvr_ctl *ctl);
/* One request. KVR_CTL_OK with the body of an answer below 300 in `body`; else another code after a
 * message on stderr. */
int kvr_ctl_ask(struct kvr_ctl *ctl, const char *method, const char *path, struct kvr_slice request,
                struct kvr_buffer *body);

/* ---- showing, all on stdout ---- */

void kvr_ctl_show_replicas(struct kvr_slice answer);
void kvr_ctl_show_replica(struct kvr_slice answer);
void kvr_ctl_show_scripts(struct kvr_slice answer);
void kvr_ctl_show_index(struct kvr_slice answer);
void kvr_ctl_show_requests(struct kvr_slice answer);
void kvr_ctl_show_status(struct kvr_slice answer);

/* "1.5 GiB"; "3 d 04:05:06". At once, as with kvr_pick_text. */
struct kvr_ctl_text {
    char text[48];
};
/* A number of the answer, times `factor`; "-" when there is none. */
struct kvr_ctl_text kvr_ctl_number(struct kvr_slice json, const char *path, double factor,
                                   int decimals);
struct kvr_ctl_text kvr_ctl_bytes(double bytes);
struct kvr_ctl_text kvr_ctl_duration(double seconds);

#endif
