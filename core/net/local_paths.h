/* Paths the ingress answers itself: /healthz, /readyz, /v1/models. */
#ifndef KVR_LOCAL_PATHS_H
#define KVR_LOCAL_PATHS_H

#include "ingress.h"

/* True: the request was answered here. */
bool kvr_local_path(struct kvr_ingress *ingress, struct kvr_client *client,
                    const struct kvr_request *request);

#endif
