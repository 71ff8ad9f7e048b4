#include "load_target.h"

#include <stdio.h>
#include <string.h>

#include "address.h"
#include "resolver.h"
#include "slice.h"

static bool starts_with(struct kvr_slice text, const char *start)
{
    size_t len = strlen(start);
    return text.len >= len && strncasecmp(text.data, start, len) == 0;
}

/* What stands before /v1, without a slash at its end. */
static struct kvr_slice trim_path(struct kvr_slice path)
{
    while (path.len && path.data[path.len - 1] == '/')
        path.len--;
    if (path.len >= 3 && memcmp(path.data + path.len - 3, "/v1", 3) == 0)
        path.len -= 3;
    return path;
}

static bool is_clean(struct kvr_slice text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.data[i] <= ' ' || text.data[i] == 0x7f || strchr("?#@\\", text.data[i]))
            return false;
    return true;
}

static bool is_port(struct kvr_slice text)
{
    uint32_t port = 0;
    for (size_t i = 0; i < text.len && i < 6; i++)
        port = text.data[i] >= '0' && text.data[i] <= '9'
                   ? port * 10 + (uint32_t)(text.data[i] - '0')
                   : UINT32_MAX / 20;
    return text.len > 0 && port > 0 && port <= 65535;
}

/* Takes the URL apart; the port is added where it is missing. */
static int split(struct kvr_load_target *target, const char *url, struct kvr_error *error)
{
    struct kvr_slice rest = kvr_slice_of(url);
    if (starts_with(rest, "https://"))
        return kvr_error_set(error, KVR_E_INVALID,
                             "%s: TLS is not spoken here; put a proxy before the endpoint", url);
    if (starts_with(rest, "http://"))
        rest = kvr_slice_make(rest.data + 7, rest.len - 7);
    const char *slash = rest.len ? memchr(rest.data, '/', rest.len) : NULL;
    struct kvr_slice host = {rest.data, slash ? (size_t)(slash - rest.data) : rest.len};
    struct kvr_slice path = trim_path(kvr_slice_make(host.data + host.len, rest.len - host.len));
    const char *colon = host.len ? memrchr(host.data, ':', host.len) : NULL;
    const char *bracket = host.len ? memrchr(host.data, ']', host.len) : NULL;
    bool has_port = colon && (!bracket || colon > bracket);
    size_t name_len = has_port ? (size_t)(colon - host.data) : host.len;
    if (host.len == 0 || host.len + 4 > sizeof target->authority ||
        path.len >= sizeof target->base || !is_clean(host) || !is_clean(path) || name_len == 0 ||
        (has_port && !is_port(kvr_slice_make(colon + 1, host.len - name_len - 1))))
        return kvr_error_set(error, KVR_E_INVALID, "\"%s\" is not http://HOST:PORT", url);
    snprintf(target->authority, sizeof target->authority, "%.*s%s", (int)host.len, host.data,
             has_port ? "" : ":80");
    snprintf(target->base, sizeof target->base, "%.*s", (int)path.len, path.data);
    return 0;
}

int kvr_load_target_find(struct kvr_load_target *target, struct kvr_loop *loop, const char *url,
                         struct kvr_error *error)
{
    int rc = split(target, url, error);
    if (rc || kvr_address_parse(target->authority, &target->address, NULL) == 0)
        return rc;
    char host[KVR_HOST_MAX], port[8];
    rc = kvr_resolver_split(kvr_slice_of(target->authority), host, port, NULL);
    if (rc)
        return kvr_error_set(error, KVR_E_INVALID, "\"%s\" is not http://HOST:PORT", url);
    const struct kvr_resolver resolver = {.loop = loop, .options = {.look_up = uv_getaddrinfo}};
    if (kvr_resolver_wait(&resolver, host, port, &target->address, NULL))
        return kvr_error_set(error, KVR_E_INVALID, "%s leads nowhere: the name is not known", host);
    return 0;
}
