/* exp, log, log(1 + x), tanh, erf, sigmoid, sin and cos of vectors, within 5 units in the last place of float32 (tests/native);
   sigmoid, sin and cos within 2e-7, erf within 4e-7.

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

/* log(1 + x) for finite x >= 0: the rounding of 1 + x is in both factors. */
INLINE Vec log1p_(Vec x) {
  Vec above = 1.0f + x, rounded = above - 1.0f;
  return choose(rounded > 0.0f, log_(above) * (x / choose(rounded > 0.0f, rounded, all(1.0f))), x);
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

/* erf(x) = x p(x^2) / q(x^2) for |x| <= 4, where it is 1 - 2e-8. */
INLINE Vec erf_(Vec x) {
  x = smaller(all(4.0f), larger(all(-4.0f), x));
  Vec y = x * x;
  Vec p = all(1.98677102e-06f);
  p = fma_(p, y, all(0.000284567233f));
  p = fma_(p, y, all(0.00388340582f));
  p = fma_(p, y, all(0.0531019386f));
  p = fma_(p, y, all(0.193546515f));
  p = fma_(p, y, all(1.12837914f));
  Vec q = all(3.74201257e-05f);
  q = fma_(q, y, all(0.00118558597f));
  q = fma_(q, y, all(0.0152073758f));
  q = fma_(q, y, all(0.115350601f));
  q = fma_(q, y, all(0.504858688f));
  q = fma_(q, y, all(1.0f));
  return smaller(all(1.0f), larger(all(-1.0f), x * p / q));
}

/* sin(x + quarters pi / 2), |x| < 1e5: x = n pi / 2 + r with |r| <= pi / 4. */
INLINE Vec wave(Vec x, int quarters) {
  const Vec to_integer = all(12582912.0f); /* 1.5 2^23 */
  Vec n = x * 0.636619772f + to_integer - to_integer;
  Vec r = fma_(n, all(-1.5703125f), x); /* pi / 2 in three parts */
  r = fma_(n, all(-0.000483751297f), r);
  r = fma_(n, all(-7.54978942e-08f), r);
  Vec y = r * r;
  Vec p = fma_(fma_(all(-0.000195108713f), y, all(0.00833213173f)), y, all(-0.166666542f));
  Vec sine = fma_(p * y, r, r);
  p = fma_(fma_(all(2.44312411e-05f), y, all(-0.00138873064f)), y, all(0.0416666457f));
  Vec cosine = fma_(p * y, y, fma_(y, all(-0.5f), all(1.0f)));
  Ints quarter = __builtin_convertvector(n, Ints) + quarters;
  Vec size = choose((quarter & 1) != 0, cosine, sine);
  return choose((quarter & 2) != 0, -size, size);
}

INLINE Vec sin_(Vec x) { return wave(x, 0); }

INLINE Vec cos_(Vec x) { return wave(x, 1); }

INLINE Vec sigmoid_(Vec x) { return fma_(tanh_(x * 0.5f), all(0.5f), all(0.5f)); }

#endif
