/* Paths the ingress answers itself: /healthz and /readyz to anybody, /v1/models to clients. */
#ifndef KVR_LOCAL_PATHS_H
#define KVR_LOCAL_PATHS_H

#include "ingress.h"

/* True: the request was answered here. */
bool kvr_local_health(struct kvr_ingress *ingress, struct kvr_client *client,
                      const struct kvr_request *request);
bool kvr_local_models(struct kvr_ingress *ingress, struct kvr_client *client,
                      const struct kvr_request *request);

#endif
