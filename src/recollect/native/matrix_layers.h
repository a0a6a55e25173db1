/* Operations of the layers of matrix memories: short convolutions, the memories with their gates, and norms of heads.

   Each takes some columns of a LINEAR operation over all rows, from `offset` on, and writes the gradient of these
   columns alone: together they take all. */

#ifndef MATRIX_LAYERS_H
#define MATRIX_LAYERS_H

#include "gated_norm.h"
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

/* Gated DeltaNet and Mamba-2 --------------------------------------------------------------------- */

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

/* Columns of the input: queries, keys and values of DELTA; values, and one key and query for all heads, of SELECTIVE.
   Columns of `other`: beta before sigmoid, only of DELTA, and x of the decay. vectors: rate and step, and of SELECTIVE the
   skip. saved: beta, which is softplus(x + step) for SELECTIVE, decay and the gradient of the decay, (rows, N) each; the
   gradient of beta takes its place. */
static Matrix matrix_of(const Operation *op, const Operation *input, int rows, int batch, const uint8_t *first) {
  int heads = op->width, keys = op->keys, values = op->count, is_delta = op->kind == DELTA;
  long at_value = is_delta ? 2L * heads * keys : 0, at_key = (long)heads * (is_delta ? keys : values);
  long at_query = is_delta ? 0 : at_key + keys, row = input->columns, head = is_delta ? keys : 0;
  const float *x = input->value;
  float *dx = input->gradient;
  return (Matrix){.steps = rows / batch, .batch = batch, .heads = heads, .keys = keys, .values = values,
                  .is_delta = is_delta, .query_row = row, .key_row = row, .value_row = row, .query_head = head,
                  .key_head = head, .value_head = values, .output_row = op->columns, .by_query_row = row,
                  .by_key_row = row, .by_value_row = row, .query = x + at_query, .key = x + at_key,
                  .value = x + at_value, .beta = op->saved[0], .decay = op->saved[1], .start = op->state[0],
                  .first = first, .by_query = dx + at_query, .by_key = dx + at_key, .by_value = dx + at_value,
                  .by_beta = op->saved[0], .by_decay = op->saved[2], .scratch = op->carry[0]};
}

/* What passes the memory of SELECTIVE by: y + skip v. */
static void skip_memory(const Operation *op, const Operation *input, int rows) {
  const float *skip = op->packed + 2L * op->columns;
  for (int row = 0; row < rows; row++) {
    const float *value = input->value + (long)row * input->columns;
    float *y = op->value + (long)row * op->columns;
    for (int n = 0; n < op->width; n++, value += op->count, y += op->count)
      for (int i = 0; i < op->count; i++) y[i] += skip[n] * value[i];
  }
}

static void skip_memory_backward(const Operation *op, const Operation *input, int rows) {
  const float *skip = op->packed + 2L * op->columns;
  float *by_skip = op->vector_sums + 2L * op->columns;
  for (int row = 0; row < rows; row++) {
    const float *value = input->value + (long)row * input->columns, *dy = op->gradient + (long)row * op->columns;
    float *by_value = input->gradient + (long)row * input->columns;
    for (int n = 0; n < op->width; n++, value += op->count, by_value += op->count, dy += op->count) {
      by_skip[n] += row_product(op->count, dy, value);
      for (int i = 0; i < op->count; i++) by_value[i] += skip[n] * dy[i];
    }
  }
}

static void matrix_memory_forward(const Operation *op, const Operation *input, const Operation *other, int rows,
                                  int batch, const uint8_t *first) {
  int heads = op->width, is_delta = op->kind == DELTA;
  const float *rate = op->packed, *step = rate + op->columns;
  for (int row = 0; row < rows; row++) {
    const float *x = other->value + (long)row * other->columns + op->offset, *wait = is_delta ? x + heads : x;
    for (int n = 0; n < heads; n += WIDTH) {
      long at = (long)row * heads + n;
      Vec size = softplus(load_part(wait + n, heads - n) + load(step + n));
      store_part(op->saved[0] + at, heads - n, is_delta ? logistic(load_part(x + n, heads - n)) : size);
      store_part(op->saved[1] + at, heads - n, exp_(-exp_(load(rate + n)) * size));
    }
  }
  Matrix matrix = matrix_of(op, input, rows, batch, first);
  matrix.output = op->value, matrix.end = op->end[0];
  matrix_forward(&matrix);
  if (!is_delta) skip_memory(op, input, rows);
}

static void matrix_memory_backward(const Operation *op, const Operation *input, const Operation *other, int rows,
                                   int batch, const uint8_t *first) {
  int heads = op->width, is_delta = op->kind == DELTA;
  const float *rate = op->packed, *step = rate + op->columns;
  float *by_rate = op->vector_sums, *by_step = by_rate + op->columns;
  Matrix matrix = matrix_of(op, input, rows, batch, first);
  matrix.by_output = op->gradient;
  matrix_backward(&matrix);
  if (!is_delta) skip_memory_backward(op, input, rows);
  for (int row = 0; row < rows; row++) {
    long from = (long)row * other->columns + op->offset, of_wait = is_delta ? from + heads : from;
    for (int n = 0; n < heads; n += WIDTH) {
      int count = heads - n;
      long at = (long)row * heads + n;
      Vec by_log = load_part(matrix.by_decay + at, count) * load_part(op->saved[1] + at, count) * -exp_(load(rate + n));
      Vec wait = load_part(other->value + of_wait + n, count) + load(step + n), by_wait = by_log;
      Vec by_beta = load_part(matrix.by_beta + at, count);
      if (is_delta) {
        Vec beta = logistic(load_part(other->value + from + n, count));
        store_part(other->gradient + from + n, count, by_beta * (beta * (1.0f - beta)));
      } else by_wait += by_beta;
      by_wait *= logistic(wait);
      store_part(other->gradient + of_wait + n, count, by_wait);
      store(by_rate + n, fma_(by_log, softplus(wait), load(by_rate + n)));
      store(by_step + n, load(by_step + n) + by_wait);
    }
  }
}

/* Gated norms ----------------------------------------------------------------------------------- */

/* gated_norm.h, with the gate in columns of `other`. saved: the scale of each row. carry[0]: gated_norm_scratch, less
   than the 3 BLOCK rows of an operation by blocks. */
static GatedNorm gated_norm_of(const Operation *op, const Operation *input, const Operation *other, int row, int count) {
  return (GatedNorm){.rows = count, .width = op->width, .x_row = op->columns, .gate_row = other->columns,
                     .by_x_row = op->columns, .by_gate_row = other->columns, .eps = op->scale,
                     .x = value_at(input, row), .gate = value_at(other, row) + op->offset, .weight = op->packed,
                     .y = value_at(op, row), .scale = op->saved[0] + row, .scratch = op->carry[0]};
}

static void norm_of_gated_forward(const Operation *op, const Operation *input, const Operation *other, int row,
                                  int count) {
  GatedNorm norm = gated_norm_of(op, input, other, row, count);
  gated_norm_forward(&norm);
}

static void norm_of_gated_backward(const Operation *op, const Operation *input, const Operation *other, int row,
                                   int count) {
  GatedNorm norm = gated_norm_of(op, input, other, row, count);
  norm.by_y = gradient_at(op, row), norm.by_x = gradient_at(input, row);
  norm.by_gate = gradient_at(other, row) + op->offset, norm.by_weight = op->vector_sums;
  gated_norm_backward(&norm);
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
