#include "emu_fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json_number.h"

#define CUT_MS 5 /* apart enough that a reader sees two pieces */

static const char *const kinds[] = {"none",   "stall", "reset",  "close",  "cut",
                                    "drip",   "error", "status", "huge",   "race",
                                    "refuse", "idle",  "slow",   "restart"};
static const char *const insides[] = {"nothing", "size", "data", "utf8", "newline", "done"};

const char kvr_emu_fault_help[] =
    "A fault is one line, KIND;KEY=VALUE;..., for --fault, for the header x-kvroute-fault of a\n"
    "request, and for the body of POST /fault, which also takes JSON: "
    "{\"kind\":\"stall\",\"after\":3}.\n"
    "GET /fault shows those of answers, DELETE /fault takes back all; ?replica=N or all: whose.\n"
    "\n"
    "Of the bytes of an answer:\n"
    "  stall               no further byte, for ever; with ms= for so long\n"
    "  reset               the connection breaks\n"
    "  close               an orderly close, before the answer is complete\n"
    "  cut                 two writes, ms= (5) apart; every=1: in each event from there on\n"
    "  drip                bytes= (1) a write, ms= (0) apart\n"
    "Where in it:\n"
    "  at=head             before the first byte (the default)\n"
    "  at=body             when the head is out\n"
    "  after=N             when the event of the N-th token is out\n"
    "  bytes=N             after N bytes of the body\n"
    "  in=PLACE            inside the next event: size (of its chunk), data (in that word), utf8\n"
    "                      (in a wide character), newline (between the two at its end), done\n"
    "  ms=N                wait so long before acting there\n"
    "\n"
    "Instead of an answer, or in it:\n"
    "  status;code=N       an error of that status; retry_after=S, ms=N\n"
    "  error;after=N       an engine's error event after N tokens\n"
    "  huge;bytes=N        so many bytes at full speed, without an engine; sized=1: with a length\n"
    "  race                a connection that is used again is reset when the request comes;\n"
    "                      orderly=1: closed\n"
    "  none                nothing: for a request that is to be spared\n"
    "\n"
    "To which requests:\n"
    "  path=PATH           those to it; * is every path (the default is those that generate)\n"
    "  marker=TEXT         those with it in their body\n"
    "  times=N             only so many\n"
    "\n"
    "Of the replica:\n"
    "  refuse              no new connections; with ms= for so long\n"
    "  idle;ms=N           idle connections are closed after so long\n"
    "  slow;factor=F       steps of the engine take F times as long\n"
    "  restart             it dies and comes back with an empty cache after its start-up time, or\n"
    "                      ms=; orderly=1: only the engine, while the server goes on to say so\n";

static int index_of(const char *const *names, size_t count, struct kvr_slice name)
{
    for (size_t i = 0; i < count; i++)
        if (kvr_slice_is(name, names[i]))
            return (int)i;
    return -1;
}

/* ---- reading ---- */

static bool read_number(struct kvr_slice text, double least, double most, double *value)
{
    const char *at = text.data;
    if (text.len == 0 || !kvr_json_number_scan(&at, text.data + text.len) ||
        at != text.data + text.len)
        return false;
    *value = kvr_json_number_value(text);
    return *value >= least && *value <= most;
}

static bool read_text(struct kvr_slice text, char out[KVR_EMU_FAULT_TEXT_MAX])
{
    if (text.len == 0 || text.len >= KVR_EMU_FAULT_TEXT_MAX)
        return false;
    memcpy(out, text.data, text.len);
    out[text.len] = '\0';
    return true;
}

static bool set_place(struct kvr_emu_fault *fault, struct kvr_slice value)
{
    if (!kvr_slice_is(value, "head") && !kvr_slice_is(value, "body"))
        return false;
    fault->place = kvr_slice_is(value, "head") ? KVR_EMU_AT_HEAD : KVR_EMU_AT_BODY;
    return true;
}

static bool set_inside(struct kvr_emu_fault *fault, struct kvr_slice value)
{
    int inside = index_of(insides, sizeof insides / sizeof insides[0], value);
    if (inside <= 0)
        return false;
    fault->inside = (enum kvr_emu_inside)inside;
    if (fault->place != KVR_EMU_AFTER_TOKENS)
        fault->place = KVR_EMU_AFTER_TOKENS; /* of the first event, unless told otherwise */
    return true;
}

