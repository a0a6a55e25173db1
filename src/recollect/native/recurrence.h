/* Operations over whole sequences. Their gates are the outputs of a LINEAR operation over all rows, whose
   gradients take the place of the gates: nothing else reads those.

   Where `first` is true, the state before the step is 0, and no gradient passes. */

#ifndef RECURRENCE_H
#define RECURRENCE_H

#include "functions.h"
#include "oscillation.h"
#include "program.h"

/* (B, width) -> (B, padded(width)) with zeros in the padding. */
static void copy_in(int batch, int width, const float *from, float *to) {
  for (int b = 0; b < batch; b++) {
    memset(to + (long)b * padded(width), 0, padded(width) * sizeof(float));
    memcpy(to + (long)b * padded(width), from + (long)b * width, width * sizeof(float));
  }
}

/* The reverse; nothing if the result is not needed. */
static void copy_out(int batch, int width, const float *from, float *to) {
  for (int b = 0; to && b < batch; b++)
    memcpy(to + (long)b * width, from + (long)b * padded(width), width * sizeof(float));
}

/* to = from, 0 where a sequence is reset. */
static void reset_rows(int batch, int columns, const float *from, const uint8_t *first, float *to) {
  for (int b = 0; b < batch; b++) {
    Vec keep = all(kept(first, b));
    for (int j = 0; j < columns; j += WIDTH) {
      long at = (long)b * columns + j;
      store(to + at, load(from + at) * keep);
    }
  }
}

/* The gradients of recurrent weights, over all rows at once. */
static void add_recurrent_gradient(Weights *w, int rows, const float *before, const float *gates, long gates_row) {
  for (int row = 0; row < rows; row += BLOCK)
    add_gradient(w, block_at(row, rows), before + (long)row * padded(w->in), padded(w->in),
                 gates + row * gates_row, gates_row);
}

/* Frame stack ----------------------------------------------------------------------------------- */

/* How many frames of row (t, b) are of its episode: steps t, t-1, ..., at most `frames`. */
INLINE int frames_of_episode(int t, int b, int batch, int frames, const uint8_t *first) {
  int count = 1;
  while (count < frames && t - count + 1 >= 0 && kept(first, (long)(t - count + 1) * batch + b)) count++;
  /* The loop has passed the start of the chunk: all frames before it belong to the carried state. */
  if (count < frames && t - count + 1 < 0) count = frames;
  return count;
}

/* The value of row (t, b) is x[t], x[t-1], ..., and 0 for frames before the episode. */
static void frames_forward(const Operation *op, const Operation *input, int rows, int batch, const uint8_t *first) {
  int width = op->width, past = op->count - 1;
  for (int row = 0; row < rows; row++) {
    int t = row / batch, b = row % batch, count = frames_of_episode(t, b, batch, op->count, first);
    float *value = op->value + (long)row * op->columns;
    memset(value, 0, op->columns * sizeof(float));
    for (int back = 0; back < count; back++) {
      const float *from = t >= back ? input->value + (long)(row - back * batch) * input->columns
                                    : op->state[0] + ((long)b * past + past + t - back) * width;
      memcpy(value + back * width, from, width * sizeof(float));
    }
  }
  /* The state has the oldest frame first. */
  for (int b = 0; op->end[0] && b < batch; b++)
    for (int back = 0; back < past; back++)
      memcpy(op->end[0] + ((long)b * past + past - 1 - back) * width,
             op->value + (long)(rows - batch + b) * op->columns + back * width, width * sizeof(float));
}

static void frames_backward(const Operation *op, const Operation *input, int rows, int batch, const uint8_t *first) {
  if (!input->gradient) return;
  if (!op->adds) memset(input->gradient, 0, (long)rows * input->columns * sizeof(float));
  for (int row = 0; row < rows; row++) {
    int t = row / batch, count = frames_of_episode(t, row % batch, batch, op->count, first);
    const float *gradient = op->gradient + (long)row * op->columns;
    for (int back = 0; back < count && back <= t; back++) {
      float *to = input->gradient + (long)(row - back * batch) * input->columns;
      for (int i = 0; i < op->width; i++) to[i] += gradient[back * op->width + i];
    }
  }
}

/* minGRU ---------------------------------------------------------------------------------------- */

