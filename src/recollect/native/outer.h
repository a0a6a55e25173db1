/* Matrix memories over whole sequences, with their gradients: sums of outer products that decay.

   The state of one sequence stays in the cache while all its steps pass. The backward pass computes the states of a
   sequence once more instead of keeping those of all.

   Shapes.  T steps, B sequences, N heads, K numbers of a key, V of a value. */

#ifndef OUTER_H
#define OUTER_H

#include "functions.h"

/* Sums along rows, eight rows at once ---------------------------------------------------------------- */

enum { ROWS = 8 };

typedef float Eight __attribute__((vector_size(4 * ROWS)));

#if defined(__clang__)
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
typedef int32_t EightInts __attribute__((vector_size(4 * ROWS)));
#define PICK(a, b, ...) __builtin_shuffle(a, b, (EightInts){__VA_ARGS__})
#endif

/* The tree of sum_lanes for eight rows: each step halves the numbers of every row, and doubles its rows. */
INLINE Eight add_fours(Eight a, Eight b) {
  return PICK(a, b, 0, 1, 2, 3, 8, 9, 10, 11) + PICK(a, b, 4, 5, 6, 7, 12, 13, 14, 15);
}
INLINE Eight add_twos(Eight a, Eight b) {
  return PICK(a, b, 0, 1, 4, 5, 8, 9, 12, 13) + PICK(a, b, 2, 3, 6, 7, 10, 11, 14, 15);
}
INLINE Eight add_ones(Eight a, Eight b) {
  return PICK(a, b, 0, 2, 4, 6, 8, 10, 12, 14) + PICK(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
}

/* LANES sums, the upper half of them added to the lower one. */
INLINE Eight halve(const Vec *lanes) {
  Eight halves[2];
  memcpy(halves, lanes, sizeof halves);
  return halves[0] + halves[1];
}

/* The same of the products of a row with a vector. */
INLINE Eight half_sums(const float *row, const float *x, int columns) {
  Vec lanes[LANES / WIDTH];
  for (int k = 0; k < LANES / WIDTH; k++) lanes[k] = all(0.0f);
  for (int j = 0; j < columns; j += LANES)
    for (int k = 0; k < LANES / WIDTH; k++)
      lanes[k] = fma_(load(row + j + k * WIDTH), load(x + j + k * WIDTH), lanes[k]);
  return halve(lanes);
}

/* The tree of sum_lanes from there on. */
INLINE float sum_halves(Eight h) {
  h += PICK(h, h, 4, 5, 6, 7, 0, 1, 2, 3);
  h += PICK(h, h, 2, 3, 0, 1, 6, 7, 4, 5);
  return h[0] + h[1];
}

/* sums[i] = the product of row i with x; `count` rows, a multiple of ROWS. */
INLINE void multiply_rows(const float *rows, int count, const float *x, int columns, float *sums) {
  for (int i = 0; i < count; i += ROWS) {
    Eight h[ROWS];
    for (int r = 0; r < ROWS; r++) h[r] = half_sums(rows + (long)(i + r) * columns, x, columns);
    Eight low = add_twos(add_fours(h[0], h[1]), add_fours(h[2], h[3]));
    Eight high = add_twos(add_fours(h[4], h[5]), add_fours(h[6], h[7]));
    Eight result = add_ones(low, high);
    memcpy(sums + i, &result, sizeof result);
  }
}

/* Columns and rows of matrices are filled with zeros to multiples of these. */
INLINE int wide(int values) { return (values + LANES - 1) / LANES * LANES; }
INLINE int tall(int keys) { return (keys + ROWS - 1) / ROWS * ROWS; }

INLINE void copy_padded(float *restrict to, const float *restrict from, int width, int size) {
  memcpy(to, from, width * sizeof(float));
  memset(to + width, 0, (size - width) * sizeof(float));
}

/* One step ---------------------------------------------------------------------------------------------- */

/* S[t] = S' + k[t] u[t]^T, y[t] = q[t] S[t], with S' = decay[t] S[t-1], and u[t] = beta[t] v[t], or by the delta
   rule u[t] = beta[t] (v[t] - k[t] S') with keys and queries that are divided by their lengths.

   All but beta and decay have a row of so many numbers for each step and sequence; query, key and value have a head
   at so many within it, where keys and queries at 0 are shared by all heads, and those of the others are beside each
   other. beta (NULL: 1) and decay (T, B, N), start and end (B, N, K, V), which may be the same. by_beta may be beta,
   and by_decay decay. NULL: end and by_start are not needed, by_end is 0. */
typedef struct {
  int32_t steps, batch, heads, keys, values, is_delta;
  int64_t query_row, key_row, value_row, query_head, key_head, value_head;
  int64_t output_row, by_query_row, by_key_row, by_value_row;
  const float *query, *key, *value, *beta, *decay, *start;
  const uint8_t *first;
  float *output, *end; /* of the forward pass; NULL in the backward pass */
  const float *by_output, *by_end; /* by_output: rows as those of the output */
  float *by_query, *by_key, *by_value, *by_beta, *by_decay, *by_start;
  float *scratch;
} Matrix;

/* Numbers of `scratch`: the states of one sequence and a gradient, forward only one state; u and v - k S' of each step; y, dy and du; query
   and key, and their gradients, of which that of a key has two parts. */
EXPORT long matrix_scratch(const Matrix *o) {
  long columns = wide(o->values), rows = tall(o->keys);
  long steps = o->output ? 0 : o->steps;
  return (steps + 2) * rows * columns + (2 * steps + 3) * columns + 5L * wide(o->keys);
}

static void load_state(const Matrix *o, const float *from, int b, int n, float *state) {
  int columns = wide(o->values);
  memset(state, 0, (long)tall(o->keys) * columns * sizeof(float));
  for (int i = 0; from && i < o->keys; i++)
    memcpy(state + (long)i * columns, from + (((long)b * o->heads + n) * o->keys + i) * o->values,
           o->values * sizeof(float));
}

static void store_state(const Matrix *o, const float *state, int b, int n, float *to) {
  int columns = wide(o->values);
  for (int i = 0; to && i < o->keys; i++)
    memcpy(to + (((long)b * o->heads + n) * o->keys + i) * o->values, state + (long)i * columns,
           o->values * sizeof(float));
}

typedef struct {
  const float *query, *key, *value;
  float query_length, key_length, beta, decay;
} MatrixStep;

static const float SHORTEST = 1e-12f; /* as torch's normalize */

INLINE float product(const float *a, const float *b, int columns) { return sum_halves(half_sums(a, b, columns)); }

/* A vector divided by its length; returns the length. */
static float to_unit(const float *from, int width, float *to) {
  int columns = wide(width);
  copy_padded(to, from, width, columns);
  float length = __builtin_sqrtf(product(to, to, columns)), divisor = length > SHORTEST ? length : SHORTEST;
  for (int j = 0; j < columns; j += WIDTH) store(to + j, load(to + j) / divisor);
  return length;
}

/* The gradient of a vector from that of the vector divided by its length, in its place. */
static void from_unit(const float *unit, float length, int width, float *gradient) {
  int columns = wide(width);
  memset(gradient + width, 0, (columns - width) * sizeof(float));
  float along = length > SHORTEST ? product(unit, gradient, columns) : 0.0f;
  float divisor = length > SHORTEST ? length : SHORTEST;
  for (int j = 0; j < columns; j += WIDTH)
    store(gradient + j, (load(gradient + j) - load(unit + j) * along) / divisor);
}

/* `vectors` has room for query and key, with zeros after their ends. */
static MatrixStep step_of(const Matrix *o, int t, int b, int n, float *vectors) {
  long row = (long)t * o->batch + b;
  const float *from_query = o->query + row * o->query_row + n * o->query_head;
  const float *from_key = o->key + row * o->key_row + n * o->key_head;
  float *query = vectors, *key = vectors + wide(o->keys);
  MatrixStep s = {query, key, o->value + row * o->value_row + n * o->value_head,
                  .beta = o->beta ? o->beta[row * o->heads + n] : 1.0f,
                  .decay = opens(o->first, row) ? 0.0f : o->decay[row * o->heads + n]};
  if (o->is_delta) {
    s.query_length = to_unit(from_query, o->keys, query);
    s.key_length = to_unit(from_key, o->keys, key);
  } else {
    copy_padded(query, from_query, o->keys, wide(o->keys));
    copy_padded(key, from_key, o->keys, wide(o->keys));
  }
  return s;
}

enum { AHEAD = 6 }; /* steps */

/* Inputs and results of a later step into the cache. The steps of one sequence lie far apart, so the processor does
   not guess which one comes next. */
INLINE void fetch(const Matrix *o, int t, int b, int n) {
  if (t < 0 || t >= o->steps) return;
  long row = (long)t * o->batch + b, output = row * o->output_row + n * o->values;
  __builtin_prefetch(o->query + row * o->query_row + n * o->query_head);
  __builtin_prefetch(o->key + row * o->key_row + n * o->key_head);
  __builtin_prefetch(o->value + row * o->value_row + n * o->value_head);
  if (o->output) __builtin_prefetch(o->output + output, 1);
  else __builtin_prefetch(o->by_output + output);
}

enum { CHAINS = 4 }; /* sums at once: one would wait for each of its products */

INLINE Vec add_chains(const Vec *sums) { return (sums[0] + sums[1]) + (sums[2] + sums[3]); }

/* One step: the state after it, u, the rest v - k S', and y. `state` may be `before`. */
INLINE void matrix_step(const Matrix *o, MatrixStep s, const float *before, float *state, float *u, float *rest,
                        float *y) {
  const int columns = wide(o->values), rows = tall(o->keys), is_delta = o->is_delta;
  copy_padded(rest, s.value, o->values, columns);
  for (int j = 0; j < columns; j += WIDTH) {
    if (is_delta) {
      Vec sums[CHAINS] = {{0}};
      for (int i = 0; i < rows; i += CHAINS)
        for (int c = 0; c < CHAINS; c++)
          sums[c] = fma_(all(s.key[i + c]), load(before + (long)(i + c) * columns + j), sums[c]);
      store(rest + j, load(rest + j) - add_chains(sums) * s.decay);
    }
    Vec written = load(rest + j) * s.beta, sums[CHAINS] = {{0}};
    store(u + j, written);
    for (int i = 0; i < rows; i += CHAINS)
      for (int c = 0; c < CHAINS; c++) {
        long at = (long)(i + c) * columns + j;
        Vec now = fma_(all(s.key[i + c]), written, load(before + at) * s.decay);
        store(state + at, now);
        sums[c] = fma_(all(s.query[i + c]), now, sums[c]);
      }
    store(y + j, add_chains(sums));
  }
}

/* Whole sequences ------------------------------------------------------------------------------------ */

EXPORT void matrix_forward(const Matrix *o) {
  int columns = wide(o->values);
  float *state = o->scratch, *u = state + (long)tall(o->keys) * columns, *rest = u + columns, *y = rest + columns;
  float *vectors = y + columns;
  for (int b = 0; b < o->batch; b++)
    for (int n = 0; n < o->heads; n++) {
      load_state(o, o->start, b, n, state);
      for (int t = 0; t < o->steps; t++) {
        fetch(o, t + AHEAD, b, n);
        matrix_step(o, step_of(o, t, b, n, vectors), state, state, u, rest, y);
        memcpy(o->output + ((long)t * o->batch + b) * o->output_row + n * o->values, y, o->values * sizeof(float));
      }
      store_state(o, state, b, n, o->end);
    }
}

/* Gradients --------------------------------------------------------------------------------------------- */

/* What a step of one sequence has left, and room for its gradients. */
typedef struct {
  const float *before, *after, *u, *rest;
  float *dy, *du, *by_query, *by_key, *by_key_again;
} MatrixTrace;

/* From the gradient of the state after a step to that of u, and of the state with what y passes on. */
static void add_output(const Matrix *o, MatrixStep s, MatrixTrace z, float *by_state) {
  const int columns = wide(o->values), rows = tall(o->keys);
  for (int j = 0; j < columns; j += WIDTH) {
    Vec dy = load(z.dy + j), sums[CHAINS] = {{0}};
    for (int i = 0; i < rows; i += CHAINS)
      for (int c = 0; c < CHAINS; c++) {
        float *g = by_state + (long)(i + c) * columns + j;
        Vec now = fma_(all(s.query[i + c]), dy, load(g));
        store(g, now);
        sums[c] = fma_(all(s.key[i + c]), now, sums[c]);
      }
    store(z.du + j, add_chains(sums));
  }
}

/* From there to the gradient of the state before the step; the result is that of the decay. */
static float pass_on(const Matrix *o, MatrixStep s, MatrixTrace z, float *by_state) {
  const int columns = wide(o->values), rows = tall(o->keys), is_delta = o->is_delta;
  Vec lanes[LANES / WIDTH];
  for (int k = 0; k < LANES / WIDTH; k++) lanes[k] = all(0.0f);
  for (int j = 0; j < columns; j += WIDTH) {
    Vec du = is_delta ? load(z.du + j) : all(0.0f), sums[CHAINS] = {{0}};
    for (int i = 0; i < rows; i += CHAINS)
      for (int c = 0; c < CHAINS; c++) {
        float *g = by_state + (long)(i + c) * columns + j;
        Vec now = fma_(all(-s.key[i + c]), du, load(g));
        sums[c] = fma_(now, load(z.before + (long)(i + c) * columns + j), sums[c]);
        store(g, now * s.decay);
      }
    lanes[j % LANES / WIDTH] += add_chains(sums);
  }
  return sum_halves(halve(lanes));
}

/* A gradient of a key or query; of a shared one that of the first head, to which the other heads add. */
static void store_gradient(const Matrix *o, long head_stride, int n, const float *from, float *to) {
  to += head_stride ? n * o->keys : 0;
  if (head_stride || !n) memcpy(to, from, o->keys * sizeof(float));
  else
    for (int i = 0; i < o->keys; i++) to[i] += from[i];
}

static void matrix_step_backward(const Matrix *o, MatrixStep s, MatrixTrace z, int row, int n, float *by_state) {
  int columns = wide(o->values), rows = tall(o->keys);
  long head = (long)row * o->heads + n;
  copy_padded(z.dy, o->by_output + row * o->output_row + n * o->values, o->values, columns);
  add_output(o, s, z, by_state);
  multiply_rows(z.after, rows, z.dy, columns, z.by_query);
  multiply_rows(by_state, rows, z.u, columns, z.by_key);
  if (o->beta) {
    o->by_beta[head] = product(z.du, z.rest, columns);
    for (int j = 0; j < columns; j += WIDTH) store(z.du + j, load(z.du + j) * s.beta);
  }
  if (o->is_delta) {
    multiply_rows(z.before, rows, z.du, columns, z.by_key_again);
    for (int i = 0; i < o->keys; i++) z.by_key[i] -= s.decay * z.by_key_again[i];
    from_unit(s.query, s.query_length, o->keys, z.by_query);
    from_unit(s.key, s.key_length, o->keys, z.by_key);
  }
  memcpy(o->by_value + row * o->by_value_row + n * o->values, z.du, o->values * sizeof(float));
  store_gradient(o, o->query_head, n, z.by_query, o->by_query + row * o->by_query_row);
  store_gradient(o, o->key_head, n, z.by_key, o->by_key + row * o->by_key_row);
  float by_decay = pass_on(o, s, z, by_state);
  o->by_decay[head] = opens(o->first, row) ? 0.0f : by_decay;
}

EXPORT void matrix_backward(const Matrix *o) {
  int columns = wide(o->values), rows = tall(o->keys), steps = o->steps;
  long size = (long)rows * columns;
  float *states = o->scratch, *by_state = states + (steps + 1) * size, *u = by_state + size;
  float *rest = u + (long)steps * columns, *y = rest + (long)steps * columns, *vectors = y + 3L * columns;
  float *by_query = vectors + 2L * wide(o->keys), *by_key = by_query + wide(o->keys);
  for (int b = 0; b < o->batch; b++)
    for (int n = 0; n < o->heads; n++) {
      load_state(o, o->start, b, n, states);
      for (int t = 0; t < steps; t++) {
        fetch(o, t + AHEAD, b, n);
        matrix_step(o, step_of(o, t, b, n, vectors), states + t * size, states + (t + 1) * size, u + (long)t * columns,
                    rest + (long)t * columns, y);
      }
      load_state(o, o->by_end, b, n, by_state);
      for (int t = steps - 1; t >= 0; t--) {
        fetch(o, t - AHEAD, b, n);
        MatrixTrace trace = {states + t * size,   states + (t + 1) * size, u + (long)t * columns,
                             rest + (long)t * columns, y + columns, y + 2 * columns,
                             by_query, by_key, by_key + wide(o->keys)};
        matrix_step_backward(o, step_of(o, t, b, n, vectors), trace, t * o->batch + b, n, by_state);
      }
      store_state(o, by_state, b, n, o->by_start);
    }
}

/* The stabiliser of exponential gates: m[t] = max(log_forget[t] + m[t-1], log_input[t]); `size` = B N. */
EXPORT void stabilise(int steps, int batch, int heads, const float *log_input, const float *log_forget,
                      const uint8_t *first, const float *start, float *m) {
  long size = (long)batch * heads;
  for (int t = 0; t < steps; t++)
    for (long i = 0; i < size; i++) {
      long at = t * size + i;
      float carried = log_forget[at] + (t ? m[at - size] : start[i]);
      m[at] = first[(long)t * batch + i / heads] || carried < log_input[at] ? log_input[at] : carried;
    }
}

#endif
