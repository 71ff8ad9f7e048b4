#include "ctl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin.h"
#include "command.h"
#include "options.h"

static const struct kvr_ctl_command *find_command(const char *name)
{
    for (const struct kvr_ctl_command *command = kvr_ctl_commands; command->name; command++)
        if (strcmp(command->name, name) == 0)
            return command;
    return NULL;
}

/* The command that the line is about, before its options are read: help is the command's. */
static const struct kvr_ctl_command *guess_command(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const struct kvr_ctl_command *command = find_command(argv[i]);
        bool is_value = i > 1 && argv[i - 1][0] == '-' && !strchr(argv[i - 1], '=') &&
                        strcmp(argv[i - 1], "--json") != 0 && strcmp(argv[i - 1], "-j") != 0;
        if (command && !is_value)
            return command;
    }
    return NULL;
}

/* ---- help ---- */

struct texts {
    char command[32];
    char synopsis[96];
    char about[4096];
};

static void describe_all(struct texts *texts)
{
    size_t room = sizeof texts->about;
    size_t len = (size_t)snprintf(texts->about, room,
                                  "Looks at a running `kvroute serve`, and changes its fleet and "
                                  "its scripts.\n\nCommands:\n");
    for (const struct kvr_ctl_command *command = kvr_ctl_commands; command->name; command++) {
        char line[64];
        snprintf(line, sizeof line, "%s %s", command->name, command->arguments);
        len +=
            (size_t)snprintf(texts->about + len, room - len, "  %-39s %s\n", line, command->help);
    }
    len += (size_t)snprintf(texts->about + len, room - len,
                            "\nkvroute ctl COMMAND --help tells more of one. Exit codes: 0 done, 1 "
                            "refused, 2 usage,\n3 unreachable.");
    KVR_CHECK(len < room);
    snprintf(texts->command, sizeof texts->command, "ctl");
    snprintf(texts->synopsis, sizeof texts->synopsis, "[OPTION...] COMMAND [ARGUMENT...]");
}

static void describe(struct texts *texts, const struct kvr_ctl_command *command)
{
    if (!command) {
        describe_all(texts);
        return;
    }
    snprintf(texts->command, sizeof texts->command, "ctl %s", command->name);
    snprintf(texts->synopsis, sizeof texts->synopsis, "%s%s[OPTION...]", command->arguments,
             *command->arguments ? " " : "");
    snprintf(texts->about, sizeof texts->about, "%c%s.%s%s", command->help[0] - 'a' + 'A',
             command->help + 1, *command->more ? "\n\n" : "", command->more);
}

/* ---- the command line ---- */

/* Do the arguments fit the command? */
static int check(const struct kvr_usage *usage, const struct kvr_ctl *ctl,
                 const struct kvr_ctl_command *command, const struct kvr_operands *operands)
{
    if (operands->len == 0)
        return kvr_usage_error(usage, "a command is needed");
    if (!command || strcmp(operands->items[0], command->name) != 0)
        return kvr_usage_error(usage, "there is no command \"%s\"", operands->items[0]);
    int count = operands->len - 1;
    if (count < command->min || (command->max >= 0 && count > command->max))
        return kvr_usage_error(usage, "%s takes %s", command->name,
                               *command->arguments ? command->arguments : "no argument");
    if (ctl->wait_s >= 0 && !(command->knows & KVR_CTL_KNOWS_WAIT))
        return kvr_usage_error(usage, "%s does not wait", command->name);
    if ((ctl->path || ctl->headers.len) && !(command->knows & KVR_CTL_KNOWS_REQUEST))
        return kvr_usage_error(usage, "%s is not about a request", command->name);
    return KVR_CTL_OK;
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0)
            return true;
    return false;
}

/* The help of a command shows those options that it knows. */
static void keep_options(struct kvr_option *kept, const struct kvr_option *known,
                         const struct kvr_ctl_command *command)
{
    unsigned knows = command ? command->knows : ~0u;
    for (; known->name; known++) {
        bool wait = strcmp(known->name, "wait") == 0;
        bool request = strcmp(known->name, "path") == 0 || strcmp(known->name, "header") == 0;
        if ((!wait || (knows & KVR_CTL_KNOWS_WAIT)) &&
            (!request || (knows & KVR_CTL_KNOWS_REQUEST)))
            *kept++ = *known;
    }
    *kept = (struct kvr_option){0};
}

static int run(int argc, char **argv)
{
    const char *admin = getenv("KVROUTE_ADMIN");
    struct kvr_ctl ctl = {.admin = admin && *admin ? admin : KVR_ADMIN_LISTEN_DEFAULT,
                          .token = getenv("KVROUTE_TOKEN"),
                          .wait_s = -1};
    const struct kvr_option known[] = {
        {"admin", 'a', "ADDRESS",
         "admin interface ($KVROUTE_ADMIN, or " KVR_ADMIN_LISTEN_DEFAULT ")", KVR_OPTION_IS_TEXT,
         &ctl.admin, 0, 0, NULL},
        {"token", 't', "TOKEN",
         "its bearer token ($KVROUTE_TOKEN, which no list of processes\n"
         "shows)",
         KVR_OPTION_IS_TEXT, &ctl.token, 0, 0, NULL},
        {"json", 'j', NULL, "answers as they come, for programs", KVR_OPTION_IS_FLAG, &ctl.json, 0,
         0, NULL},
        {"wait", 'w', "SECONDS", "drain, remove: until nothing is in flight there, or exit 1",
         KVR_OPTION_IS_NUMBER, &ctl.wait_s, 0, 86400, NULL},
        {"path", 'p', "PATH", "explain: of the request (/v1/chat/completions)", KVR_OPTION_IS_TEXT,
         &ctl.path, 0, 0, NULL},
        {"header", 'H', "NAME: VALUE", "explain: of the request; repeatable", KVR_OPTION_IS_LIST,
         &ctl.headers, 0, 0, NULL},
        {0},
    };
    const struct kvr_ctl_command *command = guess_command(argc, argv);
    struct texts texts;
    describe(&texts, command);
    struct kvr_option options[sizeof known / sizeof *known];
    keep_options(options, known, asks_for_help(argc, argv) ? command : NULL);
    const struct kvr_usage usage = {texts.command, texts.synopsis, texts.about, options};
    struct kvr_operands operands;
    int rc = kvr_options_parse(&usage, argc, argv, &operands);
    if (rc != KVR_OPTIONS_GO_ON)
        return rc;
    rc = check(&usage, &ctl, command, &operands);
    if (rc == KVR_CTL_OK)
        rc = kvr_ctl_resolve(&ctl);
    if (rc == KVR_CTL_OK)
        rc = command->run(&ctl, operands.len - 1, operands.items + 1);
    return rc;
}

const struct kvr_command kvr_command_ctl = {
    .name = "ctl",
    .summary = "look at a running serve, and change its fleet and scripts",
    .run = run,
};
