/* The recurrence of sLSTM over whole sequences, with its gradient: a step needs the output of the one before.

   Lanes are the units of a head, so every sum runs down a column: one chain of products for each unit.

   Shapes.  T steps, B sequences, N heads, D units of a head. */

#ifndef GATED_H
#define GATED_H

#include "outer.h"
#include "sequences.h"

/* c' = f c + i z, n' = f n + i, h = o c' / n' with z = tanh, o = sigmoid, i = exp, f = sigmoid of x + h R. c and n are
   stored divided by exp(m), m' = max(m + log f, log i).

   x (T, B, N, 4 D): z, o, i, f; weight R (N, D, 4 D); states at the start and end (B, N, D), output (T, B, N, D).
   Gradients are written, not added; none passes through m' or the h at the end, which is the last output. */
typedef struct {
  int32_t steps, batch, heads, units;
  const float *x, *weight, *start_h, *start_c, *start_n, *start_m;
  const uint8_t *first;
  float *output, *end_c, *end_n, *end_m;
  float *saved; /* what each step leaves for the gradient */
  const float *by_output, *by_end_c, *by_end_n;
  float *by_x, *by_weight, *by_start_h, *by_start_c, *by_start_n, *by_start_m;
  float *scratch;
} Gated;

enum { GATES = 4, SAVED = 7 }; /* z, o, i, f, the slope of log f, and c and n after the step */

static const float SMALLEST = 1e-30f; /* of a normaliser: a state of zeros divides by no 0 */

/* Numbers of `saved`. */
EXPORT long gated_saved(const Gated *o) {
  return (long)o->steps * o->batch * o->heads * SAVED * wide(o->units);
}

INLINE long weight_count(const Gated *o) { return (long)o->heads * GATES * wide(o->units) * wide(o->units); }
INLINE long state_count(const Gated *o) { return (long)o->batch * o->heads * wide(o->units); }

/* Numbers of `scratch`: the weights and their gradient, gates and states of a step, and four states of all sequences. */
EXPORT long gated_scratch(const Gated *o) {
  return 2 * weight_count(o) + 3L * GATES * wide(o->units) + 4 * state_count(o);
}

/* `count` rows of `units` numbers, with zeros after each; no copy where none are needed. */
INLINE const float *pad(const Gated *o, int count, const float *from, float *room) {
  int columns = wide(o->units);
  if (columns == o->units) return from;
  for (int r = 0; r < count; r++) copy_padded(room + r * columns, from + r * o->units, o->units, columns);
  return room;
}

/* The rows without the zeros. */
INLINE void unpad(const Gated *o, long count, const float *from, float *to) {
  int columns = wide(o->units);
  if (columns == o->units)
    for (long j = 0; j < count * columns; j += WIDTH) store(to + j, load(from + j));
  else
    for (long r = 0; r < count; r++) memcpy(to + r * o->units, from + r * columns, o->units * sizeof(float));
}

/* A state (B, N, D) to be changed. */
static void load_states(const Gated *o, const float *from, float *to) {
  for (long r = 0; r < (long)o->batch * o->heads; r++)
    copy_padded(to + r * wide(o->units), from + r * o->units, o->units, wide(o->units));
}

/* log(sigmoid(x)) = min(x, 0) - log(1 + exp(-|x|)). */
INLINE Vec log_sigmoid(Vec x) { return smaller(x, all(0.0f)) - log_(1.0f + exp_(-size_of(x))); }

/* gates = x + h R, in groups of vectors whose chains are long enough to wait for nothing. */
static void add_recurrent(int columns, const float *h, const float *weight, const float *x, float *gates) {
  enum { GROUP = LANES / WIDTH * GATES };
  int width = GATES * columns;
  for (int j = 0; j < width; j += GROUP * WIDTH) {
    Vec sums[GROUP];
    for (int k = 0; k < GROUP; k++) sums[k] = load(x + j + k * WIDTH);
    for (int d = 0; d < columns; d++)
      for (int k = 0; k < GROUP; k++)
        sums[k] = fma_(all(h[d]), load(weight + (long)d * width + j + k * WIDTH), sums[k]);
    for (int k = 0; k < GROUP; k++) store(gates + j + k * WIDTH, sums[k]);
  }
}

