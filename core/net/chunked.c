#include "chunked.h"

#include "error.h"

enum {
    SIZE,
    EXTENSION,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER_START,
    TRAILER,
    TRAILER_LF,
    END_LF,
    DONE
};

static int hex_digit(unsigned char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A control that no extension or trailer line may hold. CR and LF are handled by the state. */
static bool is_bad(unsigned char c)
{
    return (c < 0x20 && c != '\t') || c == 0x7f;
}

static int size_byte(struct kvr_chunked *chunked, unsigned char c)
{
    int digit = hex_digit(c);
    if (digit >= 0) {
        if (++chunked->digits > 15)
            return KVR_E_INVALID;
        chunked->left = chunked->left << 4 | (uint64_t)digit;
        return 0;
    }
    if (chunked->digits == 0)
        return KVR_E_INVALID;
    if (c == '\r')
        chunked->state = SIZE_LF;
    else if (c == ';')
        chunked->state = EXTENSION;
    else
        return KVR_E_INVALID;
    return 0;
}

static int extension_byte(struct kvr_chunked *chunked, unsigned char c)
{
    if (c == '\r') {
        chunked->state = SIZE_LF;
        return 0;
    }
    return is_bad(c) || ++chunked->extra > KVR_CHUNK_EXTENSION_MAX ? KVR_E_INVALID : 0;
}

static int trailer_byte(struct kvr_chunked *chunked, unsigned char c)
{
    if (c == '\r') {
        chunked->state = chunked->state == TRAILER_START ? END_LF : TRAILER_LF;
        return 0;
    }
    /* A line that starts with a blank would continue the one before it: no folding. */
    if (chunked->state == TRAILER_START && (c == ' ' || c == '\t'))
        return KVR_E_INVALID;
    chunked->state = TRAILER;
    return is_bad(c) || ++chunked->extra > KVR_CHUNK_TRAILER_MAX ? KVR_E_INVALID : 0;
}

static int line_feed(struct kvr_chunked *chunked, unsigned char c)
{
    if (c != '\n')
        return KVR_E_INVALID;
    switch (chunked->state) {
    case SIZE_LF:
        chunked->state = chunked->left ? DATA : TRAILER_START;
        chunked->extra = 0;
        break;
    case DATA_LF:
        chunked->state = SIZE;
        chunked->digits = 0;
        break;
    case TRAILER_LF:
        chunked->state = TRAILER_START;
        break;
    default:
        chunked->state = DONE;
    }
    return 0;
}

static int one_byte(struct kvr_chunked *chunked, unsigned char c)
{
    switch (chunked->state) {
    case SIZE:
        return size_byte(chunked, c);
    case EXTENSION:
        return extension_byte(chunked, c);
    case DATA_CR:
        chunked->state = DATA_LF;
        return c == '\r' ? 0 : KVR_E_INVALID;
    case TRAILER_START:
    case TRAILER:
        return trailer_byte(chunked, c);
    default:
        return line_feed(chunked, c);
    }
}

int64_t kvr_chunked_next(struct kvr_chunked *chunked, const char *data, size_t len,
                         struct kvr_slice *piece)
{
    *piece = kvr_slice_make(NULL, 0);
    size_t used = 0;
    while (used < len && chunked->state != DONE) {
        if (chunked->state == DATA) {
            size_t take = len - used < chunked->left ? len - used : (size_t)chunked->left;
            *piece = kvr_slice_make(data + used, take);
            chunked->left -= take;
            if (chunked->left == 0)
                chunked->state = DATA_CR;
            return (int64_t)(used + take);
        }
        if (one_byte(chunked, (unsigned char)data[used]) != 0)
            return KVR_E_INVALID;
        used++;
    }
    return (int64_t)used;
}

bool kvr_chunked_done(const struct kvr_chunked *chunked)
{
    return chunked->state == DONE;
}
