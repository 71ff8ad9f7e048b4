#include <llhttp.h>
#include <string.h>

#include "http_parts.h"

struct parse {
    llhttp_t llhttp;
    struct kvr_http_head *head;
    bool in_value; /* the last header callback was for a value */
    bool too_many;
};

static struct parse *parse_of(llhttp_t *llhttp)
{
    return (struct parse *)llhttp;
}

static int on_url(llhttp_t *llhttp, const char *at, size_t len)
{
    struct kvr_http_head *head = parse_of(llhttp)->head;
    if (!head->target.data)
        head->target.data = at;
    head->target.len += len;
    return 0;
}

static int on_status(llhttp_t *llhttp, const char *at, size_t len)
{
    struct kvr_http_head *head = parse_of(llhttp)->head;
    if (!head->phrase.data)
        head->phrase.data = at;
    head->phrase.len += len;
    return 0;
}

static int on_field(llhttp_t *llhttp, const char *at, size_t len)
{
    struct parse *parse = parse_of(llhttp);
    struct kvr_http_head *head = parse->head;
    if (head->count == 0 || parse->in_value) {
        if (head->count == KVR_HTTP_HEADERS_MAX) {
            parse->too_many = true;
            return -1;
        }
        head->headers[head->count++] = (struct kvr_header){{at, 0}, {NULL, 0}};
        parse->in_value = false;
    }
    head->headers[head->count - 1].name.len += len;
    return 0;
}

static int on_value(llhttp_t *llhttp, const char *at, size_t len)
{
    struct parse *parse = parse_of(llhttp);
    struct kvr_slice *value = &parse->head->headers[parse->head->count - 1].value;
    if (!value->data)
        value->data = at;
    value->len = (size_t)(at - value->data) + len;
    parse->in_value = true;
    return 0;
}

static int on_value_complete(llhttp_t *llhttp)
{
    parse_of(llhttp)->in_value = true; /* also when the value is empty */
    return 0;
}

static int on_headers_complete(llhttp_t *llhttp)
{
    (void)llhttp;
    return HPE_PAUSED; /* the body is not llhttp's */
}

static const llhttp_settings_t settings = {
    .on_url = on_url,
    .on_status = on_status,
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_header_value_complete = on_value_complete,
    .on_headers_complete = on_headers_complete,
};

/* The comma-separated list holds `token`, ASCII case ignored. */
static bool list_has(struct kvr_slice list, struct kvr_slice token)
{
    while (list.len) {
        const char *comma = memchr(list.data, ',', list.len);
        size_t len = comma ? (size_t)(comma - list.data) : list.len;
        struct kvr_slice item = kvr_slice_trim(kvr_slice_make(list.data, len));
        if (item.len == token.len && strncasecmp(item.data, token.data, token.len) == 0)
            return true;
        size_t skip = comma ? len + 1 : len;
        list.data += skip;
        list.len -= skip;
    }
    return false;
}

static int read_length(struct kvr_http_head *head, struct kvr_slice value, struct kvr_error *error)
{
    uint64_t length = 0;
    if (value.len == 0 || value.len > 18)
        return kvr_error_set(error, KVR_E_INVALID, "Content-Length is not a number");
    for (size_t i = 0; i < value.len; i++) {
        if (value.data[i] < '0' || value.data[i] > '9')
            return kvr_error_set(error, KVR_E_INVALID, "Content-Length is not a number");
        length = length * 10 + (uint64_t)(value.data[i] - '0');
    }
    if (head->has_length)
        return kvr_error_set(error, KVR_E_INVALID, "more than one Content-Length");
    head->has_length = true;
    head->content_length = length;
    return 0;
}

