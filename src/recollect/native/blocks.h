/* Operations that work on each row alone: embeddings, layer norm, GELU, gates.

   The vectors of an operation (gain, bias) are packed into whole Vecs like the weights of linear maps, and their
   gradients are summed beside them: several operations may have the same parameters. */

#ifndef BLOCKS_H
#define BLOCKS_H

#include "functions.h"
#include "program.h"

static void pack_vectors(const Operation *op) {
  for (int k = 0; k < VECTORS && op->vector[k]; k++)
    memcpy(op->packed + (long)k * op->columns, op->vector[k], op->width * sizeof(float));
}

static void clear_vectors(const Operation *op) {
  for (int k = 0; k < VECTORS && op->vector[k]; k++) {
    memset(op->vector_sums + (long)k * op->columns, 0, op->columns * sizeof(float));
    if (op->vector_gradient[k]) memset(op->vector_gradient[k], 0, op->width * sizeof(float));
  }
  if (op->table_gradient) memset(op->table_gradient, 0, (long)op->count * op->width * sizeof(float));
}

static void unpack_vectors(const Operation *op) {
  for (int k = 0; k < VECTORS; k++)
    for (int i = 0; op->vector_gradient[k] && i < op->width; i++)
      op->vector_gradient[k][i] += op->vector_sums[(long)k * op->columns + i];
}

/* Layer norm ------------------------------------------------------------------------------------ */

/* sums of x and of x y over a row, each as LANES chains: padding must not enter them. */
INLINE float row_sum(int width, const float *x) {
  float sums[LANES] = {0};
  int i = 0;
  for (; i + LANES <= width; i += LANES)
    for (int l = 0; l < LANES; l++) sums[l] += x[i + l];
  for (int l = 0; i + l < width; l++) sums[l] += x[i + l];
  return sum_lanes(sums);
}

INLINE float row_product(int width, const float *x, const float *y) {
  float sums[LANES] = {0};
  int i = 0;
  for (; i + LANES <= width; i += LANES)
    for (int l = 0; l < LANES; l++) sums[l] += x[i + l] * y[i + l];
  for (int l = 0; i + l < width; l++) sums[l] += x[i + l] * y[i + l];
  return sum_lanes(sums);
}

/* value = gain * n + bias with n = (x - mean) / sqrt(variance + scale). saved: n, and 1 / sqrt. */
static void norm_forward(const Operation *op, const Operation *input, int row, int count) {
  int columns = op->columns, width = op->width;
  const float *gain = op->packed, *bias = op->packed + columns;
  for (int r = 0; r < rows_at(op, count); r++) {
    long at = (long)row * op->tokens + r;
    const float *x = value_at(input, row) + (long)r * columns;
    float *value = value_at(op, row) + (long)r * columns, *normed = op->saved[0] + at * columns;
    float mean = row_sum(width, x) / width;
    for (int i = 0; i < width; i++) normed[i] = x[i] - mean;
    float inverse = 1.0f / __builtin_sqrtf(row_product(width, normed, normed) / width + op->scale);
    for (int i = 0; i < columns; i++) normed[i] *= inverse;
    for (int i = 0; i < columns; i += WIDTH)
      store(value + i, fma_(load(gain + i), load(normed + i), load(bias + i)));
    op->saved[1][at] = inverse;
  }
}

static void norm_backward(const Operation *op, const Operation *input, int row, int count) {
  int columns = op->columns, width = op->width;
  const float *gain = op->packed;
  float *gain_sums = op->vector_sums, *bias_sums = op->vector_sums + columns;
  for (int r = 0; r < rows_at(op, count); r++) {
    long at = (long)row * op->tokens + r;
    const float *normed = op->saved[0] + at * columns;
    float *dy = gradient_at(op, row) + (long)r * columns;
    for (int i = 0; i < columns; i += WIDTH) {
      Vec d = load(dy + i);
      store(gain_sums + i, fma_(d, load(normed + i), load(gain_sums + i)));
      store(bias_sums + i, load(bias_sums + i) + d);
      store(dy + i, d * load(gain + i));
    }
    if (!input->gradient || op->stops) continue;
    float mean = row_sum(width, dy) / width, along = row_product(width, dy, normed) / width;
    float *dx = gradient_at(input, row) + (long)r * columns;
    for (int i = 0; i < columns; i += WIDTH) {
      Vec d = (load(dy + i) - mean - load(normed + i) * along) * op->saved[1][at];
      store(dx + i, op->adds ? load(dx + i) + d : d);
    }
    for (int i = width; i < columns; i++) dx[i] = 0.0f;
  }
}

