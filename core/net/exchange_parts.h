/* What the files of an exchange share among themselves: exchange.c has the request's way to a
 * replica, exchange_answer.c the answer's way back, exchange_time.c its time-outs, exchange_end.c
 * the end. */
#ifndef KVR_EXCHANGE_PARTS_H
#define KVR_EXCHANGE_PARTS_H

#include "exchange.h"

/* Bytes from the replica (an on_bytes of upstream.h; `user` is the exchange). */
void kvr_exchange_take_answer(void *user, char *data, size_t len);
/* The connection ended behind a head that says no length: an empty body, where the head tells of no
 * success; a success without a byte is a replica that broke. False: it is no end of an answer. */
bool kvr_exchange_end_held(struct kvr_exchange *exchange, int uv_code);
/* The connection ended while the body was being relayed: its end, or a loss. */
void kvr_exchange_answer_ended(struct kvr_exchange *exchange, int uv_code);

/* The one way out: a row, and the exchange is gone. */
void kvr_exchange_finish(struct kvr_exchange *exchange, enum kvr_outcome outcome, const char *error,
                         uint16_t status, bool replica_fault);
/* The same before the first body byte, with an error of ours for the client. */
void kvr_exchange_refuse(struct kvr_exchange *exchange, const struct kvr_api_error *error,
                         const char *message);
/* This dispatch failed before a body byte: the router decides what comes next. */
void kvr_exchange_move(struct kvr_exchange *exchange, bool replica_fault, const char *why);
/* Lost after the first body byte: the client is cut without a clean end. */
void kvr_exchange_lose(struct kvr_exchange *exchange, const char *why, bool replica_fault);

/* The request's bytes: there will be no other try. */
void kvr_exchange_let_go_of_request(struct kvr_exchange *exchange);
/* Without a row: the router never took it. */
void kvr_exchange_destroy(struct kvr_exchange *exchange);

#endif
