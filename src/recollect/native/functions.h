/* exp, log, tanh and sigmoid of vectors, within 5 units in the last place of float32 (tests/native); sigmoid within 2e-7.

   The functions of the C library differ between machines; these do not. The coefficients are minimax fits of
   the function that is named beside them. */

#ifndef FUNCTIONS_H
#define FUNCTIONS_H

#include "lanes.h"

static const float LOG2_E = 1.44269504f;
/* ln 2 in two parts: n times the first is exact for every exponent n. */
static const float LN2_HIGH = 0.693359375f, LN2_LOW = -2.12194440e-4f;

/* exp(x) = 2^n exp(r) with |r| <= ln(2) / 2; exp(r) = 1 + r + r^2 p(r). */
INLINE Vec exp_(Vec x) {
  const Vec huge = all(88.72f), tiny = all(-87.33f), to_integer = all(12582912.0f); /* 1.5 2^23 */
  Vec bounded = smaller(huge, larger(tiny, x));
  /* Adding 1.5 2^23 leaves no bits for a fraction, so the sum is rounded to an integer. */
  Vec n = bounded * LOG2_E + to_integer - to_integer;
  Vec r = fma_(n, all(-LN2_HIGH), bounded);
  r = fma_(n, all(-LN2_LOW), r);
  Vec p = all(0.00138145981f);
  p = fma_(p, r, all(0.00836871729f));
  p = fma_(p, r, all(0.0416683881f));
  p = fma_(p, r, all(0.166665206f));
  p = fma_(p, r, all(0.499999934f));
  p = fma_(p, r * r, r) + 1.0f;
  /* 2^n in two factors: 2^128 is no float32, but exp(88.7) is. */
  Ints exponent = __builtin_convertvector(n, Ints), half = exponent >> 1;
  Vec scaled = p * (Vec)((half + 127) << 23) * (Vec)((exponent - half + 127) << 23);
  return choose(x > huge, all(__builtin_inff()), scaled);
}

/* log(x) for normal x > 0: x = 2^e (1 + m), 1 + m in [sqrt(1/2), sqrt(2)); log(1 + m) = m - m^2 / 2 + m^3 p(m). */
INLINE Vec log_(Vec x) {
  Ints bits = (Ints)x;
  Vec e = __builtin_convertvector((bits >> 23) - 126, Vec);
  Vec m = (Vec)((bits & 0x7fffff) | 0x3f000000); /* in [1/2, 1) */
  Ints below = m < 0.707106781f;
  e = choose(below, e - 1.0f, e);
  m = choose(below, m + m, m) - 1.0f;
  Vec p = all(0.0674663698f);
  p = fma_(p, m, all(-0.116756657f));
  p = fma_(p, m, all(0.118881716f));
  p = fma_(p, m, all(-0.124055875f));
  p = fma_(p, m, all(0.142195509f));
  p = fma_(p, m, all(-0.166679959f));
  p = fma_(p, m, all(0.200021187f));
  p = fma_(p, m, all(-0.250000096f));
  p = fma_(p, m, all(0.333333126f));
  Vec square = m * m;
  Vec low = fma_(e, all(LN2_LOW), fma_(p * m, square, square * -0.5f));
  return fma_(e, all(LN2_HIGH), m + low);
}

/* tanh(x) = x p(x^2) / q(x^2) for |x| <= 9, where it is 1 - 3e-8. */
INLINE Vec tanh_(Vec x) {
  x = smaller(all(9.0f), larger(all(-9.0f), x));
  Vec y = x * x;
  Vec p = all(-1.2246174e-11f);
  p = fma_(p, y, all(3.0642423e-08f));
  p = fma_(p, y, all(2.80312647e-05f));
  p = fma_(p, y, all(0.00386950562f));
  p = fma_(p, y, all(0.136808545f));
  p = fma_(p, y, all(0.999999999f));
  Vec q = all(1.28903195e-06f);
  q = fma_(q, y, all(0.000394070925f));
  q = fma_(q, y, all(0.0272501478f));
  q = fma_(q, y, all(0.470141866f));
  q = fma_(q, y, all(1.0f));
  return x * p / q;
}

INLINE Vec sigmoid_(Vec x) { return fma_(tanh_(x * 0.5f), all(0.5f), all(0.5f)); }

#endif
