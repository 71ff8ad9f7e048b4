/* What the files of the ingress share among themselves. */
#ifndef KVR_INGRESS_PARTS_H
#define KVR_INGRESS_PARTS_H

#include "ingress.h"

/* The client's X-Request-Id, or one made in `room`. */
struct kvr_slice kvr_ingress_request_id(struct kvr_ingress *ingress,
                                        const struct kvr_http_head *head, char *room, size_t size);
/* Handlers of client.h. */
void kvr_ingress_on_request(void *context, struct kvr_client *client,
                            const struct kvr_request *request);
bool kvr_ingress_on_head(void *context, struct kvr_client *client,
                         const struct kvr_http_head *head);
void kvr_ingress_on_refused(void *context, struct kvr_client *client,
                            const struct kvr_http_head *head, enum kvr_refusal refusal);
/* Wakes whatever follows the fleet. */
void kvr_ingress_fleet_changed(struct kvr_ingress *ingress);
/* Its name leads elsewhere now (an on_moved of resolver.h). */
void kvr_ingress_replica_moved(void *context, uint32_t slot, const struct sockaddr *address);
/* Lets go of a slot's key and closes its pool; reports by kvr_ingress_part_closed at shutdown. */
void kvr_ingress_close_pool(struct kvr_ingress *ingress, uint32_t slot);
/* One of what a shutdown waits for is closed; `context` is the ingress. */
void kvr_ingress_part_closed(void *context);

#endif
