/* What the files of an exchange share among themselves: exchange.c has the request's way to a
 * replica, exchange_answer.c the answer's way back, exchange_end.c the end. */
#ifndef KVR_EXCHANGE_PARTS_H
#define KVR_EXCHANGE_PARTS_H

#include "exchange.h"

/* Bytes from the replica (an on_bytes of upstream.h; `user` is the exchange). */
void kvr_exchange_take_answer(void *user, char *data, size_t len);
/* The connection ended while the body was being relayed: its end, or a loss. */
void kvr_exchange_answer_ended(struct kvr_exchange *exchange, int uv_code);

/* The one way out: a row, and the exchange is gone. */
void kvr_exchange_finish(struct kvr_exchange *exchange, enum kvr_outcome outcome, const char *error,
                         uint16_t status, bool replica_fault);
/* This dispatch failed before a body byte: the router decides what comes next. */
void kvr_exchange_move(struct kvr_exchange *exchange, bool replica_fault, const char *why);
/* Lost after the first body byte: the client is cut without a clean end. */
void kvr_exchange_lose(struct kvr_exchange *exchange, const char *why, bool replica_fault);

/* Without a row: the router never took it. */
void kvr_exchange_destroy(struct kvr_exchange *exchange);

#endif
