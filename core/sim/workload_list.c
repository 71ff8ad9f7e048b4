/* Requests given one by one: the part of workload.h about LIST. */
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "workload_parts.h"

static void grow_sessions(struct kvr_request_list *list)
{
    uint64_t *old = list->sessions;
    uint64_t old_slots = old ? list->sessions_mask + 1 : 0;
    uint64_t slots = old_slots ? old_slots * 2 : 256;
    list->sessions = kvr_alloc_zero(2 * slots, sizeof *list->sessions);
    list->sessions_mask = slots - 1;
    for (uint64_t i = 0; i < old_slots; i++) {
        if (old[2 * i + 1] == 0)
            continue;
        uint64_t at = kvr_mix64(old[2 * i]) & list->sessions_mask;
        while (list->sessions[2 * at + 1])
            at = (at + 1) & list->sessions_mask;
        memcpy(&list->sessions[2 * at], &old[2 * i], 2 * sizeof *old);
    }
    kvr_free(old);
}

/* The user that a session's requests are of. */
static uint64_t user_of(struct kvr_request_list *list, uint64_t session)
{
    if (session == 0)
        return list->users++;
    if (!list->sessions || list->users * 2 > list->sessions_mask)
        grow_sessions(list);
    uint64_t at = kvr_mix64(session) & list->sessions_mask;
    while (list->sessions[2 * at + 1] && list->sessions[2 * at] != session)
        at = (at + 1) & list->sessions_mask;
    if (list->sessions[2 * at + 1] == 0) {
        list->sessions[2 * at] = session;
        list->sessions[2 * at + 1] = ++list->users;
    }
    return list->sessions[2 * at + 1] - 1;
}

static bool is_sound(const struct kvr_list_request *request)
{
    if (request->pieces_len == 0 || !(request->due_ms >= 0) || !(request->think_ms >= 0) ||
        (request->output_tokens == 0 && request->max_tokens == 0) ||
        (request->max_tokens && request->output_tokens > request->max_tokens))
        return false;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < request->pieces_len; i++) {
        const struct kvr_piece *piece = &request->pieces[i];
        if (piece->bytes == 0 || piece->speaker > KVR_TOOL ||
            (piece->continues && (i == 0 || piece[-1].speaker != piece->speaker)))
            return false;
        bytes += piece->bytes;
    }
    return bytes <= INT32_MAX;
}

int kvr_workload_add(struct kvr_workload *workload, const struct kvr_list_request *request)
{
    struct kvr_request_list *list = &workload->list;
    if (workload->options.kind != KVR_WORKLOAD_LIST || list->sorted)
        return KVR_E_STATE;
    if (!is_sound(request))
        return KVR_E_INVALID;
    if (list->rows_len == list->rows_capacity) {
        list->rows_capacity = list->rows_capacity ? list->rows_capacity * 2 : 256;
        list->rows = kvr_realloc(list->rows, list->rows_capacity * sizeof *list->rows);
    }
    while (list->pieces_len + request->pieces_len > list->pieces_capacity) {
        list->pieces_capacity = list->pieces_capacity ? list->pieces_capacity * 2 : 1024;
        list->pieces = kvr_realloc(list->pieces, list->pieces_capacity * sizeof *list->pieces);
    }
    struct kvr_list_row *row = &list->rows[list->rows_len++];
    *row = (struct kvr_list_row){.request = *request, .pieces_at = list->pieces_len};
    row->request.pieces = NULL;
    row->user = user_of(list, request->session);
    memcpy(&list->pieces[list->pieces_len], request->pieces,
           request->pieces_len * sizeof *request->pieces);
    list->pieces_len += request->pieces_len;
    return KVR_OK;
}

struct moment {
    double due_ms;
    uint64_t row;
};

static int compare_moments(const void *a, const void *b)
{
    const struct moment *left = a, *right = b;
    if (left->due_ms != right->due_ms)
        return left->due_ms < right->due_ms ? -1 : 1;
    return left->row < right->row ? -1 : left->row > right->row;
}

static void sort_by_time(struct kvr_request_list *list)
{
    struct moment *moments = kvr_alloc(list->rows_len * sizeof *moments + 1);
    for (uint64_t i = 0; i < list->rows_len; i++)
        moments[i] = (struct moment){list->rows[i].request.due_ms, i};
    qsort(moments, list->rows_len, sizeof *moments, compare_moments);
    list->by_time = kvr_alloc(list->rows_len * sizeof *list->by_time + 1);
    for (uint64_t i = 0; i < list->rows_len; i++)
        list->by_time[i] = moments[i].row;
    kvr_free(moments);
}

/* Turns of a user are in order of time; those of one instant as they were given. */
void kvr_request_list_sort(struct kvr_request_list *list)
{
    if (list->sorted)
        return;
    list->sorted = true;
    sort_by_time(list);
    list->user_at = kvr_alloc_zero(list->users + 1, sizeof *list->user_at);
    list->by_user = kvr_alloc(list->rows_len * sizeof *list->by_user + 1);
    list->turn_of = kvr_alloc(list->rows_len * sizeof *list->turn_of + 1);
    for (uint64_t i = 0; i < list->rows_len; i++)
        list->user_at[list->rows[i].user + 1]++;
    for (uint64_t user = 0; user < list->users; user++)
        list->user_at[user + 1] += list->user_at[user];
    uint64_t *next = kvr_alloc(list->users * sizeof *next + 1);
    if (list->users)
        memcpy(next, list->user_at, list->users * sizeof *next);
    for (uint64_t i = 0; i < list->rows_len; i++) {
        uint64_t row = list->by_time[i];
        uint64_t user = list->rows[row].user;
        list->turn_of[row] = next[user] - list->user_at[user];
        list->by_user[next[user]++] = row;
    }
    kvr_free(next);
}

void kvr_request_list_deinit(struct kvr_request_list *list)
{
    kvr_free(list->rows);
    kvr_free(list->pieces);
    kvr_free(list->sessions);
    kvr_free(list->user_at);
    kvr_free(list->by_user);
    kvr_free(list->by_time);
    kvr_free(list->turn_of);
}

bool kvr_request_list_turn(struct kvr_workload *workload, uint64_t user, uint64_t turn,
                           struct kvr_workload_request *request)
{
    const struct kvr_request_list *list = &workload->list;
    if (user >= list->users || turn >= list->user_at[user + 1] - list->user_at[user])
        return false;
    const struct kvr_list_row *row = &list->rows[list->by_user[list->user_at[user] + turn]];
    const struct kvr_list_request *given = &row->request;
    request->session = given->session ? user + 1 : 0;
    request->key = given->key;
    request->tenant = given->tenant;
    request->pieces = &list->pieces[row->pieces_at];
    request->pieces_len = given->pieces_len;
    request->session_turn = given->session_turn ? given->session_turn : (uint32_t)turn + 1;
    request->max_tokens = given->max_tokens;
    request->output_tokens = given->output_tokens ? given->output_tokens : given->max_tokens;
    request->stops = request->output_tokens != given->max_tokens;
    for (uint32_t i = 0; i < given->pieces_len; i++)
        request->prompt_bytes += request->pieces[i].bytes;
    return true;
}
