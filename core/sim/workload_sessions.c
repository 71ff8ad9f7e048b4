/* Conversations drawn from a pool: the part of workload.h about SESSIONS. */
#include "answer.h"
#include "workload_parts.h"

/* What is fixed about a conversation. */
struct session {
    uint64_t number; /* from 0 */
    bool system;     /* has the system prompt */
    bool branch;     /* begins as its family does */
    uint64_t family;
};

static struct session session_of(const struct kvr_workload *workload, uint64_t number)
{
    const struct kvr_workload_options *o = &workload->options;
    struct session session = {.number = number};
    session.system = o->system_bytes > 0 &&
                     kvr_unit(kvr_draw(o->seed, KVR_FOR_SYSTEM_SHARE, number, 0)) < o->system_share;
    session.branch = o->branch_families > 0 &&
                     kvr_unit(kvr_draw(o->seed, KVR_FOR_BRANCH_SHARE, number, 0)) < o->branch_share;
    if (session.branch)
        session.family = kvr_draw(o->seed, KVR_FOR_FAMILY, number, 0) % o->branch_families;
    return session;
}

static uint64_t message_id(const struct kvr_workload *workload, const struct session *session,
                           uint32_t turn, bool reply)
{
    if (session->branch && turn < workload->options.branch_turns)
        return kvr_text_id(workload, reply ? KVR_TEXT_FAMILY_ASSISTANT : KVR_TEXT_FAMILY_USER,
                           session->family, turn);
    return kvr_text_id(workload, reply ? KVR_TEXT_ASSISTANT : KVR_TEXT_USER, session->number, turn);
}

static void add(struct kvr_workload *workload, struct kvr_workload_request *request, uint64_t id,
                uint32_t bytes, enum kvr_speaker speaker)
{
    if (bytes == 0)
        return;
    KVR_CHECK(request->pieces_len < KVR_WORKLOAD_PIECES_MAX);
    workload->pieces[request->pieces_len++] =
        (struct kvr_piece){.id = id, .bytes = bytes, .speaker = (uint8_t)speaker};
    request->prompt_bytes += bytes;
}

/* The system prompt makes no conversation longer: its last message is so much shorter. */
static uint32_t user_bytes(const struct kvr_workload_options *o, const struct session *session,
                           uint32_t turn)
{
    if (!session->system || turn + 1 < o->turns)
        return o->user_bytes;
    return o->user_bytes > o->system_bytes ? o->user_bytes - o->system_bytes : 1;
}

static void write_pieces(struct kvr_workload *workload, const struct session *session,
                         uint32_t turn, struct kvr_workload_request *request)
{
    const struct kvr_workload_options *o = &workload->options;
    if (session->system)
        add(workload, request, kvr_text_id(workload, KVR_TEXT_SYSTEM, 0, 0), o->system_bytes,
            KVR_SYSTEM);
    for (uint32_t i = 0; i < turn; i++) {
        add(workload, request, message_id(workload, session, i, false), user_bytes(o, session, i),
            KVR_USER);
        add(workload, request, message_id(workload, session, i, true), o->assistant_bytes,
            KVR_ASSISTANT);
    }
    add(workload, request, message_id(workload, session, turn, false), user_bytes(o, session, turn),
        KVR_USER);
}

bool kvr_sessions_turn(struct kvr_workload *workload, uint64_t user, uint64_t turn,
                       struct kvr_workload_request *request)
{
    const struct kvr_workload_options *o = &workload->options;
    uint64_t bits = kvr_draw(o->seed, KVR_FOR_SESSION, user, turn / o->turns);
    struct session session =
        session_of(workload, kvr_popularity_draw(&workload->popularity, kvr_unit(bits)));
    uint32_t place = (uint32_t)(turn % o->turns);
    request->session = session.number + 1;
    request->session_turn = place + 1;
    request->session_turns = o->turns;
    request->max_tokens = o->max_tokens;
    struct kvr_answer_length length = kvr_answer_length(
        kvr_draw(o->seed, KVR_FOR_OUTPUT, user, turn), o->max_tokens, o->early_share);
    request->output_tokens = length.tokens;
    request->stops = length.stopped;
    write_pieces(workload, &session, place, request);
    return true;
}
