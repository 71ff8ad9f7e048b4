/* The body of a request that did not come with its head: collected in client->in, sized or chunked.
 * Used by client.c and the listener's sweep. */
#ifndef KVR_CLIENT_BODY_H
#define KVR_CLIENT_BODY_H

#include "client.h"

/* A head is in listener->head and its body is not complete: keeps what came and waits. */
void kvr_client_begin_body(struct kvr_client *client, const char *data, size_t len, bool owned);
/* client->in has grown: delivers the request if it is whole. Of a chunked body, client->in is
 * [head][payload so far][raw bytes from raw_at on]. */
void kvr_client_advance_sized(struct kvr_client *client);
void kvr_client_advance_chunked(struct kvr_client *client, size_t raw_at);

/* ---- for the body and its request: client.c's and client_request.c's ---- */

/* The only writer of `state`. */
void kvr_client_enter(struct kvr_client *client, enum kvr_client_state state);
/* So many more bytes may be held, for all clients together. */
bool kvr_client_fits(const struct kvr_client *client, uint64_t more);
/* Counts the client's buffer in the listener's total; frees it when it is empty. */
void kvr_client_account(struct kvr_client *client);
/* Hands over the request that fills client->in up to `used`; what follows is kept for the next. */
void kvr_client_deliver_owned(struct kvr_client *client, size_t used);

#endif
