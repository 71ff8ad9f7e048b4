/* A second opinion on JSON: recursive, a byte at a time, written from RFC 8259. Shares no code with
 * core/base. As json_reader.h promises, a byte-order mark may lead, and UTF-8 is not looked at. */
#ifndef NAIVE_JSON_H
#define NAIVE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "slice.h"

#define NAIVE_DEPTH_MAX 256 /* containers in one another */

enum naive_verdict { NAIVE_GOOD, NAIVE_BAD, NAIVE_DEEP };

struct naive_json {
    const char *at;
    const char *end;
    unsigned depth;
    bool deep; /* it was nested too deeply: nothing else is known */
};

static inline void naive_blanks(struct naive_json *json)
{
    while (json->at < json->end && strchr(" \t\r\n", *json->at) && *json->at)
        json->at++;
}

static inline bool naive_take(struct naive_json *json, char c)
{
    if (json->at == json->end || *json->at != c)
        return false;
    json->at++;
    return true;
}

static inline bool naive_word(struct naive_json *json, const char *word)
{
    for (; *word; word++)
        if (!naive_take(json, *word))
            return false;
    return true;
}

static inline bool naive_digits(struct naive_json *json)
{
    const char *start = json->at;
    while (json->at < json->end && *json->at >= '0' && *json->at <= '9')
        json->at++;
    return json->at > start;
}

static inline bool naive_number(struct naive_json *json)
{
    naive_take(json, '-');
    if (!naive_take(json, '0') && !naive_digits(json))
        return false;
    if (naive_take(json, '.') && !naive_digits(json))
        return false;
    if (naive_take(json, 'e') || naive_take(json, 'E')) {
        if (!naive_take(json, '+'))
            naive_take(json, '-');
        return naive_digits(json);
    }
    return true;
}

static inline bool naive_is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static inline bool naive_string(struct naive_json *json)
{
    if (!naive_take(json, '"'))
        return false;
    while (json->at < json->end) {
        char c = *json->at++;
        if (c == '"')
            return true;
        if ((unsigned char)c < 0x20)
            return false;
        if (c != '\\')
            continue;
        if (json->at == json->end)
            return false;
        c = *json->at++;
        if (c == 'u') {
            for (int i = 0; i < 4; i++)
                if (json->at == json->end || !naive_is_hex(*json->at++))
                    return false;
        } else if (c == '\0' || !strchr("\"\\/bfnrt", c)) {
            return false;
        }
    }
    return false;
}

static inline bool naive_value(struct naive_json *json);

static inline bool naive_object(struct naive_json *json)
{
    naive_blanks(json);
    if (naive_take(json, '}'))
        return true;
    do {
        naive_blanks(json);
        if (!naive_string(json))
            return false;
        naive_blanks(json);
        if (!naive_take(json, ':') || !naive_value(json))
            return false;
        naive_blanks(json);
    } while (naive_take(json, ','));
    return naive_take(json, '}');
}

static inline bool naive_array(struct naive_json *json)
{
    naive_blanks(json);
    if (naive_take(json, ']'))
        return true;
    do {
        if (!naive_value(json))
            return false;
        naive_blanks(json);
    } while (naive_take(json, ','));
    return naive_take(json, ']');
}

static inline bool naive_value(struct naive_json *json)
{
    naive_blanks(json);
    if (json->at == json->end)
        return false;
    if (*json->at == '{' || *json->at == '[') {
        bool object = *json->at++ == '{';
        if (json->depth == NAIVE_DEPTH_MAX) {
            json->deep = true;
            return false;
        }
        json->depth++;
        bool good = object ? naive_object(json) : naive_array(json);
        json->depth--;
        return good;
    }
    switch (*json->at) {
    case '"':
        return naive_string(json);
    case 't':
        return naive_word(json, "true");
    case 'f':
        return naive_word(json, "false");
    case 'n':
        return naive_word(json, "null");
    default:
        return naive_number(json);
    }
}

/* One whole text. `object`: it must be an object. */
static inline enum naive_verdict naive_json(struct kvr_slice text, bool object)
{
    struct naive_json json = {.at = text.data, .end = text.data + text.len};
    if (text.len >= 3 && memcmp(text.data, "\xef\xbb\xbf", 3) == 0)
        json.at += 3;
    naive_blanks(&json);
    if (object && (json.at == json.end || *json.at != '{'))
        return NAIVE_BAD;
    bool good = naive_value(&json);
    if (json.deep)
        return NAIVE_DEEP;
    naive_blanks(&json);
    return good && json.at == json.end ? NAIVE_GOOD : NAIVE_BAD;
}

#endif
