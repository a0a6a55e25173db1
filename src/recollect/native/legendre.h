/* The Legendre memory unit over whole sequences, with its gradient.

   H units, D coefficients. Matrices of a step are applied to all sequences at once; their gradients are those of all
   rows, after the last step. */

#ifndef LEGENDRE_H
#define LEGENDRE_H

#include "recurrence.h"

/* u = `other` + e_h h + e_m m; m' = A m + B u; h' = tanh(`input` + U h + M m'), with W x + b and e_x x as inputs.

   saved: h and m before each step, and m'. carry[0]: h, or its gradient; carry[1]: m, or its gradient, and room for
   that of m'. */
enum LegendreWeights { OF_HIDDEN, OF_MEMORY, ENCODE_HIDDEN, ENCODE_MEMORY, LEGENDRE_A, LEGENDRE_B };

static void lmu_forward(const Operation *op, const Operation *input, const Operation *other, int rows, int batch,
                        const uint8_t *first) {
  int units = op->columns, order = padded(op->count), signal = other->columns;
  copy_in(batch, op->width, op->state[0], op->carry[0]);
  copy_in(batch, op->count, op->state[1], op->carry[1]);
  const float *h = op->carry[0], *m = op->carry[1];
  for (int row = 0; row < rows; row += batch) {
    float *h_before = op->saved[0] + (long)row * units, *m_before = op->saved[1] + (long)row * order;
    float *m_after = op->saved[2] + (long)row * order, *value = op->value + (long)row * units;
    float *u = other->value + (long)row * signal;
    reset_rows(batch, units, h, first ? first + row : first, h_before);
    reset_rows(batch, order, m, first ? first + row : first, m_before);
    apply(op->weights[ENCODE_HIDDEN], batch, h_before, units, u, signal, ADD);
    apply(op->weights[ENCODE_MEMORY], batch, m_before, order, u, signal, ADD);
    apply(op->weights[LEGENDRE_A], batch, m_before, order, m_after, order, ZERO);
    apply(op->weights[LEGENDRE_B], batch, u, signal, m_after, order, ADD);
    memcpy(value, input->value + (long)row * units, (long)batch * units * sizeof(float));
    apply(op->weights[OF_HIDDEN], batch, h_before, units, value, units, ADD);
    apply(op->weights[OF_MEMORY], batch, m_after, order, value, units, ADD);
    for (long i = 0; i < (long)batch * units; i += WIDTH) store(value + i, tanh_(load(value + i)));
    h = value, m = m_after;
  }
  copy_out(batch, op->width, h, op->end[0]);
  copy_out(batch, op->count, m, op->end[1]);
}

static void lmu_backward(const Operation *op, const Operation *input, const Operation *other, int rows, int batch,
                         const uint8_t *first) {
  int units = op->columns, order = padded(op->count), signal = other->columns;
  float *by_h = op->carry[0], *by_m = op->carry[1], *by_m_after = by_m + (long)batch * order;
  memset(by_h, 0, (long)batch * units * sizeof(float));
  memset(by_m, 0, (long)batch * order * sizeof(float));
  for (int row = rows - batch; row >= 0; row -= batch) {
    const float *value = op->value + (long)row * units, *gradient = op->gradient + (long)row * units;
    float *by_sum = input->gradient + (long)row * units, *by_u = other->gradient + (long)row * signal;
    const uint8_t *next = first && row + batch < rows ? first + row + batch : NULL;
    reset_rows(batch, units, by_h, next, by_h);
    reset_rows(batch, order, by_m, next, by_m_after);
    for (long i = 0; i < (long)batch * units; i += WIDTH) {
      Vec y = load(value + i);
      store(by_sum + i, (load(gradient + i) + load(by_h + i)) * fma_(-y, y, all(1.0f)));
    }
    apply_transposed(op->weights[OF_MEMORY], batch, by_sum, units, by_m_after, order, ADD);
    apply_transposed(op->weights[LEGENDRE_B], batch, by_m_after, order, by_u, signal, ZERO);
    apply_transposed(op->weights[LEGENDRE_A], batch, by_m_after, order, by_m, order, ZERO);
    apply_transposed(op->weights[ENCODE_MEMORY], batch, by_u, signal, by_m, order, ADD);
    apply_transposed(op->weights[OF_HIDDEN], batch, by_sum, units, by_h, units, ZERO);
    apply_transposed(op->weights[ENCODE_HIDDEN], batch, by_u, signal, by_h, units, ADD);
  }
  add_recurrent_gradient(op->weights[OF_HIDDEN], rows, op->saved[0], input->gradient, units);
  add_recurrent_gradient(op->weights[OF_MEMORY], rows, op->saved[2], input->gradient, units);
  add_recurrent_gradient(op->weights[ENCODE_HIDDEN], rows, op->saved[0], other->gradient, signal);
  add_recurrent_gradient(op->weights[ENCODE_MEMORY], rows, op->saved[1], other->gradient, signal);
}

#endif
