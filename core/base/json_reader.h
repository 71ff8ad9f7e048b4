/* A pull reader over one JSON text that lies complete in memory. It builds nothing and allocates
 * nothing: the caller walks the structure, takes what it wants and skips the rest, in one pass.
 *
 *   struct kvr_json_reader json;
 *   struct kvr_json_span key;
 *   kvr_json_reader_init(&json, body);
 *   if (kvr_json_enter_object(&json))
 *       while (kvr_json_next_key(&json, &key)) {
 *           if (kvr_slice_is(key.raw, "model"))
 *               kvr_json_read_string(&json, &model);
 *           else
 *               kvr_json_skip(&json, NULL);
 *       }
 *   if (!kvr_json_finish(&json)) -> json.code, json.reason, kvr_json_offset(&json)
 *
 * Every key must be followed by exactly one read or skip. Duplicate keys show up as often as they
 * occur. The first failure sticks: from then on everything returns false, so a caller checks once,
 * at the end. Structure, escapes, numbers and nesting are checked strictly (RFC 8259); UTF-8 is
 * not. A leading byte-order mark is passed over, as common engines do. */
#ifndef KVR_JSON_READER_H
#define KVR_JSON_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "json_string.h"
#include "slice.h"

#define KVR_JSON_DEPTH_MAX 256 /* deeper nesting is KVR_E_LIMIT */

enum kvr_json_kind {
    KVR_JSON_NONE, /* no value here: the reader has failed */
    KVR_JSON_OBJECT,
    KVR_JSON_ARRAY,
    KVR_JSON_STRING,
    KVR_JSON_NUMBER,
    KVR_JSON_TRUE,
    KVR_JSON_FALSE,
    KVR_JSON_NULL,
};

/* A string as it stands in the text, without its quotes. */
struct kvr_json_span {
    struct kvr_slice raw;
    bool escaped; /* raw is not the text itself: decode it */
};

struct kvr_json_reader {
    const char *begin; /* the text; the caller's */
    const char *at;    /* next byte to read; the byte at fault after a failure */
    const char *end;
    const char *reason; /* constant words; NULL while all is well */
    int code;           /* KVR_OK, KVR_E_INVALID, KVR_E_TRUNCATED or KVR_E_LIMIT */
    uint32_t depth;     /* containers entered and not left */
    bool fresh;         /* a container has just been entered: no comma is due */
};

void kvr_json_reader_init(struct kvr_json_reader *json, struct kvr_slice text);

/* Kind of the value that comes next, without taking it. */
enum kvr_json_kind kvr_json_peek(struct kvr_json_reader *json);

/* Enter the value if it is of that kind; otherwise false, with nothing taken: skip it or read it.
 */
bool kvr_json_enter_object(struct kvr_json_reader *json);
bool kvr_json_enter_array(struct kvr_json_reader *json);

/* Moves to the next member and takes its key; false at the end of the object, which is then left.
 */
bool kvr_json_next_key(struct kvr_json_reader *json, struct kvr_json_span *key);
/* Moves to the next element; false at the end of the array, which is then left. */
bool kvr_json_next_item(struct kvr_json_reader *json);

/* Take a value of that kind; false with nothing taken when it is another. */
bool kvr_json_read_string(struct kvr_json_reader *json, struct kvr_json_span *span);
bool kvr_json_read_number(struct kvr_json_reader *json, struct kvr_slice *raw);
/* A whole number without sign, point or exponent, of at most 15 digits: most numbers are. False
 * with nothing taken for any other value. */
bool kvr_json_read_count(struct kvr_json_reader *json, int64_t *count);
/* Decodes a string to *out while it is read, and moves *out behind it (see json_string.h for the
 * room it needs). */
bool kvr_json_read_decoded(struct kvr_json_reader *json, char **out);

/* Passes over any value, checking it; `raw` (may be NULL) gets its text. */
bool kvr_json_skip(struct kvr_json_reader *json, struct kvr_slice *raw);
/* Takes any value and writes it to *out in canonical form: no blanks between tokens, strings
 * decoded between their quotes, numbers as they stand, members in their order. For hashing, not for
 * reading back. Never longer than the text; needs KVR_JSON_SLACK more. */
bool kvr_json_compact(struct kvr_json_reader *json, char **out);

/* After the top-level value: true when nothing has failed and nothing but blanks is left. */
bool kvr_json_finish(struct kvr_json_reader *json);

/* Makes the reader fail, with the caller's reason, at the current byte. */
void kvr_json_fail(struct kvr_json_reader *json, int code, const char *reason);
/* Where a failure was found, in bytes from the start of the text. */
size_t kvr_json_offset(const struct kvr_json_reader *json);

#endif