/* One step of one head of one sequence. */
static void gated_step(int columns, int opens, const float *gates, float *h, float *c, float *n, float *m,
                       float *saved) {
  for (int j = 0; j < columns; j += WIDTH) {
    Vec log_i = load(gates + 2 * columns + j), by_f = load(gates + 3 * columns + j);
    Vec z = tanh_(load(gates + j)), open = sigmoid_(load(gates + columns + j));
    Vec kept = log_sigmoid(by_f) + load(m + j), largest = opens ? log_i : larger(kept, log_i);
    Vec i = exp_(log_i - largest), f = opens ? all(0.0f) : exp_(kept - largest);
    Vec now_c = fma_(f, load(c + j), i * z), now_n = fma_(f, load(n + j), i);
    Vec parts[SAVED] = {z, open, i, f, logistic(-by_f), now_c, now_n};
    for (int k = 0; k < SAVED; k++) store(saved + k * columns + j, parts[k]);
    store(c + j, now_c), store(n + j, now_n), store(m + j, largest);
    store(h + j, open * now_c / larger(all(SMALLEST), now_n));
  }
}

EXPORT void gated_forward(const Gated *o) {
  int columns = wide(o->units), width = GATES * columns;
  float *weight = o->scratch, *gates = weight + weight_count(o), *room = gates + width;
  float *h = room + width, *c = h + state_count(o), *n = c + state_count(o), *m = n + state_count(o);
  memset(weight, 0, weight_count(o) * sizeof(float));
  for (int head = 0; head < o->heads; head++)
    for (int d = 0; d < o->units; d++)
      for (int g = 0; g < GATES; g++)
        memcpy(weight + ((long)head * columns + d) * width + g * columns,
               o->weight + (((long)head * o->units + d) * GATES + g) * o->units, o->units * sizeof(float));
  load_states(o, o->start_h, h), load_states(o, o->start_c, c);
  load_states(o, o->start_n, n), load_states(o, o->start_m, m);
  for (long row = 0; row < (long)o->steps * o->batch; row++)
    for (int head = 0; head < o->heads; head++) {
      long at = row * o->heads + head, mine = (row % o->batch * o->heads + head) * columns;
      const float *x = pad(o, GATES, o->x + at * GATES * o->units, room);
      if (!o->first[row]) add_recurrent(columns, h + mine, weight + (long)head * columns * width, x, gates);
      gated_step(columns, o->first[row], o->first[row] ? x : gates, h + mine, c + mine, n + mine, m + mine,
                 o->saved + at * SAVED * columns);
      unpad(o, 1, h + mine, o->output + at * o->units);
    }
  long rows = (long)o->batch * o->heads;
  unpad(o, rows, c, o->end_c), unpad(o, rows, n, o->end_n), unpad(o, rows, m, o->end_m);
}

/* From the gradients of h, c and n after a step to those of its gates, and of c and n before it; `kept`: of log f. */
static void gated_step_backward(int columns, const float *saved, const float *c, const float *n, const float *dh,
                                float *dc, float *dn, float *by_gates, float *kept) {
  for (int j = 0; j < columns; j += WIDTH) {
    Vec z = load(saved + j), open = load(saved + columns + j), i = load(saved + 2 * columns + j);
    Vec f = load(saved + 3 * columns + j), slope = load(saved + 4 * columns + j);
    Vec now_c = load(saved + 5 * columns + j), now_n = load(saved + 6 * columns + j);
    Vec share = 1.0f / larger(all(SMALLEST), now_n), by_h = load(dh + j);
    Vec by_c = fma_(by_h, open * share, load(dc + j));
    Vec by_share = by_h * open * now_c * share * share;
    Vec by_n = load(dn + j) - choose(now_n >= SMALLEST, by_share, all(0.0f));
    Vec by_kept = fma_(by_c, load(c + j), by_n * load(n + j)) * f;
    store(by_gates + j, by_c * i * fma_(-z, z, all(1.0f)));
    store(by_gates + columns + j, by_h * now_c * share * open * (1.0f - open));
    store(by_gates + 2 * columns + j, fma_(by_c, z, by_n) * i);
    store(by_gates + 3 * columns + j, by_kept * slope);
    store(dc + j, by_c * f), store(dn + j, by_n * f), store(kept + j, by_kept);
  }
}

