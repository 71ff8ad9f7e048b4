/* A request that a client sent and that cannot be taken: it is counted, told to the handler and
 * answered, and the connection ends. */
#ifndef KVR_CLIENT_REFUSAL_H
#define KVR_CLIENT_REFUSAL_H

#include "client.h"

/* `head` NULL: it is that of client->in in a body, and none otherwise. `reason` NULL: the usual
 * one, with the limit that was reached. */
void kvr_client_refuse(struct kvr_client *client, const struct kvr_http_head *head,
                       enum kvr_refusal refusal, const char *reason);

#endif