int kvr_http_read_framing(struct kvr_http_head *head, struct kvr_slice *host,
                          struct kvr_error *error)
{
    uint32_t hosts = 0;
    bool closes = false;
    for (uint32_t i = 0; i < head->count; i++) {
        struct kvr_slice name = head->headers[i].name;
        struct kvr_slice value = head->headers[i].value = kvr_slice_trim(head->headers[i].value);
        int rc = 0;
        head->name_lengths |= kvr_http_length_bit(name.len);
        /* The length sorts out nearly all names before a comparison. */
        if (name.len == 14 && kvr_slice_is_nocase(name, "content-length")) {
            rc = read_length(head, value, error);
        } else if (name.len == 17 && kvr_slice_is_nocase(name, "transfer-encoding")) {
            if (head->chunked || !kvr_slice_is_nocase(value, "chunked"))
                return kvr_error_set(error, KVR_E_INVALID, "Transfer-Encoding is not \"chunked\"");
            head->chunked = true;
        } else if (name.len == 10 && kvr_slice_is_nocase(name, "connection")) {
            closes |= list_has(value, kvr_slice_of("close"));
            head->keep_alive |= list_has(value, kvr_slice_of("keep-alive"));
            if (value.len)
                head->connection = value;
        } else if (name.len == 4 && kvr_slice_is_nocase(name, "host")) {
            *host = value;
            hosts++;
        } else if (name.len == 6 && kvr_slice_is_nocase(name, "expect")) {
            bool known = kvr_slice_is_nocase(value, "100-continue");
            head->expect_continue |= known;
            head->expect_other |= value.len && !known;
        } else if (name.len == 7 && kvr_slice_is_nocase(name, "upgrade")) {
            head->upgrade = true;
        }
        if (rc)
            return rc;
    }
    head->keep_alive &= !closes; /* whatever else is said */
    if (head->chunked && head->has_length)
        return kvr_error_set(error, KVR_E_INVALID,
                             "Content-Length together with Transfer-Encoding");
    if (head->chunked && head->minor == 0)
        return kvr_error_set(error, KVR_E_INVALID, "Transfer-Encoding in HTTP/1.0");
    if (hosts > 1)
        return kvr_error_set(error, KVR_E_INVALID, "more than one Host");
    return 0;
}

void kvr_http_clear(struct kvr_http_head *head, size_t size)
{
    head->target = head->path = head->host = head->method = head->phrase = head->connection =
        kvr_slice_make(NULL, 0);
    head->status = 0;
    head->has_length = head->chunked = head->expect_continue = head->expect_other = head->upgrade =
        false;
    head->content_length = 0;
    head->name_lengths = 0;
    head->count = 0;
    head->size = size;
}

static int run_llhttp(struct parse *parse, llhttp_type_t type, const char *data, size_t size,
                      struct kvr_error *error)
{
    struct kvr_http_head *head = parse->head;
    kvr_http_clear(head, size);
    llhttp_init(&parse->llhttp, type, &settings);
    llhttp_errno_t rc = llhttp_execute(&parse->llhttp, data, size);
    if (parse->too_many)
        return kvr_error_set(error, KVR_E_LIMIT, "more than %d headers", KVR_HTTP_HEADERS_MAX);
    if (rc != HPE_PAUSED && rc != HPE_PAUSED_UPGRADE) {
        const char *reason = llhttp_get_error_reason(&parse->llhttp);
        return kvr_error_set(error, KVR_E_INVALID, "%s",
                             rc == HPE_OK || !reason || !*reason ? "incomplete head" : reason);
    }
    head->minor = llhttp_get_http_minor(&parse->llhttp);
    if (llhttp_get_http_major(&parse->llhttp) != 1 || head->minor > 1)
        return kvr_error_set(error, KVR_E_INVALID, "not HTTP/1.0 or HTTP/1.1");
    head->keep_alive = head->minor == 1;
    for (uint32_t i = 0; i < head->count; i++) {
        struct kvr_slice name = head->headers[i].name;
        if (name.len == 0 || memchr(name.data, ' ', name.len) || name.data[name.len] != ':')
            return kvr_error_set(error, KVR_E_INVALID, "blank in the name of a header");
    }
    return 0;
}

/* METHOD SP TARGET SP HTTP/1.x and nothing else: llhttp lets more blanks pass, and other protocols.
 */
static int read_request_line(struct kvr_http_head *head, const char *data, size_t size,
                             struct kvr_error *error)
{
    static const char version[] = " HTTP/1.";
    const char *target = head->target.data;
    const char *space = memchr(data, ' ', size);
    if (!target || !space || space + 1 != target)
        return kvr_error_set(error, KVR_E_INVALID, "malformed request line");
    const char *end = target + head->target.len;
    if ((size_t)(data + size - end) < sizeof version ||
        memcmp(end, version, sizeof version - 1) != 0)
        return kvr_error_set(error, KVR_E_INVALID, "malformed request line");
    head->method = kvr_slice_make(data, (size_t)(space - data));
    for (; target < end; target++)
        if (*target == '\t' || *target == '#')
            return kvr_error_set(error, KVR_E_INVALID, "tab or fragment in the target");
    return 0;
}

/* What no authority holds: blanks, what could end it early, what would make a user of a part. */
static const bool ends_authority[256] = {
    [0 ... ' '] = true, ['"'] = true, ['/'] = true,  ['<'] = true, ['>'] = true,
    ['?'] = true,       ['@'] = true, ['\\'] = true, ['^'] = true, ['`'] = true,
    ['{'] = true,       ['|'] = true, ['}'] = true,  ['#'] = true, [0x7f ... 255] = true,
};

/* Empty is one: for the caller to judge. */
static bool is_authority(struct kvr_slice host)
{
    for (size_t i = 0; i < host.len; i++)
        if (ends_authority[(unsigned char)host.data[i]])
            return false;
    return true;
}

