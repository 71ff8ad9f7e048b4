#include "resolver.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "memory.h"

#define DEFAULT_HURRY_NS 1000000000u
#define NEVER            UINT64_MAX

/* One look-up. Its name may be forgotten meanwhile, or the slot another's: then nobody listens. */
struct lookup {
    uv_getaddrinfo_t request;
    struct kvr_resolver *resolver;
    uint32_t slot;
};

struct kvr_resolver_name {
    char *host; /* NULL: this slot is not followed */
    char *port;
    struct sockaddr_storage address; /* in use; family AF_UNSPEC: none yet */
    uint64_t asked_ns;               /* last look-up */
    uint64_t due_ns;                 /* next one */
    struct lookup *lookup;           /* under way, NULL none */
    bool unreachable;                /* `address` could not be connected to */
};

void kvr_resolver_start(struct kvr_resolver *resolver, struct kvr_loop *loop, uint32_t capacity,
                        const struct kvr_resolver_options *options, void *context,
                        void (*on_moved)(void *context, uint32_t slot,
                                         const struct sockaddr *address))
{
    *resolver = (struct kvr_resolver){
        .loop = loop, .capacity = capacity, .context = context, .on_moved = on_moved};
    if (options)
        resolver->options = *options;
    if (resolver->options.hurry_ns == 0)
        resolver->options.hurry_ns = DEFAULT_HURRY_NS;
    if (!resolver->options.look_up)
        resolver->options.look_up = uv_getaddrinfo;
    resolver->names = kvr_alloc_zero(capacity, sizeof *resolver->names);
}

static void finish_closing(struct kvr_resolver *resolver)
{
    if (!resolver->closing || resolver->open)
        return;
    kvr_free(resolver->names);
    resolver->names = NULL;
    if (resolver->on_closed)
        resolver->on_closed(resolver->closed_context);
}

void kvr_resolver_close(struct kvr_resolver *resolver, void *context,
                        void (*on_closed)(void *context))
{
    for (uint32_t i = 0; i < resolver->capacity; i++)
        kvr_resolver_forget(resolver, i);
    resolver->closing = true;
    resolver->closed_context = context;
    resolver->on_closed = on_closed;
    finish_closing(resolver);
}

/* Of names and IPv4 addresses. */
static bool is_host(struct kvr_slice host)
{
    bool v6 = host.len > 2 && host.data[0] == '[' && host.data[host.len - 1] == ']';
    for (size_t i = v6; i < host.len - v6; i++) {
        char c = host.data[i];
        bool good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    strchr(v6 ? ":.%" : "-._", c);
        if (!good || c == '\0')
            return false;
    }
    return true;
}

/* 0 for what is none. */
static uint32_t port_of(struct kvr_slice text)
{
    uint32_t port = 0;
    for (size_t i = 0; i < text.len; i++) {
        if (i == 5 || text.data[i] < '0' || text.data[i] > '9')
            return 0;
        port = port * 10 + (uint32_t)(text.data[i] - '0');
    }
    return port <= 65535 ? port : 0;
}

int kvr_resolver_split(struct kvr_slice authority, char host[KVR_HOST_MAX], char port[8],
                       struct kvr_error *error)
{
    const char *colon = authority.len ? memrchr(authority.data, ':', authority.len) : NULL;
    size_t host_len = colon ? (size_t)(colon - authority.data) : 0;
    size_t port_len = colon ? authority.len - host_len - 1 : 0;
    const char *wrong = host_len == 0 || port_len == 0 ? "is not host:port" : NULL;
    if (!wrong && port_of(kvr_slice_make(colon + 1, port_len)) == 0)
        wrong = "must have a port between 1 and 65535";
    if (!wrong && !is_host(kvr_slice_make(authority.data, host_len)))
        wrong = "must have a host of letters, digits, dots, - and _, or an IPv6 address in []";
    if (!wrong && host_len >= KVR_HOST_MAX)
        wrong = "has a host that is too long";
    if (wrong)
        return kvr_error_set(error, KVR_E_INVALID, "replica \"%.*s\" %s",
                             authority.len < 128 ? (int)authority.len : 128, authority.data, wrong);
    memcpy(host, authority.data, host_len);
    host[host_len] = '\0';
    memcpy(port, colon + 1, port_len);
    port[port_len] = '\0';
    return 0;
}

static const struct addrinfo *hints(void)
{
    static const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    return &hints;
}

int kvr_resolver_wait(const struct kvr_resolver *resolver, const char *host, const char *port,
                      struct sockaddr_storage *address, struct kvr_error *error)
{
    uv_getaddrinfo_t request;
    int rc = resolver->options.look_up(resolver->loop->uv, &request, NULL, host, port, hints());
    if (rc == 0 && !request.addrinfo)
        rc = UV_EAI_NONAME;
    if (rc)
        return kvr_error_set(error, KVR_E_INVALID, "replica \"%s\" cannot be resolved: %s", host,
                             uv_strerror(rc));
    memset(address, 0, sizeof *address);
    memcpy(address, request.addrinfo->ai_addr, request.addrinfo->ai_addrlen);
    uv_freeaddrinfo(request.addrinfo);
    return 0;
}

/* ---- names ---- */