/* h' = (1 - u) h + u n with u = sigmoid(gate 0) and n = gate 1. saved: h before each step. */
static void mingru_forward(const Operation *op, const Operation *input, int rows, int batch, const uint8_t *first) {
  int units = padded(op->width);
  copy_in(batch, op->width, op->state[0], op->carry[0]);
  for (int row = 0; row < rows; row += batch) {
    float *before = op->saved[0] + (long)row * units, *value = op->value + (long)row * units;
    reset_rows(batch, units, row ? value - (long)batch * units : op->carry[0], first ? first + row : first, before);
    for (int b = 0; b < batch; b++) {
      float *gates = input->value + (long)(row + b) * input->columns;
      for (int j = 0; j < units; j += WIDTH) {
        long at = (long)b * units + j;
        Vec update = sigmoid_(load(gates + j)), candidate = load(gates + units + j);
        store(gates + j, update);
        store(value + at, fma_(update, candidate, (1.0f - update) * load(before + at)));
      }
    }
  }
  copy_out(batch, op->width, op->value + (long)(rows - batch) * units, op->end[0]);
}

static void mingru_backward(const Operation *op, const Operation *input, int rows, int batch, const uint8_t *first) {
  int units = padded(op->width);
  float *carry = op->carry[0];
  memset(carry, 0, (long)batch * units * sizeof(float));
  for (int row = rows - batch; row >= 0; row -= batch)
    for (int b = 0; b < batch; b++) {
      float *gates = input->value + (long)(row + b) * input->columns;
      const float *before = op->saved[0] + (long)(row + b) * units, *dy = op->gradient + (long)(row + b) * units;
      Vec keep = all(kept(first, row + b));
      for (int j = 0; j < units; j += WIDTH) {
        Vec update = load(gates + j), candidate = load(gates + units + j);
        Vec dh = load(dy + j) + load(carry + (long)b * units + j);
        store(gates + j, dh * (candidate - load(before + j)) * (update * (1.0f - update)));
        store(gates + units + j, dh * update);
        store(carry + (long)b * units + j, dh * (1.0f - update) * keep);
      }
    }
}

/* GRU ------------------------------------------------------------------------------------------- */

/* r, z = sigmoid(gates 0, 1); n = tanh(gate 2 + r c) with c = S h + d; h' = n + z (h - n).
   saved: h before each step, and c. */
static void gru_row(int units, float *gates, const float *before, const float *c, float *value) {
  for (int j = 0; j < units; j += WIDTH) {
    Vec r = sigmoid_(load(gates + j)), z = sigmoid_(load(gates + units + j));
    Vec n = tanh_(fma_(r, load(c + j), load(gates + 2 * units + j)));
    store(gates + j, r);
    store(gates + units + j, z);
    store(gates + 2 * units + j, n);
    store(value + j, fma_(z, load(before + j) - n, n));
  }
}

static void gru_forward(const Operation *op, const Operation *input, int rows, int batch, const uint8_t *first) {
  int units = padded(op->width), columns = input->columns;
  copy_in(batch, op->width, op->state[0], op->carry[0]);
  for (int row = 0; row < rows; row += batch) {
    float *gates = input->value + (long)row * columns, *value = op->value + (long)row * units;
    float *before = op->saved[0] + (long)row * units, *c = op->saved[1] + (long)row * units;
    reset_rows(batch, units, row ? value - (long)batch * units : op->carry[0], first ? first + row : first, before);
    apply(op->weights[0], batch, before, units, gates, columns, ADD);
    apply(op->weights[1], batch, before, units, c, units, BIAS);
    for (int b = 0; b < batch; b++) {
      long at = (long)b * units;
      gru_row(units, gates + (long)b * columns, before + at, c + at, value + at);
    }
  }
  copy_out(batch, op->width, op->value + (long)(rows - batch) * units, op->end[0]);
}

/* Gradients of the gates and of c in their places, and that of h through z in `carry`. */
static void gru_row_backward(int units, float *gates, const float *before, float *c, const float *dy, float *carry,
                             float keep_next) {
  for (int j = 0; j < units; j += WIDTH) {
    Vec r = load(gates + j), z = load(gates + units + j), n = load(gates + 2 * units + j);
    Vec dh = fma_(load(carry + j), all(keep_next), load(dy + j));
    Vec dn = dh * (1.0f - z) * (1.0f - n * n);
    store(gates + j, dn * load(c + j) * (r * (1.0f - r)));
    store(gates + units + j, dh * (load(before + j) - n) * (z * (1.0f - z)));
    store(gates + 2 * units + j, dn);
    store(c + j, dn * r);
    store(carry + j, dh * z);
  }
}

