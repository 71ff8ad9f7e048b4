#include "json_number.h"

#include <math.h>
#include <stdint.h>

static inline const char *digits(const char *at, const char *end)
{
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at;
}

bool kvr_json_number_scan(const char **number, const char *end)
{
    const char *at = *number;
    if (at < end && *at == '-')
        at++;
    const char *whole = at;
    at = at < end && *at == '0' ? at + 1 : digits(at, end); /* nothing may follow a leading zero */
    bool good = at > whole;
    if (good && at < end && *at == '.') {
        const char *fraction = ++at;
        at = digits(at, end);
        good = at > fraction;
    }
    if (good && at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (at < end && (*at == '+' || *at == '-'))
            at++;
        const char *exponent = at;
        at = digits(at, end);
        good = at > exponent;
    }
    *number = at;
    return good;
}

/* value * 10^exponent by squaring: the same operations everywhere. */
static double scale10(double value, int exponent)
{
    bool small = exponent < 0;
    double power = 1, base = 10;
    for (unsigned left = (unsigned)(small ? -exponent : exponent); left; left >>= 1) {
        if (left & 1)
            power *= base;
        base *= base;
    }
    return small ? value / power : value * power;
}

/* The digits of exponent text, with its sign; stops counting far beyond what a double can hold. */
static int exponent_value(const char *at, const char *end)
{
    int value = 0;
    bool negative = at < end && *at == '-';
    if (at < end && (*at == '-' || *at == '+'))
        at++;
    for (; at < end; at++)
        value = value < 100000 ? value * 10 + (*at - '0') : value;
    return negative ? -value : value;
}

double kvr_json_number_value(struct kvr_slice number)
{
    const char *at = number.data, *end = number.len ? number.data + number.len : number.data;
    bool negative = at < end && *at == '-';
    bool fraction = false;
    uint64_t mantissa = 0;
    int exponent = 0;
    if (negative)
        at++;
    for (; at < end && *at != 'e' && *at != 'E'; at++) {
        if (*at == '.') {
            fraction = true;
            continue;
        }
        bool kept = mantissa < 100000000000000000u; /* further digits only shift the point */
        if (kept)
            mantissa = mantissa * 10 + (uint64_t)(*at - '0');
        exponent += (kept ? 0 : 1) - (fraction ? 1 : 0);
    }
    if (at < end)
        exponent += exponent_value(at + 1, end);
    double value = (double)mantissa;
    if (mantissa && exponent > 400)
        value = INFINITY;
    else if (mantissa && exponent < -400)
        value = 0;
    else if (mantissa && exponent < -300) /* 10^|exponent| alone would overflow */
        value = scale10(scale10(value, -300), exponent + 300);
    else if (mantissa && exponent)
        value = scale10(value, exponent);
    return negative ? -value : value;
}