/* A flag may also stand alone. */
static bool set_flag(bool *flag, struct kvr_slice value)
{
    *flag = value.len == 0 || kvr_slice_is(value, "1") || kvr_slice_is(value, "true");
    return *flag || kvr_slice_is(value, "0") || kvr_slice_is(value, "false");
}

static bool set(struct kvr_emu_fault *fault, struct kvr_slice key, struct kvr_slice value)
{
    double number = 0;
    bool ok = true;
    if (kvr_slice_is(key, "at"))
        return set_place(fault, value);
    if (kvr_slice_is(key, "in"))
        return set_inside(fault, value);
    if (kvr_slice_is(key, "every"))
        return set_flag(&fault->every, value);
    if (kvr_slice_is(key, "sized"))
        return set_flag(&fault->sized, value);
    if (kvr_slice_is(key, "orderly"))
        return set_flag(&fault->orderly, value);
    if (kvr_slice_is(key, "path"))
        return read_text(value, fault->path);
    if (kvr_slice_is(key, "marker"))
        return read_text(value, fault->marker);
    if (kvr_slice_is(key, "after")) {
        ok = read_number(value, 0, 1e9, &number);
        fault->after = ok ? (uint32_t)number : 0;
        fault->place = KVR_EMU_AFTER_TOKENS;
    } else if (kvr_slice_is(key, "bytes")) {
        ok = read_number(value, 1, 1e12, &number);
        fault->bytes = ok ? (uint64_t)number : 0;
        fault->place = fault->kind == KVR_EMU_FAULT_DRIP ? fault->place : KVR_EMU_AFTER_BYTES;
    } else if (kvr_slice_is(key, "ms")) {
        ok = read_number(value, 0, 1e9, &fault->ms);
    } else if (kvr_slice_is(key, "code")) {
        ok = read_number(value, 200, 599, &number);
        fault->status = ok ? (uint16_t)number : 0;
    } else if (kvr_slice_is(key, "retry_after")) {
        ok = read_number(value, 1, 1e6, &number);
        fault->retry_after_s = ok ? (uint32_t)number : 0;
    } else if (kvr_slice_is(key, "times")) {
        ok = read_number(value, 1, 1e9, &number);
        fault->times = ok ? (uint64_t)number : 0;
    } else if (kvr_slice_is(key, "factor")) {
        ok = read_number(value, 1e-3, 1e6, &fault->factor);
    } else {
        ok = false;
    }
    return ok;
}

static struct kvr_slice next_word(struct kvr_slice *rest)
{
    const char *end = rest->len ? memchr(rest->data, ';', rest->len) : NULL;
    size_t len = end ? (size_t)(end - rest->data) : rest->len;
    struct kvr_slice word = kvr_slice_trim(kvr_slice_make(rest->data, len));
    size_t used = end ? len + 1 : len;
    *rest = kvr_slice_make(rest->data + used, rest->len - used);
    return word;
}

static int check(struct kvr_emu_fault *fault, struct kvr_error *error)
{
    const char *wanting = NULL;
    switch (fault->kind) {
    case KVR_EMU_FAULT_STATUS:
        wanting = fault->status ? NULL : "code=N";
        break;
    case KVR_EMU_FAULT_HUGE:
        wanting = fault->bytes ? NULL : "bytes=N";
        break;
    case KVR_EMU_FAULT_SLOW:
        wanting = fault->factor > 0 ? NULL : "factor=F";
        break;
    case KVR_EMU_FAULT_IDLE:
        wanting = fault->ms >= 0 ? NULL : "ms=N";
        break;
    case KVR_EMU_FAULT_CUT:
        if (fault->ms < 0)
            fault->ms = CUT_MS;
        wanting = fault->inside || fault->place != KVR_EMU_AT_HEAD ? NULL : "in=, after= or bytes=";
        break;
    case KVR_EMU_FAULT_DRIP:
        if (fault->bytes == 0)
            fault->bytes = 1;
        break;
    default:
        break;
    }
    if (wanting)
        return kvr_error_set(error, KVR_E_INVALID, "fault %s: %s is missing", kinds[fault->kind],
                             wanting);
    return 0;
}