/* Gates ----------------------------------------------------------------------------------------- */

/* r, z = sigmoid(W y + U x - b), with b = 0 for r; h = tanh(V y + S (r x)); value = x + z (h - x).

   weights: W of both with V (3 blocks), U of both (2 blocks), S. saved: r, z, h. carry[0]: scratch for the gates
   of a block of rows, carry[1]: for r x, the gradient of it, and that of x if nothing else needs it. */
static void gate_forward(const Operation *op, const Operation *input, const Operation *other, int row, int count) {
  int rows = rows_at(op, count), n = op->columns;
  const float *y = value_at(input, row), *x = value_at(other, row);
  float *gates = op->carry[0], *rx = op->carry[1], *value = value_at(op, row);
  long at = (long)row * op->tokens * n;
  float *r = op->saved[0] + at, *z = op->saved[1] + at, *h = op->saved[2] + at;
  apply(op->weights[0], rows, y, input->columns, gates, 3L * n, BIAS);
  Left inputs = {x, other->columns, 1};
  multiply(rows, 2 * n, op->width, inputs, op->weights[1]->forward, 2 * n, gates, 3L * n, ADD, NULL);
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < n; j += WIDTH) {
      long to = (long)i * n + j;
      const float *gate = gates + 3L * i * n + j;
      Vec reset = sigmoid_(load(gate));
      store(r + to, reset);
      store(z + to, sigmoid_(load(gate + n) - load(op->packed + j)));
      store(rx + to, reset * load(x + to));
    }
  Left resets = {rx, n, 1};
  multiply(rows, n, op->width, resets, op->weights[2]->forward, n, gates + 2 * n, 3L * n, ADD, NULL);
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < n; j += WIDTH) {
      long to = (long)i * n + j;
      Vec candidate = tanh_(load(gates + 3L * i * n + 2 * n + j)), old = load(x + to);
      store(h + to, candidate);
      store(value + to, fma_(load(z + to), candidate - old, old));
    }
}

static void gate_backward(const Operation *op, const Operation *input, const Operation *other, int row, int count) {
  int rows = rows_at(op, count), n = op->columns;
  const float *y = value_at(input, row), *x = value_at(other, row), *gradient = gradient_at(op, row);
  float *gates = op->carry[0], *rx = op->carry[1], *by_rx = op->carry[1] + (long)BLOCK * op->tokens * n;
  /* Nothing but this operation and those before it takes x, so its gradient begins here. */
  float *dx = other->gradient ? gradient_at(other, row) : by_rx + (long)BLOCK * op->tokens * n;
  long at = (long)row * op->tokens * n;
  const float *r = op->saved[0] + at, *z = op->saved[1] + at, *h = op->saved[2] + at;
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < n; j += WIDTH) {
      long to = (long)i * n + j;
      float *gate = gates + 3L * i * n + j;
      Vec d = load(gradient + to), old = load(x + to), update = load(z + to), candidate = load(h + to);
      Vec by_update = d * (candidate - old) * (update * (1.0f - update));
      store(gate + n, by_update);
      store(gate + 2 * n, d * update * (1.0f - candidate * candidate));
      store(op->vector_sums + j, load(op->vector_sums + j) - by_update);
      store(dx + to, d * (1.0f - update));
      store(rx + to, load(r + to) * old);
    }
  apply_transposed(op->weights[2], rows, gates + 2 * n, 3L * n, by_rx, n, ZERO);
  for (int i = 0; i < rows; i++)
    for (int j = 0; j < n; j += WIDTH) {
      long to = (long)i * n + j;
      Vec d = load(by_rx + to), reset = load(r + to);
      store(gates + 3L * i * n + j, d * load(x + to) * (reset * (1.0f - reset)));
      store(dx + to, fma_(d, reset, load(dx + to)));
    }
  apply_transposed(op->weights[1], rows, gates, 3L * n, dx, n, ADD);
  add_gradient(op->weights[0], rows, y, input->columns, gates, 3L * n);
  add_gradient(op->weights[1], rows, x, other->columns, gates, 3L * n);
  add_gradient(op->weights[2], rows, rx, n, gates + 2 * n, 3L * n);
  if (input->gradient)
    apply_transposed(op->weights[0], rows, gates, 3L * n, gradient_at(input, row), input->columns,
                     op->adds ? ADD : ZERO);
}

