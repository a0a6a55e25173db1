/* Operations of the layers of matrix memories: short convolutions, the memories with their gates, and norms of heads.

   Each takes some columns of a LINEAR operation over all rows, from `offset` on, and writes the gradient of these
   columns alone: together they take all. */

#ifndef MATRIX_LAYERS_H
#define MATRIX_LAYERS_H

#include "outer.h"
#include "program.h"
#include "sequences.h"

/* Convolutions ---------------------------------------------------------------------------------- */

/* saved: sums. carry[0]: the gradient of the sums of a row. */
static Convolution convolution_of(const Operation *op, const Operation *input, int rows, int batch,
                                  const uint8_t *first) {
  return (Convolution){.steps = rows / batch, .batch = batch, .channels = op->width, .taps = op->count,
                       .x_row = input->columns, .y_row = op->columns, .by_x_row = input->columns,
                       .by_y_row = op->columns, .x = input->value + op->offset, .weight = op->table,
                       .start = op->state[0], .first = first, .sums = op->saved[0], .y = op->value, .end = op->end[0],
                       .by_y = op->gradient, .by_sums = op->carry[0],
                       .by_x = input->gradient ? input->gradient + op->offset : NULL, .by_weight = op->table_gradient};
}

static void convolve_forward(const Operation *op, const Operation *input, int rows, int batch, const uint8_t *first) {
  Convolution convolution = convolution_of(op, input, rows, batch, first);
  convolution_forward(&convolution);
}

static void convolve_backward(const Operation *op, const Operation *input, int rows, int batch, const uint8_t *first) {
  Convolution convolution = convolution_of(op, input, rows, batch, first);
  convolution_backward(&convolution);
}

/* Gated DeltaNet -------------------------------------------------------------------------------- */

/* Up to WIDTH numbers, and zeros. */
INLINE Vec load_part(const float *from, int count) {
  float part[WIDTH] = {0};
  memcpy(part, from, (count < WIDTH ? count : WIDTH) * sizeof(float));
  return load(part);
}

INLINE void store_part(float *to, int count, Vec x) {
  memcpy(to, &x, (count < WIDTH ? count : WIDTH) * sizeof(float));
}

/* The logarithm of a decay is -exp(rate) softplus(x + step). */
INLINE Vec softplus(Vec x) { return larger(x, all(0.0f)) + log1p_(exp_(-size_of(x))); }

/* input: queries, keys and values. other: beta before sigmoid, and x of the decay, (rows, N) each. vectors: rate and
   step of `width` heads; `count` numbers of a key and of a value. saved: beta, decay, and gradients of both. */
static Matrix delta_of(const Operation *op, const Operation *input, int rows, int batch, const uint8_t *first) {
  int heads = op->width, size = op->count, width = heads * size;
  const float *x = input->value;
  float *dx = input->gradient;
  return (Matrix){.steps = rows / batch, .batch = batch, .heads = heads, .keys = size, .values = size, .is_delta = 1,
                  .query_row = input->columns, .key_row = input->columns, .value_row = input->columns,
                  .query_head = size, .key_head = size, .value_head = size, .output_row = op->columns,
                  .by_query_row = input->columns, .by_key_row = input->columns, .by_value_row = input->columns,
                  .query = x, .key = x + width, .value = x + 2 * width, .beta = op->saved[0], .decay = op->saved[1],
                  .start = op->state[0], .first = first, .by_query = dx, .by_key = dx + width,
                  .by_value = dx + 2 * width, .by_beta = op->saved[2], .by_decay = op->saved[2] + (long)rows * heads,
                  .scratch = op->carry[0]};
}

static void delta_forward(const Operation *op, const Operation *input, const Operation *other, int rows, int batch,
                          const uint8_t *first) {
  int heads = op->width;
  const float *rate = op->packed, *step = rate + op->columns;
  for (int row = 0; row < rows; row++) {
    const float *x = other->value + (long)row * other->columns + op->offset;
    for (int n = 0; n < heads; n += WIDTH) {
      long at = (long)row * heads + n;
      Vec wait = softplus(load_part(x + heads + n, heads - n) + load(step + n));
      store_part(op->saved[0] + at, heads - n, logistic(load_part(x + n, heads - n)));
      store_part(op->saved[1] + at, heads - n, exp_(-exp_(load(rate + n)) * wait));
    }
  }
  Matrix matrix = delta_of(op, input, rows, batch, first);
  matrix.output = op->value, matrix.end = op->end[0];
  matrix_forward(&matrix);
}

