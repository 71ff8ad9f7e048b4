#include "request.h"

#include <math.h>

#include "memory.h"
#include "model_table.h"

#define FULL UINT32_MAX

const char *kvr_outcome_name(enum kvr_outcome outcome)
{
    static const char *const names[] = {"success", "failed", "dropped", "cancelled"};
    return names[outcome];
}

struct kvr_ending kvr_ending_make(enum kvr_outcome outcome, const char *error, uint16_t status)
{
    return (struct kvr_ending){
        .outcome = outcome,
        .error = error,
        .status = status,
        .prompt_tokens = -1,
        .output_tokens = -1,
        .cached_tokens = -1,
        .gap_mean_ms = (double)NAN,
        .gap_p50_ms = (double)NAN,
        .gap_max_ms = (double)NAN,
    };
}

struct kvr_script_record *kvr_script_record_share(struct kvr_script_record *record)
{
    if (record)
        record->references++;
    return record;
}

void kvr_script_record_release(struct kvr_script_record *record)
{
    if (!record)
        return;
    KVR_CHECK(record->references > 0);
    if (--record->references == 0)
        kvr_free(record);
}

const char *kvr_request_model_name(const struct kvr_request_record *record)
{
    return record->model_name ? record->model_name : record->model->name;
}

void kvr_request_table_init(struct kvr_request_table *table, uint32_t capacity)
{
    KVR_CHECK(capacity > 0 && capacity < FULL);
    *table = (struct kvr_request_table){.capacity = capacity};
    table->records = kvr_alloc_zero(capacity, sizeof *table->records);
}

void kvr_request_table_deinit(struct kvr_request_table *table)
{
    kvr_free(table->records);
    *table = (struct kvr_request_table){0};
}

/* As in the ledger, 0 means "the record behind me", so that untouched memory is a free list. */
static uint32_t next_free(const struct kvr_request_table *table, uint32_t slot)
{
    uint32_t next = table->records[slot].next_free;
    if (next == 0)
        return slot + 1 < table->capacity ? slot + 1 : FULL;
    return next == FULL ? FULL : next - 1;
}

struct kvr_request_ref kvr_request_open(struct kvr_request_table *table)
{
    uint32_t slot = table->first_free;
    if (slot == FULL)
        return (struct kvr_request_ref){0, 0};
    struct kvr_request_record *record = &table->records[slot];
    KVR_CHECK(record->generation % 2 == 0);
    table->first_free = next_free(table, slot);
    table->open++;
    *record = (struct kvr_request_record){.generation = record->generation + 1};
    return (struct kvr_request_ref){slot, record->generation};
}

void kvr_request_close(struct kvr_request_table *table, struct kvr_request_ref request)
{
    struct kvr_request_record *record = kvr_request_at(table, request);
    KVR_CHECK(table->open > 0);
    record->generation++;
    record->next_free = table->first_free == FULL ? FULL : table->first_free + 1;
    table->first_free = request.slot;
    table->open--;
}
