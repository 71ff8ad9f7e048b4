/* The command line of `kvroute load`, read and checked. */
#ifndef KVR_LOAD_LINE_H
#define KVR_LOAD_LINE_H

#include "buffer.h"
#include "load_body.h"
#include "load_goodput.h"
#include "load_summary.h"
#include "load_workload.h"
#include "options.h"

#define KVR_LOAD_KEY_MAX 4096

struct kvr_load_line {
    const char *url;
    struct kvr_load_words words; /* of the workload */
    unsigned api;                /* enum kvr_load_api */
    const char *model;           /* NULL: the first that the endpoint lists */
    char key[KVR_LOAD_KEY_MAX];  /* "": none. It goes into requests and nowhere else */
    struct kvr_buffer headers;   /* "Name: value\r\n" lines */
    const char *extra_body;
    double timeout_s; /* wall */
    double time_scale;
    double duration_s; /* this and the next: simulated; 0: no such end */
    double warmup_s;
    uint64_t requests; /* 0: no such end */
    uint64_t in_flight;
    struct kvr_load_goodput goodput;
    double percentiles[KVR_LOAD_PERCENTILES_MAX];
    uint32_t percentiles_len;
    const char *rows;
    bool stream;
    bool json;
    bool quiet;
};

extern const struct kvr_usage kvr_load_usage;
/* "chat" and so on. */
const char *kvr_load_api_name(unsigned api);

/* KVR_OPTIONS_GO_ON, or the status to exit with. `line` is the process's: it holds what is parsed,
 * and slices of argv. */
int kvr_load_line_read(struct kvr_load_line *line, int argc, char **argv);
void kvr_load_line_deinit(struct kvr_load_line *line);

#endif
