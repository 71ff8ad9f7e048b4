/* The second half of an exchange: the replica's answer. Used by exchange.c only. */
#ifndef KVR_EXCHANGE_ANSWER_H
#define KVR_EXCHANGE_ANSWER_H

#include "exchange.h"

/* Bytes from the replica (an on_bytes of upstream.h; `user` is the exchange). */
void kvr_exchange_take_answer(void *user, char *data, size_t len);
/* The connection ended while the body was being relayed: its end, or a loss. */
void kvr_exchange_answer_ended(struct kvr_exchange *exchange, int uv_code);

/* ---- exchange.c's, for the answer ---- */
void kvr_exchange_finish(struct kvr_exchange *exchange, enum kvr_outcome outcome, const char *error,
                         uint16_t status, bool replica_fault);
void kvr_exchange_move(struct kvr_exchange *exchange, bool replica_fault, const char *why);
void kvr_exchange_lose(struct kvr_exchange *exchange, const char *why, bool replica_fault);

#endif