/* GELU ------------------------------------------------------------------------------------------ */

static const float GELU_SLOPE = 0.797884561f, GELU_CUBE = 0.044715f; /* sqrt(2 / pi) */

/* value = x (1 + b) / 2 with b = tanh(s (x + c x^3)), or if `count` is 1 with b = erf(x / sqrt(2)). */
INLINE Vec gelu_bounded(int exact, Vec x) {
  if (exact) return erf_(x * 0.707106781f);
  return tanh_(x * fma_(x * x, all(GELU_SLOPE * GELU_CUBE), all(GELU_SLOPE)));
}

/* x times the derivative of b / 2. */
INLINE Vec gelu_rise(int exact, Vec x, Vec bounded) {
  Vec square = x * x;
  if (exact) return x * exp_(square * -0.5f) * 0.39894228f;
  Vec inner = fma_(square, all(3.0f * GELU_SLOPE * GELU_CUBE), all(GELU_SLOPE));
  return 0.5f * x * inner * fma_(-bounded, bounded, all(1.0f));
}

static void gelu_forward(const Operation *op, const Operation *input, int row, int count) {
  const float *from = value_at(input, row);
  float *value = value_at(op, row);
  for (long i = 0; i < (long)rows_at(op, count) * op->columns; i += WIDTH) {
    Vec x = load(from + i);
    store(value + i, x * fma_(gelu_bounded(op->count, x), all(0.5f), all(0.5f)));
  }
}

static void gelu_backward(const Operation *op, const Operation *input, int row, int count) {
  const float *from = value_at(input, row), *gradient = gradient_at(op, row);
  float *dx = gradient_at(input, row);
  for (long i = 0; i < (long)rows_at(op, count) * op->columns; i += WIDTH) {
    Vec x = load(from + i), bounded = gelu_bounded(op->count, x);
    Vec slope = fma_(bounded, all(0.5f), all(0.5f)) + gelu_rise(op->count, x, bounded);
    store(dx + i, load(gradient + i) * slope);
  }
}

/* Skips and gated outputs ----------------------------------------------------------------------- */

/* value = input + d other, with a factor d for each column. */
static void skip_forward(const Operation *op, const Operation *input, const Operation *other, int row, int count) {
  for (int r = 0; r < count; r++) {
    long at = (long)r * op->columns;
    const float *x = value_at(input, row) + at, *skipped = value_at(other, row) + at;
    float *value = value_at(op, row) + at;
    for (int i = 0; i < op->columns; i += WIDTH)
      store(value + i, fma_(load(op->packed + i), load(skipped + i), load(x + i)));
  }
}

static void skip_backward(const Operation *op, const Operation *input, const Operation *other, int row, int count) {
  for (int r = 0; r < count; r++) {
    long at = (long)r * op->columns;
    const float *dy = gradient_at(op, row) + at, *skipped = value_at(other, row) + at;
    memcpy(gradient_at(input, row) + at, dy, op->columns * sizeof(float));
    /* It comes before all others that add to the gradient of `other`. */
    float *dx = other->gradient ? gradient_at(other, row) + at : NULL;
    for (int i = 0; i < op->columns; i += WIDTH) {
      Vec d = load(dy + i);
      store(op->vector_sums + i, fma_(d, load(skipped + i), load(op->vector_sums + i)));
      if (dx) store(dx + i, d * load(op->packed + i));
    }
  }
}

