#include "ctl.h"

#include <netdb.h>
#include <stdio.h>
#include <string.h>

#include "address.h"
#include "admin.h"
#include "fetch.h"
#include "pick.h"

#define TIMEOUT_NS 15000000000u
#define ANSWER_MAX (64u << 20)

/* ---- where ---- */

int kvr_ctl_resolve(struct kvr_ctl *ctl)
{
    struct kvr_slice address = kvr_slice_of(ctl->admin);
    if (address.len > 7 && strncasecmp(address.data, "http://", 7) == 0)
        address = kvr_slice_make(address.data + 7, address.len - 7);
    if (address.len && address.data[address.len - 1] == '/')
        address.len--;
    bool fits = address.len > 0 && address.len < sizeof ctl->host;
    snprintf(ctl->host, sizeof ctl->host, "%.*s", fits ? (int)address.len : 0, address.data);
    char *colon = strrchr(ctl->host, ':');
    if (!colon || colon == ctl->host || colon[1] == '\0' || strpbrk(ctl->host, "/ ")) {
        fprintf(stderr, "kvroute ctl: \"%s\" is not host:port\n", ctl->admin);
        return KVR_CTL_USAGE;
    }
    if (kvr_address_parse(ctl->host, &ctl->address, NULL) == 0)
        return KVR_CTL_OK;
    char name[sizeof ctl->host];
    snprintf(name, sizeof name, "%.*s", (int)(colon - ctl->host), ctl->host);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(name, colon + 1, &hints, &found);
    if (rc) {
        fprintf(stderr, "kvroute ctl: cannot resolve %s: %s\n", ctl->host, gai_strerror(rc));
        return KVR_CTL_UNREACHABLE;
    }
    memcpy(&ctl->address, found->ai_addr, found->ai_addrlen);
    freeaddrinfo(found);
    return KVR_CTL_OK;
}

/* ---- one request ---- */

struct asking {
    struct kvr_buffer *body;
    int uv_code;
    uint16_t status;
    bool json;  /* by its Content-Type */
    bool admin; /* from an admin listener */
};

static void on_done(void *context, const struct kvr_fetch_result *result)
{
    struct asking *asking = context;
    asking->uv_code = result->uv_code;
    asking->status = result->status;
    if (result->uv_code)
        return;
    struct kvr_slice type = kvr_http_header(result->head, "content-type");
    asking->json = type.len >= 16 && strncasecmp(type.data, "application/json", 16) == 0;
    asking->admin = kvr_http_header(result->head, KVR_ADMIN_MARK).len > 0;
    kvr_buffer_append_slice(asking->body, result->body);
}

static void fetch(struct kvr_ctl *ctl, const char *method, const char *path,
                  struct kvr_slice request, struct asking *asking)
{
    uv_loop_t uv;
    struct kvr_loop loop;
    struct kvr_fetch_options options = {
        .address = (const struct sockaddr *)&ctl->address,
        .host = kvr_slice_of(ctl->host),
        .method = kvr_slice_of(method),
        .path = kvr_slice_of(path),
        .bearer = kvr_slice_of(ctl->token),
        .headers = kvr_slice_of(request.len ? "Content-Type: application/json\r\n" : ""),
        .body = request,
        .timeout_ns = TIMEOUT_NS,
        .max_bytes = ANSWER_MAX,
    };
    KVR_CHECK(uv_loop_init(&uv) == 0);
    kvr_loop_init(&loop, &uv);
    kvr_fetch_start(&loop, &options, asking, on_done);
    uv_run(&uv, UV_RUN_DEFAULT);
    kvr_loop_deinit(&loop);
    uv_run(&uv, UV_RUN_DEFAULT);
    KVR_CHECK(uv_loop_close(&uv) == 0);
}

/* The reason as the router words it, or what stands for one. */
static int tell_refusal(const struct kvr_ctl *ctl, const struct asking *asking)
{
    struct kvr_slice body = kvr_buffer_slice(asking->body);
    struct kvr_slice message =
        asking->json ? kvr_pick(body, "error.message") : kvr_slice_make("", 0);
    if (ctl->json && asking->json)
        printf("%.*s\n", (int)body.len, body.data);
    if (message.len)
        fprintf(stderr, "kvroute ctl: %s\n", kvr_pick_text(body, "error.message").text);
    else
        fprintf(stderr, "kvroute ctl: %s answered with status %u\n", ctl->host, asking->status);
    return KVR_CTL_REFUSED;
}

int kvr_ctl_ask(struct kvr_ctl *ctl, const char *method, const char *path, struct kvr_slice request,
                struct kvr_buffer *body)
{
    struct asking asking = {.body = body};
    body->len = 0;
    fetch(ctl, method, path, request, &asking);
    if (asking.uv_code) {
        fprintf(stderr, "kvroute ctl: no answer from %s: %s\n", ctl->host,
                uv_strerror(asking.uv_code));
        return KVR_CTL_UNREACHABLE;
    }
    if (!asking.admin) {
        fprintf(stderr,
                "kvroute ctl: %s is not the admin listener of kvroute: that is "
                "admin.listen, " KVR_ADMIN_LISTEN_DEFAULT " unless it is set (status %u)\n",
                ctl->host, asking.status);
        return KVR_CTL_UNREACHABLE;
    }
    return asking.status >= 300 ? tell_refusal(ctl, &asking) : KVR_CTL_OK;
}