void kvr_resolver_follow(struct kvr_resolver *resolver, uint32_t slot, const char *host,
                         const char *port, const struct sockaddr *address)
{
    KVR_CHECK(slot < resolver->capacity && !resolver->names[slot].host);
    struct kvr_resolver_name *name = &resolver->names[slot];
    uint64_t now_ns = kvr_loop_now();
    name->host = kvr_strndup(host, strlen(host));
    name->port = kvr_strndup(port, strlen(port));
    name->due_ns = resolver->options.refresh_ns ? now_ns + resolver->options.refresh_ns : NEVER;
    if (!address) {
        name->due_ns = now_ns;
        return;
    }
    name->asked_ns = now_ns;
    memcpy(&name->address, address,
           address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                          : sizeof(struct sockaddr_in));
}

void kvr_resolver_forget(struct kvr_resolver *resolver, uint32_t slot)
{
    KVR_CHECK(slot < resolver->capacity);
    struct kvr_resolver_name *name = &resolver->names[slot];
    if (!name->host)
        return;
    kvr_free(name->host);
    kvr_free(name->port);
    if (name->lookup)
        (void)uv_cancel((uv_req_t *)&name->lookup->request); /* it ends by its callback anyway */
    *name = (struct kvr_resolver_name){0};
}

void kvr_resolver_doubt(struct kvr_resolver *resolver, uint32_t slot, bool unreachable)
{
    if (resolver->closing)
        return;
    KVR_CHECK(slot < resolver->capacity);
    struct kvr_resolver_name *name = &resolver->names[slot];
    if (!name->host)
        return;
    name->unreachable |= unreachable;
    uint64_t soon_ns = name->asked_ns + resolver->options.hurry_ns;
    if (soon_ns < name->due_ns)
        name->due_ns = soon_ns;
}

/* ---- look-ups ---- */

static bool is_same(const struct sockaddr_storage *ours, const struct addrinfo *theirs)
{
    if (ours->ss_family != theirs->ai_family)
        return false;
    if (ours->ss_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)ours;
        const struct sockaddr_in6 *b = (const struct sockaddr_in6 *)(void *)theirs->ai_addr;
        return a->sin6_port == b->sin6_port && a->sin6_scope_id == b->sin6_scope_id &&
               memcmp(&a->sin6_addr, &b->sin6_addr, sizeof a->sin6_addr) == 0;
    }
    const struct sockaddr_in *a = (const struct sockaddr_in *)ours;
    const struct sockaddr_in *b = (const struct sockaddr_in *)(void *)theirs->ai_addr;
    return a->sin_port == b->sin_port && a->sin_addr.s_addr == b->sin_addr.s_addr;
}

/* The one in use, if the answer has it and it can be reached; else the one after it, or the first.
 */
static const struct addrinfo *choose(const struct kvr_resolver_name *name,
                                     const struct addrinfo *answer)
{
    const struct addrinfo *at = answer;
    while (at && !is_same(&name->address, at))
        at = at->ai_next;
    if (!at)
        return answer;
    if (!name->unreachable)
        return at;
    return at->ai_next ? at->ai_next : answer;
}

static void take_answer(struct kvr_resolver *resolver, uint32_t slot, const struct addrinfo *answer)
{
    struct kvr_resolver_name *name = &resolver->names[slot];
    const struct addrinfo *chosen = choose(name, answer);
    name->unreachable = false;
    if (is_same(&name->address, chosen))
        return;
    memset(&name->address, 0, sizeof name->address);
    memcpy(&name->address, chosen->ai_addr, chosen->ai_addrlen);
    resolver->counters.moves++;
    resolver->on_moved(resolver->context, slot, (const struct sockaddr *)&name->address);
}

static void on_looked_up(uv_getaddrinfo_t *request, int status, struct addrinfo *answer)
{
    struct lookup *lookup = request->data;
    struct kvr_resolver *resolver = lookup->resolver;
    struct kvr_resolver_name *name = resolver->closing ? NULL : &resolver->names[lookup->slot];
    bool heard = name && name->lookup == lookup;
    resolver->open--;
    if (heard) {
        name->lookup = NULL;
        if (status == 0 && answer)
            take_answer(resolver, lookup->slot, answer);
        else
            resolver->counters.failures++;
    }
    uv_freeaddrinfo(answer);
    kvr_free(lookup);
    finish_closing(resolver);
}

static void look_up(struct kvr_resolver *resolver, uint32_t slot, uint64_t now_ns)
{
    struct kvr_resolver_name *name = &resolver->names[slot];
    bool known = name->address.ss_family != AF_UNSPEC;
    uint64_t again_ns = known ? resolver->options.refresh_ns : resolver->options.hurry_ns;
    struct lookup *lookup = kvr_alloc_zero(1, sizeof *lookup);
    lookup->resolver = resolver;
    lookup->slot = slot;
    lookup->request.data = lookup;
    name->asked_ns = now_ns;
    name->due_ns = again_ns ? now_ns + again_ns : NEVER;
    resolver->counters.lookups++;
    int rc = resolver->options.look_up(resolver->loop->uv, &lookup->request, on_looked_up,
                                       name->host, name->port, hints());
    if (rc) {
        resolver->counters.failures++;
        kvr_free(lookup);
        return;
    }
    name->lookup = lookup;
    resolver->open++;
}

void kvr_resolver_tick(struct kvr_resolver *resolver, uint64_t now_ns)
{
    for (uint32_t slot = 0; slot < resolver->capacity; slot++) {
        const struct kvr_resolver_name *name = &resolver->names[slot];
        if (resolver->open == KVR_RESOLVER_OPEN_MAX)
            return;
        if (name->host && !name->lookup && name->due_ns <= now_ns)
            look_up(resolver, slot, now_ns);
    }
}
