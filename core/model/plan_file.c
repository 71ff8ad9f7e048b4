#include "plan_file.h"

#include <math.h>
#include <stdbool.h>

#include "json_number.h"
#include "memory.h"
#include "model_key.h"
#include "ranking.h"
#include "replica.h"
#include "routing_key.h"

#define SHOWN_MAX 80 /* bytes of a text that a message repeats */

/* One line, and where its destinations stand. */
struct line {
    uint64_t key; /* 64 bits of it, without the model */
    double rate;
    uint32_t model; /* 0: none */
    uint32_t number;
    uint32_t first;
    uint32_t count;
};

struct reading {
    const struct kvr_plan_fleet *fleet;
    struct kvr_error *error;
    struct line *lines;
    uint16_t *assigned;
    uint32_t lines_len;
    uint32_t lines_room;
    uint32_t assigned_len;
    uint32_t assigned_room;
    uint32_t number; /* of the line at hand, from 1 */
    uint32_t version;
    uint32_t announced; /* keys */
    bool by_model;
};

static int refuse(struct reading *reading, const char *what, struct kvr_slice text)
{
    return kvr_error_set(reading->error, KVR_E_INVALID, "line %u: %s, not \"%.*s\"",
                         reading->number, what, text.len < SHOWN_MAX ? (int)text.len : SHOWN_MAX,
                         text.len ? text.data : "");
}

/* Cuts what is before the next `mark` off the text; all of it where there is none. */
static struct kvr_slice take(struct kvr_slice *text, char mark)
{
    if (text->len == 0)
        return (struct kvr_slice){0};
    const char *end = memchr(text->data, mark, text->len);
    size_t len = end ? (size_t)(end - text->data) : text->len;
    struct kvr_slice taken = kvr_slice_make(text->data, len);
    size_t used = end ? len + 1 : len;
    text->data += used;
    text->len -= used;
    return taken;
}

static struct kvr_slice take_line(struct kvr_slice *text)
{
    struct kvr_slice line = take(text, '\n');
    if (line.len && line.data[line.len - 1] == '\r')
        line.len--;
    return line;
}

static uint32_t find_id(const struct kvr_plan_fleet *fleet, uint64_t id)
{
    for (uint32_t i = 0; i < fleet->count; i++)
        if (fleet->replicas[i] == id)
            return i;
    return UINT32_MAX;
}

/* Also by an id, which looks like a key that is written as itself. */
static uint32_t find_destination(const struct kvr_plan_fleet *fleet, struct kvr_slice name)
{
    uint32_t found = find_id(fleet, kvr_name_hash(name));
    return found != UINT32_MAX ? found : find_id(fleet, kvr_routing_key_named(name));
}

static int add_destination(struct reading *reading, struct line *line, struct kvr_slice name)
{
    uint32_t found = find_destination(reading->fleet, name);
    if (found == UINT32_MAX)
        return refuse(reading, "destinations are replicas that are here and not draining", name);
    if (reading->fleet->serving && !kvr_serving_has(reading->fleet->serving, found, line->model))
        return refuse(reading, "destinations serve the model of the key", name);
    for (uint32_t i = 0; i < line->count; i++)
        if (reading->assigned[line->first + i] == found)
            return refuse(reading, "a destination is named once a key", name);
    if (reading->assigned_len == KVR_PLAN_COPIES_MAX)
        return refuse(reading, "there are too many copies", name);
    if (reading->assigned_len == reading->assigned_room) {
        reading->assigned_room = 2 * reading->assigned_room + 1024;
        reading->assigned =
            kvr_realloc(reading->assigned, reading->assigned_room * sizeof *reading->assigned);
    }
    reading->assigned[reading->assigned_len++] = (uint16_t)found;
    line->count++;
    return KVR_OK;
}

static int read_rate(struct reading *reading, struct kvr_slice text, double *rate)
{
    const char *at = text.data;
    bool good =
        text.len && kvr_json_number_scan(&at, text.data + text.len) && at == text.data + text.len;
    *rate = good ? kvr_json_number_value(text) : -1;
    if (!(*rate >= 0 && *rate <= KVR_PLAN_RATE_MAX))
        return refuse(reading, "a rate is a number from 0 to 1e15", text);
    return KVR_OK;
}

