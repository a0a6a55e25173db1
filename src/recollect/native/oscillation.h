/* Steps of a recurrence h[t] = d h[t-1] + b[t] of complex numbers, with one decay d for each unit.

   Of H units, H real parts come before H imaginary parts. */

#ifndef OSCILLATION_H
#define OSCILLATION_H

#include "lanes.h"

/* h = d x + b with d = c + i s. */
INLINE void oscillate(int units, const float *restrict c, const float *restrict s, const float *restrict x,
                      const float *restrict b, float *restrict h) {
  for (int i = 0; i < units; i++) {
    h[i] = c[i] * x[i] - s[i] * x[units + i] + b[i];
    h[units + i] = c[i] * x[units + i] + s[i] * x[i] + b[units + i];
  }
}

/* The gradient of x, and those of c and s added to dc and ds. */
INLINE void oscillate_back(int units, const float *restrict c, const float *restrict s, const float *restrict x,
                           const float *restrict dh, float *restrict dc, float *restrict ds, float *restrict by_x) {
  for (int i = 0; i < units; i++) {
    dc[i] += dh[i] * x[i] + dh[units + i] * x[units + i];
    ds[i] += dh[units + i] * x[i] - dh[i] * x[units + i];
    by_x[i] = c[i] * dh[i] + s[i] * dh[units + i];
    by_x[units + i] = c[i] * dh[units + i] - s[i] * dh[i];
  }
}

#endif
