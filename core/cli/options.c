#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "command.h"

#define FIRST_CODE 256 /* what getopt_long returns for row 0: above every letter */

static void print_help(const struct kvr_usage *usage)
{
    printf("Usage: kvroute %s %s\n\n%s\n\nOptions:\n", usage->command, usage->synopsis,
           usage->about);
    for (const struct kvr_option *option = usage->options; option->name; option++) {
        char left[64];
        snprintf(left, sizeof left, "--%s%s%s", option->name, option->argument ? " " : "",
                 option->argument ? option->argument : "");
        if (option->letter)
            printf("  -%c, ", option->letter);
        else
            printf("  ");
        printf("%-*s ", option->letter ? 26 : 30, left);
        /* A help of several lines goes on below itself. */
        for (const char *at = option->help; *at; at++) {
            putchar(*at);
            if (*at == '\n')
                printf("%33s", "");
        }
        putchar('\n');
    }
    printf("  -h, %-26s %s\n", "--help", "this text");
}

int kvr_usage_error(const struct kvr_usage *usage, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "kvroute %s: %s\nkvroute %s --help tells more\n", usage->command, text,
            usage->command);
    return KVR_EXIT_USAGE;
}

static int bad_value(const struct kvr_usage *usage, const struct kvr_option *option,
                     const char *value)
{
    char expected[256];
    size_t len = 0;
    switch (option->kind) {
    case KVR_OPTION_IS_COUNT:
        snprintf(expected, sizeof expected, "a whole number from %.0f to %.0f", option->least,
                 option->most);
        break;
    case KVR_OPTION_IS_NUMBER:
        snprintf(expected, sizeof expected, "a number from %g to %g", option->least, option->most);
        break;
    default:
        expected[0] = '\0';
        for (int i = 0; option->words[i] && len < sizeof expected; i++)
            len += (size_t)snprintf(expected + len, sizeof expected - len, "%s%s",
                                    i ? ", " : "one of ", option->words[i]);
        break;
    }
    return kvr_usage_error(usage, "--%s is %s, not \"%s\"", option->name, expected, value);
}

static bool set_number(const struct kvr_option *option, const char *text)
{
    char *end = NULL;
    errno = 0;
    double value = strtod(text, &end);
    if (end == text || *end || errno || !(value >= option->least && value <= option->most))
        return false;
    *(double *)option->value = value;
    return true;
}

static bool set_count(const struct kvr_option *option, const char *text)
{
    char *end = NULL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || errno || (double)value < option->least ||
        (double)value > option->most)
        return false;
    *(uint64_t *)option->value = value;
    return true;
}

static bool set_choice(const struct kvr_option *option, const char *text)
{
    for (unsigned i = 0; option->words[i]; i++) {
        if (strcmp(option->words[i], text) == 0) {
            *(unsigned *)option->value = i;
            return true;
        }
    }
    return false;
}

static int set(const struct kvr_usage *usage, const struct kvr_option *option, char *text)
{
    struct kvr_option_list *list = option->value;
    bool ok = true;
    switch (option->kind) {
    case KVR_OPTION_IS_FLAG:
        *(bool *)option->value = true;
        break;
    case KVR_OPTION_IS_TEXT:
        *(const char **)option->value = text;
        break;
    case KVR_OPTION_IS_COUNT:
        ok = set_count(option, text);
        break;
    case KVR_OPTION_IS_NUMBER:
        ok = set_number(option, text);
        break;
    case KVR_OPTION_IS_CHOICE:
        ok = set_choice(option, text);
        break;
    case KVR_OPTION_IS_LIST:
        if (list->len == KVR_OPTIONS_LIST_MAX)
            return kvr_usage_error(usage, "--%s may be given %d times", option->name,
                                   KVR_OPTIONS_LIST_MAX);
        list->items[list->len++] = text;
        break;
    }
    return ok ? KVR_OPTIONS_GO_ON : bad_value(usage, option, text);
}

/* The table in getopt's form. */
struct forms {
    struct option rows[KVR_OPTIONS_MAX + 2];
    char letters[2 * KVR_OPTIONS_MAX + 5];
};

static void translate(const struct kvr_option *options, struct forms *forms)
{
    size_t at = 0;
    int i = 0;
    forms->letters[at++] = ':'; /* errors are ours to tell */
    for (; options[i].name; i++) {
        KVR_CHECK(i < KVR_OPTIONS_MAX);
        int wants = options[i].argument ? required_argument : no_argument;
        forms->rows[i] = (struct option){options[i].name, wants, NULL, FIRST_CODE + i};
        if (!options[i].letter)
            continue;
        forms->letters[at++] = options[i].letter;
        if (options[i].argument)
            forms->letters[at++] = ':';
    }
    forms->rows[i] = (struct option){"help", no_argument, NULL, 'h'};
    forms->rows[i + 1] = (struct option){0};
    forms->letters[at++] = 'h';
    forms->letters[at] = '\0';
}

static const struct kvr_option *option_of(const struct kvr_option *options, int code)
{
    if (code >= FIRST_CODE)
        return &options[code - FIRST_CODE];
    while (options->name && options->letter != code)
        options++;
    return options->name ? options : NULL;
}

int kvr_options_parse(const struct kvr_usage *usage, int argc, char **argv,
                      struct kvr_operands *operands)
{
    struct forms forms;
    translate(usage->options, &forms);
    optind = 1;
    int code;
    while ((code = getopt_long(argc, argv, forms.letters, forms.rows, NULL)) != -1) {
        if (code == 'h') {
            print_help(usage);
            return KVR_EXIT_OK;
        }
        if (code == ':')
            return kvr_usage_error(usage, "%s needs a value", argv[optind - 1]);
        if (code == '?')
            return kvr_usage_error(usage, "there is no option %s", argv[optind - 1]);
        const struct kvr_option *option = option_of(usage->options, code);
        KVR_CHECK(option != NULL);
        int status = set(usage, option, optarg);
        if (status != KVR_OPTIONS_GO_ON)
            return status;
    }
    if (operands)
        *operands = (struct kvr_operands){argv + optind, argc - optind};
    else if (optind < argc)
        return kvr_usage_error(usage, "\"%s\" is one argument too many", argv[optind]);
    return KVR_OPTIONS_GO_ON;
}
