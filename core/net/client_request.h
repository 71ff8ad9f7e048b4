/* Requests out of a client's bytes: heads found, checked and parsed; whole requests handed over in
 * order, one at a time; what is not whole kept in client->in. Used by client.c. */
#ifndef KVR_CLIENT_REQUEST_H
#define KVR_CLIENT_REQUEST_H

#include "client.h"

/* Takes all requests that are whole, from bytes that are not in client->in. */
void kvr_client_take(struct kvr_client *client, char *data, size_t len);
/* Same, from client->in, which grew or whose request was answered. */
void kvr_client_take_kept(struct kvr_client *client);

#endif