int kvr_http_read_target(struct kvr_http_head *head, struct kvr_slice host, struct kvr_error *error)
{
    struct kvr_slice path = head->target;
    bool absolute = path.len > 7 && strncasecmp(path.data, "http://", 7) == 0;
    if (host.len == 0 && head->minor == 1) /* an absolute target does not replace it */
        return kvr_error_set(error, KVR_E_INVALID, "HTTP/1.1 without Host");
    if (!is_authority(host))
        return kvr_error_set(error, KVR_E_INVALID, "malformed Host");
    if (absolute) {
        path = kvr_slice_make(path.data + 7, path.len - 7);
        const char *slash = memchr(path.data, '/', path.len);
        size_t origin = slash ? (size_t)(slash - path.data) : path.len;
        host = kvr_slice_make(path.data, origin);
        path = kvr_slice_make(path.data + origin, path.len - origin);
        if (origin == 0 || !is_authority(host)) /* a query right behind the host, too */
            return kvr_error_set(error, KVR_E_INVALID, "absolute target without a good host");
    } else if (kvr_slice_is(path, "*") ? !kvr_slice_is(head->method, "OPTIONS")
                                       : path.len == 0 || path.data[0] != '/') {
        return kvr_error_set(error, KVR_E_INVALID, "target is not a path");
    }
    head->target = path.len ? path : kvr_slice_of("/");
    const char *query = path.len ? memchr(path.data, '?', path.len) : NULL;
    head->path = query ? kvr_slice_make(path.data, (size_t)(query - path.data)) : head->target;
    head->host = host;
    return 0;
}

int kvr_http_parse_request(const char *data, size_t size, struct kvr_http_head *head,
                           struct kvr_error *error)
{
    struct parse parse = {.head = head};
    int rc = run_llhttp(&parse, HTTP_REQUEST, data, size, error);
    if (rc)
        return rc;
    struct kvr_slice host = {NULL, 0};
    rc = read_request_line(head, data, size, error);
    if (rc == 0)
        rc = kvr_http_read_framing(head, &host, error);
    return rc ? rc : kvr_http_read_target(head, host, error);
}

int kvr_http_parse_response(const char *data, size_t size, struct kvr_http_head *head,
                            struct kvr_error *error)
{
    struct parse parse = {.head = head};
    int rc = run_llhttp(&parse, HTTP_RESPONSE, data, size, error);
    if (rc)
        return rc;
    head->status = (uint16_t)llhttp_get_status_code(&parse.llhttp);
    if (head->status < 100 || head->status > 999)
        return kvr_error_set(error, KVR_E_INVALID, "status code out of range");
    struct kvr_slice host;
    return kvr_http_read_framing(head, &host, error);
}

struct kvr_slice kvr_http_find_header(const struct kvr_http_head *head, struct kvr_slice name)
{
    for (uint32_t i = 0; i < head->count; i++) {
        const struct kvr_header *header = &head->headers[i];
        if (header->name.len == name.len && kvr_same_nocase(header->name.data, name.data, name.len))
            return header->value;
    }
    return kvr_slice_make(NULL, 0);
}

/* By length first: this is asked of every header. */
static bool is_always_hop_by_hop(struct kvr_slice name)
{
    switch (name.len) {
    case 2:
        return kvr_slice_is_nocase(name, "te");
    case 7:
        return kvr_slice_is_nocase(name, "trailer") || kvr_slice_is_nocase(name, "upgrade");
    case 10:
        return kvr_slice_is_nocase(name, "keep-alive") || kvr_slice_is_nocase(name, "connection");
    case 14:
        return kvr_slice_is_nocase(name, "content-length");
    case 16:
        return kvr_slice_is_nocase(name, "proxy-connection");
    case 17:
        return kvr_slice_is_nocase(name, "transfer-encoding");
    case 18:
        return kvr_slice_is_nocase(name, "proxy-authenticate");
    case 19:
        return kvr_slice_is_nocase(name, "proxy-authorization");
    default:
        return false;
    }
}

bool kvr_http_is_hop_by_hop(const struct kvr_http_head *head, struct kvr_slice name)
{
    if (is_always_hop_by_hop(name))
        return true;
    if (head->connection.len == 0)
        return false;
    for (uint32_t i = 0; i < head->count; i++)
        if (kvr_slice_is_nocase(head->headers[i].name, "connection") &&
            list_has(head->headers[i].value, name))
            return true;
    return false;
}

bool kvr_http_response_has_body(uint16_t status, struct kvr_slice method)
{
    return !(status < 200 || status == 204 || status == 304 || kvr_slice_is(method, "HEAD"));
}