static void gru_backward(const Operation *op, const Operation *input, int rows, int batch, const uint8_t *first) {
  int units = padded(op->width), columns = input->columns;
  float *carry = op->carry[0];
  memset(carry, 0, (long)batch * units * sizeof(float));
  for (int row = rows - batch; row >= 0; row -= batch) {
    float *gates = input->value + (long)row * columns, *c = op->saved[1] + (long)row * units;
    for (int b = 0; b < batch; b++) {
      long at = (long)(row + b) * units;
      float keep_next = row + batch < rows ? kept(first, row + batch + b) : 1.0f;
      gru_row_backward(units, gates + (long)b * columns, op->saved[0] + at, op->saved[1] + at, op->gradient + at,
                       carry + (long)b * units, keep_next);
    }
    apply_transposed(op->weights[0], batch, gates, columns, carry, units, ADD);
    apply_transposed(op->weights[1], batch, c, units, carry, units, ADD);
  }
  add_recurrent_gradient(op->weights[0], rows, op->saved[0], input->value, columns);
  add_recurrent_gradient(op->weights[1], rows, op->saved[0], op->saved[1], units);
}

/* LSTM ------------------------------------------------------------------------------------------ */

/* i, f, o = sigmoid(gates 0, 1, 3); n = tanh(gate 2); c' = f c + i n; h' = o tanh(c').
   saved: h and c before each step, and tanh(c'). carry[1] is c. */
static void lstm_row(int units, float *gates, const float *before, float *c, float *tanh_c, float *value) {
  for (int j = 0; j < units; j += WIDTH) {
    Vec i = sigmoid_(load(gates + j)), f = sigmoid_(load(gates + units + j));
    Vec n = tanh_(load(gates + 2 * units + j)), o = sigmoid_(load(gates + 3 * units + j));
    Vec cell = fma_(i, n, f * load(before + j)), bounded = tanh_(cell);
    store(gates + j, i);
    store(gates + units + j, f);
    store(gates + 2 * units + j, n);
    store(gates + 3 * units + j, o);
    store(c + j, cell);
    store(tanh_c + j, bounded);
    store(value + j, o * bounded);
  }
}

static void lstm_forward(const Operation *op, const Operation *input, int rows, int batch, const uint8_t *first) {
  int units = padded(op->width), columns = input->columns;
  copy_in(batch, op->width, op->state[0], op->carry[0]);
  copy_in(batch, op->width, op->state[1], op->carry[1]);
  for (int row = 0; row < rows; row += batch) {
    float *gates = input->value + (long)row * columns, *value = op->value + (long)row * units;
    const uint8_t *resets = first ? first + row : first;
    long start = (long)row * units;
    const float *h = row ? value - (long)batch * units : op->carry[0];
    reset_rows(batch, units, h, resets, op->saved[0] + start);
    reset_rows(batch, units, op->carry[1], resets, op->saved[1] + start);
    apply(op->weights[0], batch, op->saved[0] + start, units, gates, columns, ADD);
    for (int b = 0; b < batch; b++) {
      long at = (long)b * units;
      lstm_row(units, gates + (long)b * columns, op->saved[1] + start + at, op->carry[1] + at,
               op->saved[2] + start + at, value + at);
    }
  }
  copy_out(batch, op->width, op->value + (long)(rows - batch) * units, op->end[0]);
  copy_out(batch, op->width, op->carry[1], op->end[1]);
}

static void lstm_row_backward(int units, float *gates, const float *before, const float *tanh_c, const float *dy,
                              const float *dh_next, float *dc_next, float keep_next, float keep) {
  for (int j = 0; j < units; j += WIDTH) {
    Vec i = load(gates + j), f = load(gates + units + j);
    Vec n = load(gates + 2 * units + j), o = load(gates + 3 * units + j), bounded = load(tanh_c + j);
    Vec dh = fma_(load(dh_next + j), all(keep_next), load(dy + j));
    Vec dc = fma_(dh * o, 1.0f - bounded * bounded, load(dc_next + j));
    store(gates + j, dc * n * (i * (1.0f - i)));
    store(gates + units + j, dc * load(before + j) * (f * (1.0f - f)));
    store(gates + 2 * units + j, dc * i * (1.0f - n * n));
    store(gates + 3 * units + j, dh * bounded * (o * (1.0f - o)));
    store(dc_next + j, dc * f * keep);
  }
}