static int read_line(struct reading *reading, struct kvr_slice text)
{
    struct line line = {.number = reading->number, .first = reading->assigned_len};
    struct kvr_slice name = take(&text, ',');
    line.key = kvr_routing_key_named(name);
    if (!line.key)
        return refuse(reading, "a key is a text or 16 hexadecimal digits", name);
    if (reading->version > 1 && reading->lines_len == reading->announced)
        return refuse(reading, "the plan has more keys than its first line says", name);
    struct kvr_slice model = reading->by_model ? take(&text, ',') : (struct kvr_slice){0};
    line.model = model.len ? kvr_hash32(kvr_name_hash(model)) : 0;
    int rc = read_rate(reading, take(&text, ','), &line.rate);
    for (struct kvr_slice rest = kvr_slice_trim(text); rc == KVR_OK && rest.len;
         rest = kvr_slice_trim(rest))
        rc = add_destination(reading, &line, take(&rest, ' '));
    if (rc)
        return rc;
    if (line.count == 0)
        return refuse(reading, "a key has destinations", text);
    if (reading->lines_len == KVR_PLAN_KEYS_MAX)
        return refuse(reading, "there are too many keys", name);
    if (reading->lines_len == reading->lines_room) {
        reading->lines_room = 2 * reading->lines_room + 1024;
        reading->lines = kvr_realloc(reading->lines, reading->lines_room * sizeof *reading->lines);
    }
    reading->lines[reading->lines_len++] = line;
    return KVR_OK;
}

static bool take_text(struct kvr_slice *text, const char *wanted)
{
    size_t len = strlen(wanted);
    if (text->len < len || memcmp(text->data, wanted, len) != 0)
        return false;
    *text = kvr_slice_make(text->data + len, text->len - len);
    return true;
}

/* At most nine digits. */
static bool take_count(struct kvr_slice *text, uint32_t *count)
{
    uint32_t digits = 0;
    for (*count = 0;
         digits < 9 && digits < text->len && text->data[digits] >= '0' && text->data[digits] <= '9';
         digits++)
        *count = *count * 10 + (uint32_t)(text->data[digits] - '0');
    *text = kvr_slice_make(text->data + digits, text->len - digits);
    return digits > 0;
}

/* The first line, of a version that has one. */
static int read_first(struct reading *reading, struct kvr_slice line)
{
    struct kvr_slice rest = line;
    if (!take_text(&rest, "# kvroute plan ") || !take_count(&rest, &reading->version))
        return refuse(reading, "a plan begins with # kvroute plan 2, N keys", line);
    if (reading->version != KVR_PLAN_FILE_VERSION)
        return refuse(reading, "the version of a plan is 2, or 1 without this line", line);
    if (!take_text(&rest, ", ") || !take_count(&rest, &reading->announced) ||
        !(kvr_slice_is(rest, " keys") || kvr_slice_is(rest, " key")))
        return refuse(reading, "a plan begins with # kvroute plan 2, N keys", line);
    return reading->announced ? KVR_OK : refuse(reading, "a plan has keys", line);
}

static int read_head(struct reading *reading, struct kvr_slice *text)
{
    struct kvr_slice line = take_line(text);
    reading->number = reading->version = 1;
    if (kvr_slice_is(line, KVR_PLAN_FILE_HEADER))
        return KVR_OK;
    int rc = read_first(reading, line);
    if (rc)
        return rc;
    line = take_line(text);
    reading->number++;
    reading->by_model = kvr_slice_is(line, KVR_PLAN_FILE_MODELS);
    if (!reading->by_model && !kvr_slice_is(line, KVR_PLAN_FILE_HEADER))
        return refuse(reading, "here is " KVR_PLAN_FILE_HEADER " or " KVR_PLAN_FILE_MODELS, line);
    return KVR_OK;
}

/* What a text that was cut has less. */
static int check_end(const struct reading *reading, bool ended)
{
    if (reading->lines_len == 0 && reading->version == 1)
        return kvr_error_set(reading->error, KVR_E_INVALID, "line %u: a plan has keys, not 0",
                             reading->number);
    if (reading->version == 1)
        return KVR_OK;
    if (reading->lines_len < reading->announced)
        return kvr_error_set(reading->error, KVR_E_INVALID,
                             "line %u: the plan ends with %u of %u keys: it has been cut",
                             reading->number, reading->lines_len, reading->announced);
    if (!ended)
        return kvr_error_set(reading->error, KVR_E_INVALID,
                             "line %u: the last line has no end: it has been cut", reading->number);
    return KVR_OK;
}

static int read_lines(struct reading *reading, struct kvr_slice text)
{
    bool ended = text.len && text.data[text.len - 1] == '\n';
    int rc = read_head(reading, &text);
    while (rc == KVR_OK && text.len) {
        struct kvr_slice line = take_line(&text);
        reading->number++;
        if (line.len)
            rc = read_line(reading, line);
    }
    return rc ? rc : check_end(reading, ended);
}

static uint64_t planned_key(const struct line *line)
{
    return kvr_model_key(line->model, kvr_hash32(line->key));
}

/* By falling rate, into `order`; of keys that are one in 32 bits the first stays, and the others
 * have no destinations any more. */