/* dh = by_gates R^T, with R transposed. */
static void pass_to_h(int columns, const float *by_gates, const float *transposed, float *dh) {
  for (int j = 0; j < columns; j += WIDTH) {
    Vec sums[CHAINS] = {{0}};
    for (int e = 0; e < GATES * columns; e += CHAINS)
      for (int k = 0; k < CHAINS; k++)
        sums[k] = fma_(all(by_gates[e + k]), load(transposed + (long)(e + k) * columns + j), sums[k]);
    store(dh + j, add_chains(sums));
  }
}

static void add_outer(int columns, const float *h, const float *by_gates, float *by_weight) {
  int width = GATES * columns;
  for (int d = 0; d < columns; d++)
    for (int e = 0; e < width; e += WIDTH) {
      float *to = by_weight + (long)d * width + e;
      store(to, fma_(all(h[d]), load(by_gates + e), load(to)));
    }
}

EXPORT void gated_backward(const Gated *o) {
  int columns = wide(o->units), width = GATES * columns, units = o->units;
  float *transposed = o->scratch, *by_weight = transposed + weight_count(o), *by_gates = by_weight + weight_count(o);
  float *room = by_gates + width, *kept = room + 3 * columns;
  float *dh = by_gates + 3 * width, *dc = dh + state_count(o), *dn = dc + state_count(o);
  memset(transposed, 0, 2 * weight_count(o) * sizeof(float));
  for (long head = 0; head < o->heads; head++)
    for (int d = 0; d < units; d++)
      for (int e = 0; e < GATES * units; e++)
        transposed[(head * width + e / units * columns + e % units) * columns + d] =
            o->weight[(head * units + d) * GATES * units + e];
  memset(dh, 0, state_count(o) * sizeof(float));
  load_states(o, o->by_end_c, dc), load_states(o, o->by_end_n, dn);
  for (long row = (long)o->steps * o->batch - 1; row >= 0; row--)
    for (int head = 0; head < o->heads; head++) {
      long at = row * o->heads + head, before = at - (long)o->batch * o->heads;
      long mine = (row % o->batch * o->heads + head) * columns, offset = (long)head * columns * width;
      /* The states of the step before, or those of the start. */
      const float *saved = o->saved + before * SAVED * columns;
      const float *h = pad(o, 1, before < 0 ? o->start_h + at * units : o->output + before * units, room);
      const float *c = before < 0 ? pad(o, 1, o->start_c + at * units, room + columns) : saved + 5 * columns;
      const float *n = before < 0 ? pad(o, 1, o->start_n + at * units, room + 2 * columns) : saved + 6 * columns;
      for (int j = 0; j < units; j++) dh[mine + j] += o->by_output[at * units + j];
      gated_step_backward(columns, o->saved + at * SAVED * columns, c, n, dh + mine, dc + mine, dn + mine, by_gates,
                          kept);
      unpad(o, GATES, by_gates, o->by_x + at * GATES * units);
      if (before < 0) unpad(o, 1, kept, o->by_start_m + at * units);
      if (o->first[row]) memset(dh + mine, 0, columns * sizeof(float));
      else {
        add_outer(columns, h, by_gates, by_weight + offset);
        pass_to_h(columns, by_gates, transposed + offset, dh + mine);
      }
    }
  for (long d = 0; d < (long)o->heads * columns; d++)
    if (d % columns < units)
      unpad(o, GATES, by_weight + d * width, o->by_weight + (d / columns * units + d % columns) * GATES * units);
  long rows = (long)o->batch * o->heads;
  unpad(o, rows, dh, o->by_start_h), unpad(o, rows, dc, o->by_start_c), unpad(o, rows, dn, o->by_start_n);
}

#endif
