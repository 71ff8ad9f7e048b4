/* Command-line options as a table: one row an option gives its name, its help and where its value
 * goes. getopt_long reads them; what is wrong is said with the option's name and the value.
 *
 *   struct kvr_option table[] = {
 *       KVR_OPTION_TEXT("host", "ADDRESS", &host, "listen there (127.0.0.1)"),
 *       KVR_OPTION_NUMBER("time-scale", "X", &scale, 0.001, 10000, "engine seconds a second (1)"),
 *       KVR_OPTION_FLAG("quiet", &quiet, "say nothing"),
 *       {0},
 *   };
 *   const struct kvr_usage usage = {"replica", "[OPTION...]", "What it does.", table};
 *   int status = kvr_options_parse(&usage, argc, argv, &operands);
 *   if (status != KVR_OPTIONS_GO_ON)
 *       return status;
 *
 * --help and -h are understood by every table and goes to stdout. */
#ifndef KVR_OPTIONS_H
#define KVR_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVR_OPTIONS_GO_ON    (-1)
#define KVR_OPTIONS_MAX      64  /* rows in a table */
#define KVR_OPTIONS_LIST_MAX 256 /* values of one option that may be repeated */

/* Values of an option that may be given more than once, in order. */
struct kvr_option_list {
    const char *items[KVR_OPTIONS_LIST_MAX];
    uint32_t len;
};

enum kvr_option_kind {
    KVR_OPTION_IS_FLAG,   /* bool */
    KVR_OPTION_IS_TEXT,   /* const char * */
    KVR_OPTION_IS_COUNT,  /* uint64_t, within bounds */
    KVR_OPTION_IS_NUMBER, /* double, within bounds */
    KVR_OPTION_IS_CHOICE, /* unsigned: index of a word in `words` */
    KVR_OPTION_IS_LIST,   /* struct kvr_option_list */
};

/* In the order that a row reads best. NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding) */
struct kvr_option {
    const char *name;     /* long, without its dashes; NULL ends the table */
    char letter;          /* the same, short; 0: none */
    const char *argument; /* as the help calls it; NULL for a flag */
    const char *help;     /* with the default in parentheses */
    enum kvr_option_kind kind;
    void *value;
    double least; /* COUNT, NUMBER */
    double most;
    const char *const *words; /* CHOICE; NULL-ended */
};

#define KVR_OPTION_FLAG(name, value, help)                                                         \
    {                                                                                              \
        name, 0, NULL, help, KVR_OPTION_IS_FLAG, value, 0, 0, NULL                                 \
    }
#define KVR_OPTION_TEXT(name, argument, value, help)                                               \
    {                                                                                              \
        name, 0, argument, help, KVR_OPTION_IS_TEXT, value, 0, 0, NULL                             \
    }
#define KVR_OPTION_COUNT(name, argument, value, least, most, help)                                 \
    {                                                                                              \
        name, 0, argument, help, KVR_OPTION_IS_COUNT, value, least, most, NULL                     \
    }
#define KVR_OPTION_NUMBER(name, argument, value, least, most, help)                                \
    {                                                                                              \
        name, 0, argument, help, KVR_OPTION_IS_NUMBER, value, least, most, NULL                    \
    }
#define KVR_OPTION_CHOICE(name, argument, value, words, help)                                      \
    {                                                                                              \
        name, 0, argument, help, KVR_OPTION_IS_CHOICE, value, 0, 0, words                          \
    }
#define KVR_OPTION_LIST(name, argument, value, help)                                               \
    {                                                                                              \
        name, 0, argument, help, KVR_OPTION_IS_LIST, value, 0, 0, NULL                             \
    }

struct kvr_usage {
    const char *command; /* after "kvroute " */
    const char *synopsis;
    const char *about; /* a few lines */
    const struct kvr_option *options;
};

/* Arguments that belong to no option. */
struct kvr_operands {
    char **items;
    int len;
};

/* KVR_OPTIONS_GO_ON, or the status to exit with. Values that are not given stay as they are.
 * `operands` NULL: none are allowed. */
int kvr_options_parse(const struct kvr_usage *usage, int argc, char **argv,
                      struct kvr_operands *operands);

/* Says on stderr what is wrong, for checks beyond those of one option; returns KVR_EXIT_USAGE. */
int kvr_usage_error(const struct kvr_usage *usage, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
