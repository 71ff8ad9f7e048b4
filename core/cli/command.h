/* The subcommands of the binary: one file each, one extern each, one row in main.c. */
#ifndef KVR_COMMAND_H
#define KVR_COMMAND_H

/* What a program exits with. */
#define KVR_EXIT_OK     0
#define KVR_EXIT_FAILED 1 /* it was asked rightly and could not */
#define KVR_EXIT_USAGE  2 /* it was asked wrongly; stderr says how */

struct kvr_command {
    const char *name;
    const char *summary; /* one line, for kvroute --help */
    /* argv[0] is the name of the command; returns the exit status. */
    int (*run)(int argc, char **argv);
};

extern const struct kvr_command kvr_command_serve;
extern const struct kvr_command kvr_command_replica;
extern const struct kvr_command kvr_command_fleet;
extern const struct kvr_command kvr_command_load;
extern const struct kvr_command kvr_command_calibrate;
extern const struct kvr_command kvr_command_ctl;
extern const struct kvr_command kvr_command_run;
extern const struct kvr_command kvr_command_import;
extern const struct kvr_command kvr_command_compare;
extern const struct kvr_command kvr_command_floor;
extern const struct kvr_command kvr_command_rescore;
extern const struct kvr_command kvr_command_plan;
extern const struct kvr_command kvr_command_gate;

#endif