static int sort_lines(struct reading *reading, struct kvr_ranked *order)
{
    struct kvr_ranked *scratch = kvr_alloc((reading->lines_len + 1) * sizeof *scratch);
    struct line *lines = reading->lines;
    uint32_t len = reading->lines_len;
    int rc = KVR_OK;
    for (uint32_t i = 0; i < len; i++)
        order[i] = (struct kvr_ranked){kvr_ranking_falling(lines[i].rate), i};
    kvr_ranking_sort(order, scratch, len);
    struct kvr_ranked *by_key = kvr_alloc((len + 1) * sizeof *by_key);
    for (uint32_t i = 0; i < len; i++)
        by_key[i] = (struct kvr_ranked){planned_key(&lines[order[i].item]), order[i].item};
    kvr_ranking_sort(by_key, scratch, len);
    for (uint32_t i = 1; i < len && rc == KVR_OK; i++) {
        struct line *line = &lines[by_key[i].item], *before = &lines[by_key[i - 1].item];
        if (by_key[i].rank != by_key[i - 1].rank)
            continue;
        if (line->key == before->key)
            rc = kvr_error_set(reading->error, KVR_E_INVALID, "line %u: the key of line %u again",
                               line->number > before->number ? line->number : before->number,
                               line->number > before->number ? before->number : line->number);
        line->count = 0;
    }
    kvr_free(by_key);
    kvr_free(scratch);
    return rc;
}

static void place(struct kvr_plan *plan, struct kvr_plan_key *keys, const struct line *line,
                  const uint16_t *assigned)
{
    uint64_t key = planned_key(line);
    plan->keys++;
    if (line->count == 0) {
        plan->tail_rate += line->rate;
        return;
    }
    keys[plan->admitted] = (struct kvr_plan_key){key, line->rate};
    plan->entries[plan->admitted] = (struct kvr_plan_entry){key, plan->copies, line->count};
    for (uint32_t i = 0; i < line->count; i++) {
        plan->assigned[plan->copies++] = assigned[line->first + i];
        plan->loads[assigned[line->first + i]] += line->rate / line->count;
    }
    plan->admitted++;
    plan->split += line->count > 1;
    plan->admitted_rate += line->rate;
}

static void weigh(struct kvr_plan *plan, const struct kvr_plan_fleet *fleet)
{
    double weight = 0, highest = 0, sum = 0;
    for (uint32_t i = 0; i < fleet->count; i++)
        weight += fleet->weights[i];
    for (uint32_t i = 0; i < fleet->count; i++) {
        plan->loads[i] += plan->tail_rate * fleet->weights[i] / weight;
        highest = fmax(highest, plan->loads[i] / fleet->weights[i]);
        sum += plan->loads[i];
    }
    plan->imbalance = sum > 0 ? highest * weight / sum : 1;
}

static struct kvr_plan *make(const struct reading *reading, const struct kvr_ranked *order,
                             struct kvr_plan_key **keys)
{
    struct kvr_plan *plan = kvr_alloc_zero(1, sizeof *plan);
    uint32_t len = reading->lines_len;
    plan->destinations = reading->fleet->count;
    plan->key_mask = reading->by_model ? UINT64_MAX : KVR_MODEL_KEY_ROUTING;
    plan->entries = kvr_alloc_zero(len + 1, sizeof *plan->entries);
    plan->assigned = kvr_alloc_zero(reading->assigned_len + 1, sizeof *plan->assigned);
    plan->loads = kvr_alloc_zero(plan->destinations + 1, sizeof *plan->loads);
    *keys = kvr_alloc_zero(len + 1, sizeof **keys);
    for (uint32_t i = 0; i < len; i++)
        place(plan, *keys, &reading->lines[order[i].item], reading->assigned);
    weigh(plan, reading->fleet);
    int rc = kvr_plan_index(plan, NULL);
    KVR_CHECK(rc == KVR_OK); /* sort_lines has seen to it */
    return plan;
}

struct kvr_plan *kvr_plan_read(struct kvr_slice text, const struct kvr_plan_fleet *fleet,
                               struct kvr_plan_key **keys, uint32_t *version,
                               struct kvr_error *error)
{
    struct reading reading = {.fleet = fleet, .error = error};
    struct kvr_plan *plan = NULL;
    if (read_lines(&reading, text) == KVR_OK) {
        struct kvr_ranked *order = kvr_alloc((reading.lines_len + 1) * sizeof *order);
        if (sort_lines(&reading, order) == KVR_OK)
            plan = make(&reading, order, keys);
        kvr_free(order);
    }
    *version = reading.version;
    kvr_free(reading.lines);
    kvr_free(reading.assigned);
    return plan;
}
