/* Reads one HTTP/1 answer from bytes as they come, strictly: what is no answer, or is framed
 * wrongly, is an error and not a guess. For programs that play clients. */
#ifndef KVR_BENCH_ANSWER_READER_H
#define KVR_BENCH_ANSWER_READER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ANSWER_HEAD_MAX 8192

enum answer_state {
    ANSWER_HEAD,
    ANSWER_SIZED,
    ANSWER_CHUNK_SIZE,
    ANSWER_CHUNK,
    ANSWER_CHUNK_END, /* the line end behind a chunk */
    ANSWER_TRAILER,
    ANSWER_UNTIL_CLOSE,
    ANSWER_DONE,
    ANSWER_BROKEN,
};

struct answer {
    enum answer_state state;
    char head[ANSWER_HEAD_MAX]; /* then lines of the framing */
    size_t head_len;
    uint64_t left;       /* of the body, or of the chunk */
    uint64_t body_bytes; /* payload so far */
    bool headed;         /* its head is there */
    bool no_body;        /* it answers HEAD */
    bool close;          /* the connection ends with it */
    int status;
    char id[80]; /* x-kvroute-request-id; empty: none */
};

static inline void answer_begin(struct answer *answer)
{
    memset(answer, 0, sizeof *answer);
}

/* The value of a header in the head, or NULL. */
static inline const char *answer_header(const struct answer *answer, const char *name)
{
    size_t len = strlen(name);
    for (const char *at = strstr(answer->head, "\r\n"); at; at = strstr(at + 2, "\r\n")) {
        const char *line = at + 2;
        if (strncasecmp(line, name, len) == 0 && line[len] == ':')
            return line + len + 1 + strspn(line + len + 1, " ");
    }
    return NULL;
}

static inline void answer_read_head(struct answer *answer)
{
    bool http11 = strncmp(answer->head, "HTTP/1.1 ", 9) == 0;
    answer->status = http11 ? atoi(answer->head + 9) : 0;
    if (answer->status < 100 || answer->status > 999) {
        answer->state = ANSWER_BROKEN;
        return;
    }
    if (answer->status < 200) { /* interim: the next head follows */
        answer->head_len = 0;
        return;
    }
    answer->headed = true;
    const char *id = answer_header(answer, "x-kvroute-request-id");
    size_t id_len = id ? strcspn(id, "\r") : 0;
    if (id_len < sizeof answer->id)
        memcpy(answer->id, id ? id : "", id_len);
    const char *length = answer_header(answer, "content-length");
    const char *coding = answer_header(answer, "transfer-encoding");
    const char *connection = answer_header(answer, "connection");
    answer->close = connection && strncasecmp(connection, "close", 5) == 0;
    answer->left = length ? strtoull(length, NULL, 10) : 0;
    answer->head_len = 0;
    if (length && coding)
        answer->state = ANSWER_BROKEN;
    else if (answer->no_body || answer->status == 204 || answer->status == 304)
        answer->state = ANSWER_DONE;
    else if (coding)
        answer->state = ANSWER_CHUNK_SIZE;
    else if (length)
        answer->state = answer->left ? ANSWER_SIZED : ANSWER_DONE;
    else
        answer->state = ANSWER_UNTIL_CLOSE;
}

/* One byte of a line that ends with CR LF; true when the line is whole, without its end. */
static inline bool answer_line(struct answer *answer, char byte)
{
    if (answer->head_len + 1 >= sizeof answer->head) {
        answer->state = ANSWER_BROKEN;
        return false;
    }
    answer->head[answer->head_len++] = byte;
    if (byte != '\n')
        return false;
    if (answer->head_len < 2 || answer->head[answer->head_len - 2] != '\r') {
        answer->state = ANSWER_BROKEN;
        return false;
    }
    answer->head[answer->head_len - 2] = '\0';
    return true;
}

static inline void answer_take_byte(struct answer *answer, char byte)
{
    if (answer->state == ANSWER_HEAD) {
        if (answer->head_len + 1 >= sizeof answer->head) {
            answer->state = ANSWER_BROKEN;
            return;
        }
        answer->head[answer->head_len++] = byte;
        if (byte == '\n' && answer->head_len >= 4 &&
            memcmp(answer->head + answer->head_len - 4, "\r\n\r\n", 4) == 0) {
            answer->head[answer->head_len] = '\0';
            answer_read_head(answer);
        }
        return;
    }
    if (!answer_line(answer, byte))
        return;
    bool empty = answer->head[0] == '\0';
    answer->head_len = 0;
    if (answer->state == ANSWER_TRAILER) {
        if (empty)
            answer->state = ANSWER_DONE;
    } else if (answer->state == ANSWER_CHUNK_END) {
        answer->state = empty ? ANSWER_CHUNK_SIZE : ANSWER_BROKEN;
    } else {
        char *end;
        answer->left = strtoull(answer->head, &end, 16);
        bool size = end != answer->head && (*end == '\0' || *end == ';');
        answer->state = !size ? ANSWER_BROKEN : answer->left ? ANSWER_CHUNK : ANSWER_TRAILER;
    }
}

/* Returns how many bytes belong to this answer. */
static inline size_t answer_feed(struct answer *answer, const char *data, size_t len)
{
    size_t used = 0;
    while (used < len && answer->state != ANSWER_DONE && answer->state != ANSWER_BROKEN) {
        bool payload = answer->state == ANSWER_SIZED || answer->state == ANSWER_CHUNK ||
                       answer->state == ANSWER_UNTIL_CLOSE;
        if (!payload) {
            answer_take_byte(answer, data[used++]);
            continue;
        }
        size_t n = len - used;
        if (answer->state != ANSWER_UNTIL_CLOSE && n > answer->left)
            n = (size_t)answer->left;
        used += n;
        answer->body_bytes += n;
        if (answer->state == ANSWER_UNTIL_CLOSE)
            continue;
        answer->left -= n;
        if (answer->left == 0)
            answer->state = answer->state == ANSWER_SIZED ? ANSWER_DONE : ANSWER_CHUNK_END;
    }
    return used;
}

/* The peer has closed; is the answer whole? */
static inline bool answer_closed(struct answer *answer, bool orderly)
{
    if (answer->state == ANSWER_UNTIL_CLOSE && orderly)
        answer->state = ANSWER_DONE;
    return answer->state == ANSWER_DONE;
}

#endif
