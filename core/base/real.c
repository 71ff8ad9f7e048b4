#include "real.h"

#include <math.h>
#include <string.h>

#include "check.h"

static double from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t to_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* 2^n for a normal result. */
static double power_of_two(int n)
{
    return from_bits((uint64_t)(n + 1023) << 52);
}

static const double ln2_high =
    0x1.62e42fee00000p-1; /* its low 20 bits are 0: k * ln2_high is exact */
static const double ln2_low = 0x1.a39ef35793c76p-33;
static const double inverse_ln2 = 0x1.71547652b82fep+0;

double kvr_real_exp(double x)
{
    if (x != x)
        return x;
    if (x > 709.782712893384)
        return (double)INFINITY;
    if (x < -745.2)
        return 0.0;
    /* x = k ln 2 + r with |r| <= ln 2 / 2, so that 14 terms of the series reach 1e-17. */
    double scaled = x * inverse_ln2;
    int k = (int)(scaled + (scaled >= 0.0 ? 0.5 : -0.5));
    double r = (x - (double)k * ln2_high) - (double)k * ln2_low;
    static const double inverse_factorials[] = {
        1.0 / 6227020800.0,
        1.0 / 479001600.0,
        1.0 / 39916800.0,
        1.0 / 3628800.0,
        1.0 / 362880.0,
        1.0 / 40320.0,
        1.0 / 5040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
        1.0,
        1.0,
    };
    double sum = 0.0;
    for (unsigned i = 0; i < sizeof inverse_factorials / sizeof inverse_factorials[0]; i++)
        sum = sum * r + inverse_factorials[i];
    /* Two factors, because 2^k alone may be subnormal or too large. */
    int half = k / 2;
    return sum * power_of_two(half) * power_of_two(k - half);
}

double kvr_real_log(double x)
{
    if (x != x || x < 0.0)
        return (double)NAN;
    if (x == 0.0)
        return -(double)INFINITY;
    if (x > 0x1.fffffffffffffp+1023)
        return x;
    int exponent = 0;
    if (x < 0x1.0p-1022) {
        x *= 0x1.0p+54;
        exponent = -54;
    }
    uint64_t bits = to_bits(x);
    exponent += (int)(bits >> 52) - 1023;
    double m = from_bits((bits & 0x000fffffffffffffu) | 0x3ff0000000000000u);
    if (m > 0x1.6a09e667f3bcdp+0) {
        m *= 0.5;
        exponent++;
    }
    /* log m = 2 atanh(s), |s| <= 0.172: 11 terms reach 1e-18. */
    double s = (m - 1.0) / (m + 1.0);
    double z = s * s;
    double sum = 0.0;
    for (int term = 23; term >= 3; term -= 2)
        sum = sum * z + 2.0 / (double)term;
    sum = sum * z * s;
    return (double)exponent * ln2_high + (2.0 * s + (sum + (double)exponent * ln2_low));
}

double kvr_real_pow(double x, double y)
{
    if (y == 0.0)
        return 1.0;
    return kvr_real_exp(y * kvr_real_log(x));
}

/* numerator(r) / denominator(r), both of degree 7; the denominator's constant term is 1. */
static double ratio(double r, const double numerator[8], const double denominator[8])
{
    double top = numerator[7];
    double bottom = denominator[7];
    for (int i = 6; i >= 0; i--) {
        top = top * r + numerator[i];
        bottom = bottom * r + denominator[i];
    }
    return top / bottom;
}

static const double centre_top[8] = {3.3871328727963666080e+0, 1.3314166789178437745e+2,
                                     1.9715909503065514427e+3, 1.3731693765509461125e+4,
                                     4.5921953931549871457e+4, 6.7265770927008700853e+4,
                                     3.3430575583588128105e+4, 2.5090809287301226727e+3};
static const double centre_bottom[8] = {1.0,
                                        4.2313330701600911252e+1,
                                        6.8718700749205790830e+2,
                                        5.3941960214247511077e+3,
                                        2.1213794301586595867e+4,
                                        3.9307895800092710610e+4,
                                        2.8729085735721942674e+4,
                                        5.2264952788528545610e+3};
static const double side_top[8] = {1.42343711074968357734e+0, 4.63033784615654529590e+0,
                                   5.76949722146069140550e+0, 3.64784832476320460504e+0,
                                   1.27045825245236838258e+0, 2.41780725177450611770e-1,
                                   2.27238449892691845833e-2, 7.74545014278341407640e-4};
static const double side_bottom[8] = {1.0,
                                      2.05319162663775882187e+0,
                                      1.67638483018380384940e+0,
                                      6.89767334985100004550e-1,
                                      1.48103976427480074590e-1,
                                      1.51986665636164571966e-2,
                                      5.47593808499534494600e-4,
                                      1.05075007164441684324e-9};
static const double tail_top[8] = {6.65790464350110377720e+0, 5.46378491116411436990e+0,
                                   1.78482653991729133580e+0, 2.96560571828504891230e-1,
                                   2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                   2.71155556874348757815e-5, 2.01033439929228813265e-7};
static const double tail_bottom[8] = {1.0,
                                      5.99832206555887937690e-1,
                                      1.36929880922735805310e-1,
                                      1.48753612908506148525e-2,
                                      7.86869131145613259100e-4,
                                      1.84631831751005468180e-5,
                                      1.42151175831644588870e-7,
                                      2.04426310338993978564e-15};

double kvr_real_normal_quantile(double p)
{
    KVR_CHECK(p > 0.0 && p < 1.0);
    double q = p - 0.5;
    if (q >= -0.425 && q <= 0.425)
        return q * ratio(0.180625 - q * q, centre_top, centre_bottom);
    double r = sqrt(-kvr_real_log(q < 0.0 ? p : 1.0 - p));
    double z =
        r <= 5.0 ? ratio(r - 1.6, side_top, side_bottom) : ratio(r - 5.0, tail_top, tail_bottom);
    return q < 0.0 ? -z : z;
}

double kvr_real_normal(uint64_t bits)
{
    /* The middle of one of 2^52 equal cells: never 0 and never 1. */
    return kvr_real_normal_quantile(((double)(bits >> 12) + 0.5) * 0x1.0p-52);
}