static void delta_backward(const Operation *op, const Operation *input, const Operation *other, int rows, int batch,
                           const uint8_t *first) {
  int heads = op->width;
  const float *rate = op->packed, *step = rate + op->columns;
  float *by_rate = op->vector_sums, *by_step = by_rate + op->columns;
  Matrix matrix = delta_of(op, input, rows, batch, first);
  matrix.by_output = op->gradient;
  matrix_backward(&matrix);
  for (int row = 0; row < rows; row++) {
    const float *x = other->value + (long)row * other->columns + op->offset;
    float *dx = other->gradient + (long)row * other->columns + op->offset;
    for (int n = 0; n < heads; n += WIDTH) {
      long at = (long)row * heads + n;
      Vec beta = load_part(op->saved[0] + at, heads - n), decay = load_part(op->saved[1] + at, heads - n);
      Vec by_log = load_part(matrix.by_decay + at, heads - n) * decay * -exp_(load(rate + n));
      Vec waited = load_part(x + heads + n, heads - n) + load(step + n), by_wait = by_log * logistic(waited);
      store_part(dx + n, heads - n, load_part(matrix.by_beta + at, heads - n) * (beta * (1.0f - beta)));
      store_part(dx + heads + n, heads - n, by_wait);
      store(by_rate + n, fma_(by_log, softplus(waited), load(by_rate + n)));
      store(by_step + n, load(by_step + n) + by_wait);
    }
  }
}

/* Norms of heads -------------------------------------------------------------------------------- */

/* value = gain x / sqrt(mean of x^2 + scale) silu(g), with the mean over each of the heads of `width`; g are columns of
   `other`. saved: 1 / sqrt, of each head in the first of its columns. carry[0]: silu(g); carry[1]: by silu(g). */
static void head_norm_forward(const Operation *op, const Operation *input, const Operation *other, int row, int count) {
  int size = op->width, width = size * op->heads;
  for (int r = 0; r < count; r++) {
    const float *x = value_at(input, row) + (long)r * input->columns;
    float *value = value_at(op, row) + (long)r * op->columns, *saved = op->saved[0] + (long)(row + r) * op->columns;
    silu_forward(width, value_at(other, row) + (long)r * other->columns + op->offset, op->carry[0]);
    for (int from = 0; from < width; from += size) {
      float inverse = 1.0f / __builtin_sqrtf(row_product(size, x + from, x + from) / size + op->scale);
      for (int i = 0; i < size; i++) value[from + i] = x[from + i] * inverse * op->packed[i] * op->carry[0][from + i];
      saved[from] = inverse;
    }
  }
}

static void head_norm_backward(const Operation *op, const Operation *input, const Operation *other, int row, int count) {
  int size = op->width, width = size * op->heads;
  float *open = op->carry[0], *by_open = op->carry[1];
  const float *gain = op->packed;
  for (int r = 0; r < count; r++) {
    const float *x = value_at(input, row) + (long)r * input->columns, *saved = op->saved[0] + (long)(row + r) * op->columns;
    float *dy = gradient_at(op, row) + (long)r * op->columns, *dx = gradient_at(input, row) + (long)r * input->columns;
    long gate = (long)r * other->columns + op->offset;
    silu_forward(width, value_at(other, row) + gate, open);
    for (int from = 0; from < width; from += size) {
      float inverse = saved[from];
      for (int i = 0; i < size; i++) {
        float normed = x[from + i] * inverse, d = dy[from + i];
        by_open[from + i] = d * normed * gain[i];
        op->vector_sums[i] += d * normed * open[from + i];
        dy[from + i] = d * gain[i] * open[from + i];
      }
      float along = row_product(size, dy + from, x + from) * inverse * inverse / size;
      for (int i = 0; i < size; i++) dx[from + i] = (dy[from + i] - x[from + i] * along) * inverse;
    }
    silu_backward(width, value_at(other, row) + gate, by_open, gradient_at(other, row) + gate);
  }
}

#endif
