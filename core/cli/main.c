/* kvroute: one binary, one subcommand a task. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "command.h"

static const struct kvr_command *const commands[] = {
    &kvr_command_serve,     &kvr_command_replica, &kvr_command_fleet,  &kvr_command_load,
    &kvr_command_calibrate, &kvr_command_ctl,     &kvr_command_run,    &kvr_command_compare,
    &kvr_command_rescore,   &kvr_command_floor,   &kvr_command_import, &kvr_command_plan,
    &kvr_command_gate,
};

#define COMMANDS (sizeof commands / sizeof commands[0])

static void print_help(FILE *to)
{
    fputs("Usage: kvroute COMMAND [OPTION...]\n\n"
          "An ingress for fleets of OpenAI-compatible inference engines, routed by Lua policies,\n"
          "and a laboratory for these.\n\nCommands:\n",
          to);
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\n  --help     this text; kvroute COMMAND --help for that of a command\n"
          "  --version  the version\n",
          to);
}

/* What a command prints is its result, and one that is not written, to a full disk for instance,
 * was not given. Of servers it is a word of greeting. */
static int run(const struct kvr_command *command, int argc, char **argv)
{
    bool serves = command == &kvr_command_serve || command == &kvr_command_replica ||
                  command == &kvr_command_fleet;
    int status = command->run(argc, argv);
    if (serves || (fflush(stdout) == 0 && !ferror(stdout)))
        return status;
    fprintf(stderr, "kvroute %s: stdout cannot be written: %s\n", command->name, strerror(errno));
    return KVR_EXIT_FAILED;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        print_help(stdout);
        return KVR_EXIT_OK;
    }
    if (strcmp(name, "--version") == 0) {
        puts("kvroute " KVR_VERSION);
        return KVR_EXIT_OK;
    }
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(name, commands[i]->name) == 0)
            return run(commands[i], argc - 1, argv + 1);
    if (*name)
        fprintf(stderr, "kvroute: there is no command \"%s\"\n\n", name);
    print_help(stderr);
    return KVR_EXIT_USAGE;
}
