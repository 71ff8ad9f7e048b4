/* Exponential, logarithm and normal deviates that are the same to the last bit on any machine.
 *
 * The C library picks its implementation by the features of the processor, so its results may
 * differ between two machines in the last place, and one last place is enough to send a simulated
 * request elsewhere. These use only IEEE additions, multiplications, divisions and square roots, in
 * a fixed order; the build forbids contracting them (-ffp-contract=off). Errors stay below a few
 * units in the last place, which nobody here needs to be fewer. */
#ifndef KVR_REAL_H
#define KVR_REAL_H

#include <stdint.h>

/* e^x. 0 below -745.2, infinity above 709.8, NaN for NaN. */
double kvr_real_exp(double x);
/* Natural logarithm. -infinity for 0, NaN below, infinity for infinity. */
double kvr_real_log(double x);
/* x^y for x >= 0, as exp(y * log(x)); 0^0 is 1. */
double kvr_real_pow(double x, double y);
/* A standard normal deviate from 64 uniform random bits, by inversion of the distribution function
 * (Wichura's AS 241): one draw gives one number, so a deviate can be a pure function of a counter.
 */
double kvr_real_normal(uint64_t bits);
/* The quantile itself: the z with P(Z <= z) = p. p in (0, 1). */
double kvr_real_normal_quantile(double p);

#endif
