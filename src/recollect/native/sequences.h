/* Recurrences over whole sequences, with their gradients: element-wise ones and short convolutions. Matrix memories are
   in outer.h.

   Where `first` is true, the state before the step is 0, and no gradient passes. Gradients are written, not added.

   Shapes.  T steps, B sequences, H units, D channels, J taps. */

#ifndef SEQUENCES_H
#define SEQUENCES_H

#include "functions.h"
#include "oscillation.h"

/* Decays of every unit and step ---------------------------------------------------------------------- */

/* states[t] = decay[t] states[t-1] + add[t]. */
EXPORT void scan_forward(int steps, int batch, int units, const float *decay, const float *add, const uint8_t *first,
                         const float *start, float *states) {
  for (long row = 0; row < (long)steps * batch; row++) {
    const float *restrict x = row < batch ? start + row * units : states + (row - batch) * units,
                *restrict a = decay + row * units, *restrict b = add + row * units;
    float *restrict now = states + row * units;
    if (first[row]) memcpy(now, b, units * sizeof(float));
    else
      for (int i = 0; i < units; i++) now[i] = a[i] * x[i] + b[i];
  }
}

EXPORT void scan_backward(int steps, int batch, int units, const float *decay, const uint8_t *first,
                          const float *start, const float *states, const float *by_states, float *by_decay,
                          float *by_add, float *by_start) {
  memset(by_start, 0, (long)batch * units * sizeof(float));
  for (long row = (long)steps * batch - 1; row >= 0; row--) {
    const float *restrict x = row < batch ? start + row * units : states + (row - batch) * units,
                *restrict a = decay + row * units, *restrict dy = by_states + row * units;
    float *restrict carry = by_start + row % batch * units, *restrict da = by_decay + row * units,
                   *restrict dh = by_add + row * units;
    for (int i = 0; i < units; i++) dh[i] = dy[i] + carry[i];
    if (first[row]) {
      memset(carry, 0, units * sizeof(float));
      memset(da, 0, units * sizeof(float));
    } else
      for (int i = 0; i < units; i++) {
        da[i] = dh[i] * x[i];
        carry[i] = dh[i] * a[i];
      }
  }
}

/* One complex decay for each unit (oscillation.h): decay (2 H), all else (.., 2 H). */
EXPORT void oscillate_forward(int steps, int batch, int units, const float *decay, const float *add, const uint8_t *first,
                         const float *start, float *states) {
  long width = 2L * units;
  for (long row = 0; row < (long)steps * batch; row++) {
    const float *before = row < batch ? start + row * width : states + (row - batch) * width;
    if (first[row]) memcpy(states + row * width, add + row * width, width * sizeof(float));
    else oscillate(units, decay, decay + units, before, add + row * width, states + row * width);
  }
}

EXPORT void oscillate_backward(int steps, int batch, int units, const float *decay, const uint8_t *first,
                          const float *start, const float *states, const float *by_states, float *by_decay,
                          float *by_add, float *by_start) {
  long width = 2L * units;
  memset(by_decay, 0, width * sizeof(float));
  memset(by_start, 0, batch * width * sizeof(float));
  for (long row = (long)steps * batch - 1; row >= 0; row--) {
    const float *before = row < batch ? start + row * width : states + (row - batch) * width;
    float *carry = by_start + row % batch * width, *dh = by_add + row * width;
    for (int i = 0; i < width; i++) dh[i] = by_states[row * width + i] + carry[i];
    if (first[row]) memset(carry, 0, width * sizeof(float));
    else oscillate_back(units, decay, decay + units, before, dh, by_decay, by_decay + units, carry);
  }
}

/* Short convolutions --------------------------------------------------------------------------------- */

/* y[t] = silu(p[t]), p[t] = sum over j of taps[j] x[t-j] within the episode. x, y and their gradients have a row of so
   many numbers for each step and sequence; taps (J, D), start and end (B, J-1, D) the last inputs, the oldest first.
   `end` may be `start`. NULL: by_end is 0, by_start is not needed. */
typedef struct {
  int32_t steps, batch, channels, taps;
  int64_t x_row, y_row, by_x_row, by_y_row;
  const float *x, *weight, *start;
  const uint8_t *first;
  float *sums, *y, *end; /* sums: p, for the gradient */
  const float *by_y, *by_end;
  float *by_sums, *by_x, *by_weight, *by_start; /* by_sums: of one row */
} Convolution;

/* The steps before (t, b) that are of its episode and within the taps, as far as this call sees. */
static int steps_before(const Convolution *o, int t, int b) {
  int count = 0;
  while (count < o->taps - 1 && (t - count < 0 || !opens(o->first, (long)(t - count) * o->batch + b))) count++;
  return count;
}

/* The input of step t, or the one that was carried, t < 0. */
INLINE const float *input_at(const Convolution *o, int t, int b) {
  if (t >= 0) return o->x + ((long)t * o->batch + b) * o->x_row;
  return o->start + ((long)b * (o->taps - 1) + o->taps - 1 + t) * o->channels;
}