static void lstm_backward(const Operation *op, const Operation *input, int rows, int batch, const uint8_t *first) {
  int units = padded(op->width), columns = input->columns;
  float *dh = op->carry[0], *dc = op->carry[1];
  memset(dh, 0, (long)batch * units * sizeof(float));
  memset(dc, 0, (long)batch * units * sizeof(float));
  for (int row = rows - batch; row >= 0; row -= batch) {
    float *gates = input->value + (long)row * columns;
    for (int b = 0; b < batch; b++) {
      long at = (long)(row + b) * units, of_carry = (long)b * units;
      float keep_next = row + batch < rows ? kept(first, row + batch + b) : 1.0f;
      lstm_row_backward(units, gates + (long)b * columns, op->saved[1] + at, op->saved[2] + at, op->gradient + at,
                        dh + of_carry, dc + of_carry, keep_next, kept(first, row + b));
    }
    apply_transposed(op->weights[0], batch, gates, columns, dh, units, ZERO);
  }
  add_recurrent_gradient(op->weights[0], rows, op->saved[0], input->value, columns);
}

/* Linear recurrent unit ------------------------------------------------------------------------- */

/* h' = d h + e^gamma x of complex numbers, d = exp(-exp(nu) + i exp(theta)); `width` units. saved: e^gamma x.

   packed: Re d, Im d, e^gamma; exp(nu) and exp(theta) for the gradient. vector_sums: the gradients of the first two,
   which unpack_decays turns into those of nu and theta, and of gamma. */
static void pack_decays(const Operation *op) {
  if (op->kind != OSCILLATE) return;
  float *nu = op->packed, *theta = nu + op->columns, *gamma = theta + op->columns;
  for (int i = 0; i < op->width; i += WIDTH) {
    Vec rate = exp_(load(nu + i)), angle = exp_(load(theta + i)), size = exp_(-rate);
    store(nu + i, size * cos_(angle));
    store(theta + i, size * sin_(angle));
    store(gamma + i, exp_(load(gamma + i)));
    store(gamma + op->columns + i, rate);
    store(gamma + 2L * op->columns + i, angle);
  }
}

static void unpack_decays(const Operation *op) {
  if (op->kind != OSCILLATE) return;
  const float *c = op->packed, *s = c + op->columns, *rate = s + 2L * op->columns, *angle = rate + op->columns;
  float *by_c = op->vector_sums, *by_s = by_c + op->columns;
  for (int i = 0; i < op->width; i += WIDTH) {
    Vec dc = load(by_c + i), ds = load(by_s + i);
    store(by_c + i, -load(rate + i) * fma_(dc, load(c + i), ds * load(s + i)));
    store(by_s + i, load(angle + i) * (ds * load(c + i) - dc * load(s + i)));
  }
}

static void lru_forward(const Operation *op, const Operation *input, int rows, int batch, const uint8_t *first) {
  int units = op->width, columns = op->columns;
  const float *c = op->packed, *s = c + columns, *scale = s + columns;
  for (int row = 0; row < rows; row++) {
    const float *x = input->value + (long)row * columns;
    const float *before = row < batch ? op->state[0] + 2L * row * units : op->value + (long)(row - batch) * columns;
    float *added = op->saved[0] + (long)row * columns, *h = op->value + (long)row * columns;
    for (int i = 0; i < units; i++) {
      added[i] = scale[i] * x[i];
      added[units + i] = scale[i] * x[units + i];
    }
    if (opens(first, row)) memcpy(h, added, 2L * units * sizeof(float));
    else oscillate(units, c, s, before, added, h);
  }
  copy_out(batch, 2 * units, op->value + (long)(rows - batch) * columns, op->end[0]);
}

static void lru_backward(const Operation *op, const Operation *input, int rows, int batch, const uint8_t *first) {
  int units = op->width, columns = op->columns;
  const float *c = op->packed, *s = c + columns, *scale = s + columns;
  float *by_c = op->vector_sums, *by_s = by_c + columns, *by_scale = by_s + columns;
  memset(op->carry[0], 0, (long)batch * columns * sizeof(float));
  for (int row = rows - 1; row >= 0; row--) {
    const float *before = row < batch ? op->state[0] + 2L * row * units : op->value + (long)(row - batch) * columns;
    const float *added = op->saved[0] + (long)row * columns;
    float *dh = op->gradient + (long)row * columns, *carry = op->carry[0] + (long)(row % batch) * columns;
    for (int i = 0; i < 2 * units; i++) dh[i] += carry[i];
    /* of gamma: e^gamma x is its own derivative. */
    for (int i = 0; i < units; i++) by_scale[i] += dh[i] * added[i] + dh[units + i] * added[units + i];
    float *dx = input->gradient ? input->gradient + (long)row * columns : NULL;
    for (int i = 0; dx && i < units; i++) {
      dx[i] = scale[i] * dh[i];
      dx[units + i] = scale[i] * dh[units + i];
    }
    if (opens(first, row)) memset(carry, 0, 2L * units * sizeof(float));
    else oscillate_back(units, c, s, before, dh, by_c, by_s, carry);
  }
}

#endif