/* value = a sigmoid(g) of two blocks a and g, whose gradients take their place. */
static void glu_forward(const Operation *op, const Operation *input, int row, int count) {
  for (int r = 0; r < count; r++) {
    const float *x = value_at(input, row) + (long)r * input->columns;
    float *value = value_at(op, row) + (long)r * op->columns;
    for (int i = 0; i < op->columns; i += WIDTH)
      store(value + i, load(x + i) * sigmoid_(load(x + op->columns + i)));
  }
}

static void glu_backward(const Operation *op, const Operation *input, int row, int count) {
  for (int r = 0; r < count; r++) {
    float *x = value_at(input, row) + (long)r * input->columns;
    const float *dy = gradient_at(op, row) + (long)r * op->columns;
    for (int i = 0; i < op->columns; i += WIDTH) {
      Vec d = load(dy + i), gate = sigmoid_(load(x + op->columns + i));
      store(x + op->columns + i, d * load(x + i) * (gate * (1.0f - gate)));
      store(x + i, d * gate);
    }
  }
}

/* Tokens ---------------------------------------------------------------------------------------- */

/* The row of the table that a step takes; all later steps share the last. */
INLINE long position_of(const Operation *op, const Operation *steps, int row) {
  int step = ((const int32_t *)steps->value)[row];
  return (long)(step < op->count ? step : op->count - 1) * op->width;
}

/* One token per step, x + position; or two, of which the first is y + position, and an own vector in place of y
   where an episode opens. */
static void embed_forward(const Operation *op, const Operation *input, const Operation *other, const Operation *steps,
                          int row, int count) {
  for (int r = 0; r < count; r++) {
    const float *position = op->table + position_of(op, steps, row + r);
    int opens = ((const int32_t *)steps->value)[row + r] == 0;
    float *value = value_at(op, row) + (long)r * op->tokens * op->columns;
    for (int m = 0; m < op->tokens; m++, value += op->columns) {
      const float *x = m == op->tokens - 1 ? value_at(input, row) + (long)r * input->columns
                       : opens             ? op->packed
                                           : value_at(other, row) + (long)r * other->columns;
      for (int i = 0; i < op->width; i++) value[i] = x[i] + position[i];
    }
  }
}

static void embed_backward(const Operation *op, const Operation *input, const Operation *other, const Operation *steps,
                           int row, int count) {
  for (int r = 0; r < count; r++) {
    long position = position_of(op, steps, row + r);
    int opens = ((const int32_t *)steps->value)[row + r] == 0;
    const float *gradient = gradient_at(op, row) + (long)r * op->tokens * op->columns;
    for (int m = 0; m < op->tokens; m++, gradient += op->columns) {
      for (int i = 0; op->table_gradient && i < op->width; i++) op->table_gradient[position + i] += gradient[i];
      if (m == op->tokens - 1) {
        if (input->gradient)
          memcpy(gradient_at(input, row) + (long)r * input->columns, gradient, op->width * sizeof(float));
        continue;
      }
      if (other->gradient) memset(gradient_at(other, row) + (long)r * other->columns, 0, op->width * sizeof(float));
      float *to = opens ? op->vector_sums : other->gradient ? gradient_at(other, row) + (long)r * other->columns : NULL;
      for (int i = 0; to && i < op->width; i++) to[i] += gradient[i];
    }
  }
}

/* The last token of every step. */
static void last_forward(const Operation *op, const Operation *input, int row, int count) {
  long step = (long)input->tokens * input->columns, last = step - input->columns;
  for (int r = 0; r < count; r++)
    memcpy(value_at(op, row) + (long)r * op->columns, value_at(input, row) + r * step + last,
           op->columns * sizeof(float));
}

static void last_backward(const Operation *op, const Operation *input, int row, int count) {
  long step = (long)input->tokens * input->columns, last = step - input->columns;
  float *dx = gradient_at(input, row);
  if (!op->adds) memset(dx, 0, count * step * sizeof(float));
  for (int r = 0; r < count; r++)
    for (int i = 0; i < op->columns; i++) dx[r * step + last + i] += gradient_at(op, row)[(long)r * op->columns + i];
}

#endif