/* Not with sigmoid_, whose error is absolute: a key of very small numbers is divided by its length. */
INLINE Vec logistic(Vec p) { return 1.0f / (1.0f + exp_(-p)); }

INLINE Vec silu(Vec p) { return p * logistic(p); }

INLINE Vec silu_slope(Vec p) {
  Vec s = logistic(p);
  return s * fma_(p, 1.0f - s, all(1.0f));
}

/* y = silu(p); the last numbers in a vector that is filled with zeros. */
static void silu_forward(int width, const float *p, float *y) {
  int i = 0;
  for (; i + WIDTH <= width; i += WIDTH) store(y + i, silu(load(p + i)));
  float rest[WIDTH] = {0};
  memcpy(rest, p + i, (width - i) * sizeof(float));
  store(rest, silu(load(rest)));
  memcpy(y + i, rest, (width - i) * sizeof(float));
}

static void silu_backward(int width, const float *p, const float *dy, float *dp) {
  int i = 0;
  for (; i + WIDTH <= width; i += WIDTH) store(dp + i, load(dy + i) * silu_slope(load(p + i)));
  float rest[WIDTH] = {0};
  memcpy(rest, p + i, (width - i) * sizeof(float));
  store(rest, silu_slope(load(rest)));
  for (int r = 0; r < width - i; r++) dp[i + r] = dy[i + r] * rest[r];
}

EXPORT void convolution_forward(const Convolution *o) {
  int width = o->channels;
  for (int t = 0; t < o->steps; t++)
    for (int b = 0; b < o->batch; b++) {
      long row = (long)t * o->batch + b;
      const float *restrict now = input_at(o, t, b), *restrict w = o->weight;
      float *restrict p = o->sums + row * width;
      for (int i = 0; i < width; i++) p[i] = w[i] * now[i];
      int count = steps_before(o, t, b);
      for (int j = 1; j <= count; j++) {
        const float *restrict x = input_at(o, t - j, b), *restrict tap = o->weight + (long)j * width;
        for (int i = 0; i < width; i++) p[i] += tap[i] * x[i];
      }
      silu_forward(width, p, o->y + row * o->y_row);
    }
  for (int b = 0; b < o->batch; b++) {
    /* What a step after the last one would see, which is not a first step. */
    int last = o->steps - 1, count = 1 + steps_before(o, last, b);
    for (int j = o->taps - 1; o->end && j > 0; j--) {
      float *to = o->end + ((long)b * (o->taps - 1) + o->taps - 1 - j) * width;
      if (j <= count) memcpy(to, input_at(o, last + 1 - j, b), width * sizeof(float));
      else memset(to, 0, width * sizeof(float));
    }
  }
}

/* The gradient of the input of step t, or of the one that was carried. */
INLINE float *gradient_of_input(const Convolution *o, int t, int b) {
  if (t >= 0) return o->by_x + ((long)t * o->batch + b) * o->by_x_row;
  return !o->by_start ? NULL : o->by_start + ((long)b * (o->taps - 1) + o->taps - 1 + t) * o->channels;
}

EXPORT void convolution_backward(const Convolution *o) {
  int width = o->channels;
  memset(o->by_weight, 0, (long)o->taps * width * sizeof(float));
  if (o->by_start) memset(o->by_start, 0, (long)o->batch * (o->taps - 1) * width * sizeof(float));
  for (long row = 0; row < (long)o->steps * o->batch; row++) memset(o->by_x + row * o->by_x_row, 0, width * sizeof(float));
  for (int t = 0; t < o->steps; t++)
    for (int b = 0; b < o->batch; b++) {
      long row = (long)t * o->batch + b;
      float *restrict dp = o->by_sums;
      silu_backward(width, o->sums + row * width, o->by_y + row * o->by_y_row, dp);
      int count = steps_before(o, t, b);
      for (int j = 0; j <= count; j++) {
        const float *restrict x = input_at(o, t - j, b), *restrict tap = o->weight + (long)j * width;
        float *restrict dx = gradient_of_input(o, t - j, b), *restrict dw = o->by_weight + (long)j * width;
        for (int i = 0; i < width; i++) dw[i] += x[i] * dp[i];
        for (int i = 0; dx && i < width; i++) dx[i] += tap[i] * dp[i];
      }
    }
  for (int b = 0; o->by_end && b < o->batch; b++) {
    int last = o->steps - 1, count = 1 + steps_before(o, last, b);
    for (int j = 1; j < o->taps && j <= count; j++) {
      const float *by_end = o->by_end + ((long)b * (o->taps - 1) + o->taps - 1 - j) * width;
      float *dx = gradient_of_input(o, last + 1 - j, b);
      for (int i = 0; i < width; i++) dx[i] += by_end[i];
    }
  }
}

#endif
