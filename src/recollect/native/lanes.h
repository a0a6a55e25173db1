/* Vectors of floats, and the few operations that C has no operator for.

   Results must not depend on the processor, so nothing outside this file may depend on WIDTH: sums run
   either down a column, one chain for each lane, or into LANES accumulators whatever the width is. */

#ifndef LANES_H
#define LANES_H

#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
enum { WIDTH = 16 };
#elif defined(__AVX2__)
#include <immintrin.h>
enum { WIDTH = 8 };
#elif defined(__aarch64__)
#include <arm_neon.h>
enum { WIDTH = 4 };
#else
#error "the kernels need AVX2 or NEON"
#endif

enum { LANES = 16 }; /* accumulators of a sum over rows: the widest vector */

typedef float Vec __attribute__((vector_size(4 * WIDTH)));
typedef int32_t Ints __attribute__((vector_size(4 * WIDTH)));

#define INLINE static inline __attribute__((always_inline))
#define EXPORT __attribute__((visibility("default"))) /* called from Python; all else is hidden (library.py) */

INLINE Vec load(const float *p) {
  Vec x;
  memcpy(&x, p, sizeof x);
  return x;
}

INLINE void store(float *p, Vec x) { memcpy(p, &x, sizeof x); }

INLINE Vec all(float x) { return x - (Vec){0}; }

/* a b + c, rounded once. Compilers may not fuse by themselves (-ffp-contract=off): whether they do depends
   on the optimisation level. For larger and smaller, a NaN in b is returned. */
#if defined(__AVX512F__)
INLINE Vec fma_(Vec a, Vec b, Vec c) { return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
INLINE Vec larger(Vec a, Vec b) { return (Vec)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE Vec smaller(Vec a, Vec b) { return (Vec)_mm512_min_ps((__m512)a, (__m512)b); }
#elif defined(__AVX2__)
INLINE Vec fma_(Vec a, Vec b, Vec c) { return (Vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
INLINE Vec larger(Vec a, Vec b) { return (Vec)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE Vec smaller(Vec a, Vec b) { return (Vec)_mm256_min_ps((__m256)a, (__m256)b); }
#else
INLINE Vec fma_(Vec a, Vec b, Vec c) { return (Vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
INLINE Vec larger(Vec a, Vec b) { return (Vec)vmaxq_f32((float32x4_t)a, (float32x4_t)b); }
INLINE Vec smaller(Vec a, Vec b) { return (Vec)vminq_f32((float32x4_t)a, (float32x4_t)b); }
#endif

/* yes where the mask of a comparison is set, elsewhere no. */
INLINE Vec choose(Ints mask, Vec yes, Vec no) { return (Vec)((mask & (Ints)yes) | (~mask & (Ints)no)); }

INLINE Vec size_of(Vec x) { return (Vec)((Ints)x & 0x7fffffff); }

/* The sum of LANES accumulators, always as the same tree. */
INLINE float sum_lanes(const float *x) {
  float sums[LANES];
  memcpy(sums, x, sizeof sums);
  for (int half = LANES / 2; half; half /= 2)
    for (int i = 0; i < half; i++) sums[i] += sums[i + half];
  return sums[0];
}

/* Whether an episode opens in this row; NULL: in none. */
INLINE int opens(const uint8_t *first, long row) { return first && first[row]; }

INLINE float kept(const uint8_t *first, long row) { return opens(first, row) ? 0.0f : 1.0f; }

INLINE int padded(int n) { return (n + WIDTH - 1) / WIDTH * WIDTH; }

#endif