int kvr_emu_fault_parse(struct kvr_slice text, struct kvr_emu_fault *fault, struct kvr_error *error)
{
    *fault = (struct kvr_emu_fault){.ms = -1};
    struct kvr_slice name = next_word(&text);
    int kind = index_of(kinds, sizeof kinds / sizeof kinds[0], name);
    if (kind < 0)
        return kvr_error_set(error, KVR_E_INVALID, "no fault is called \"%.*s\"", (int)name.len,
                             name.data);
    fault->kind = (enum kvr_emu_fault_kind)kind;
    while (text.len) {
        struct kvr_slice word = next_word(&text);
        if (word.len == 0)
            continue;
        const char *equals = memchr(word.data, '=', word.len);
        size_t key = equals ? (size_t)(equals - word.data) : word.len;
        struct kvr_slice value = {0};
        if (equals)
            value = kvr_slice_make(equals + 1, word.len - key - 1);
        if (!set(fault, kvr_slice_make(word.data, key), value))
            return kvr_error_set(error, KVR_E_INVALID, "fault %s: \"%.*s\" means nothing",
                                 kinds[kind], (int)word.len, word.data);
    }
    return check(fault, error);
}

/* ---- writing ---- */

static void put_number(struct kvr_buffer *out, const char *key, double value)
{
    kvr_buffer_printf(out, ";%s=%.15g", key, value);
}

void kvr_emu_fault_write(const struct kvr_emu_fault *fault, struct kvr_buffer *out)
{
    kvr_buffer_append_text(out, kinds[fault->kind]);
    if (fault->place == KVR_EMU_AT_BODY)
        kvr_buffer_append_text(out, ";at=body");
    if (fault->place == KVR_EMU_AFTER_TOKENS)
        put_number(out, "after", fault->after);
    if (fault->bytes)
        put_number(out, "bytes", (double)fault->bytes);
    if (fault->inside)
        kvr_buffer_printf(out, ";in=%s", insides[fault->inside]);
    if (fault->every)
        kvr_buffer_append_text(out, ";every=1");
    if (fault->sized)
        kvr_buffer_append_text(out, ";sized=1");
    if (fault->orderly)
        kvr_buffer_append_text(out, ";orderly=1");
    if (fault->ms >= 0)
        put_number(out, "ms", fault->ms);
    if (fault->status)
        put_number(out, "code", fault->status);
    if (fault->retry_after_s)
        put_number(out, "retry_after", fault->retry_after_s);
    if (fault->factor > 0)
        put_number(out, "factor", fault->factor);
    if (fault->times)
        put_number(out, "times", (double)fault->times);
    if (fault->path[0])
        kvr_buffer_printf(out, ";path=%s", fault->path);
    if (fault->marker[0])
        kvr_buffer_printf(out, ";marker=%s", fault->marker);
}

/* ---- the set ---- */

bool kvr_emu_fault_is_standing(enum kvr_emu_fault_kind kind)
{
    return kind >= KVR_EMU_FAULT_REFUSE;
}

int kvr_emu_faults_add(struct kvr_emu_faults *faults, const struct kvr_emu_fault *fault,
                       struct kvr_error *error)
{
    if (faults->len == KVR_EMU_FAULTS_MAX)
        return kvr_error_set(error, KVR_E_LIMIT, "%d faults are set already", KVR_EMU_FAULTS_MAX);
    faults->items[faults->len++] = *fault;
    return 0;
}

static bool is_meant_for(const struct kvr_emu_fault *fault, struct kvr_slice path,
                         struct kvr_slice body, bool generates, bool reused)
{
    if (kvr_emu_fault_is_standing(fault->kind))
        return false;
    if (fault->kind == KVR_EMU_FAULT_RACE && !reused)
        return false;
    if (fault->path[0] == '\0') {
        if (!generates)
            return false;
    } else if (strcmp(fault->path, "*") != 0 && !kvr_slice_is(path, fault->path)) {
        return false;
    }
    size_t marker = strlen(fault->marker);
    return marker == 0 || (body.len && memmem(body.data, body.len, fault->marker, marker));
}

bool kvr_emu_faults_take(struct kvr_emu_faults *faults, struct kvr_slice path,
                         struct kvr_slice body, bool generates, bool reused,
                         struct kvr_emu_fault *fault)
{
    for (uint32_t i = 0; i < faults->len; i++) {
        struct kvr_emu_fault *item = &faults->items[i];
        if (!is_meant_for(item, path, body, generates, reused))
            continue;
        *fault = *item;
        faults->committed++;
        if (item->times && --item->times == 0) {
            memmove(item, item + 1, (faults->len - i - 1) * sizeof *item);
            faults->len--;
        }
        return true;
    }
    return false;
}
