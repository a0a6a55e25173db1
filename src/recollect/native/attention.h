/* Attention to a bounded number of past steps of the episode, over whole sequences.

   The sequence is cut into blocks of queries, and a block meets only the keys that one of its steps attends to. All
   products are those of matrix.h; a weight that the mask hides is exactly 0, so it changes no sum.

   Shapes.  P past steps, M tokens per step, K = (P + L) M keys, D features of a head. */

#ifndef ATTENTION_H
#define ATTENTION_H

#include "functions.h"
#include "program.h"

enum { QUERIES = 16 }; /* of a block: more waste scores, fewer waste calls */

/* Steps ----------------------------------------------------------------------------------------- */

/* The step of its episode of every row, as int32 in `value`; the state is the age of each episode. */
static void steps_forward(const Operation *op, int rows, int batch, const uint8_t *first) {
  int32_t *step = (int32_t *)op->value;
  const int64_t *age = (const int64_t *)op->state[0];
  for (int row = 0; row < rows; row++) {
    int64_t before = row < batch ? age[row] : step[row - batch] + 1;
    int64_t now = first && first[row] ? 0 : before;
    step[row] = now < INT32_MAX ? now : INT32_MAX - 1;
  }
  for (int b = 0; op->end[0] && b < batch; b++) ((int64_t *)op->end[0])[b] = step[rows - batch + b] + 1;
}

/* Attention ------------------------------------------------------------------------------------- */

/* One head of one sequence, in memory of its own: keys and values (K, n), and transposed (n, stride). */
typedef struct {
  float *keys, *values, *keys_across, *values_across, *by_keys, *by_values, *queries, *outputs;
  long stride;
  int count, n; /* n = padded(D) */
} Head;

INLINE long stride_of(int keys) { return (keys + QUERIES + LANES - 1) / LANES * LANES + LANES; }

/* Floats of a Head of so many keys. */
INLINE long size_of_head(int keys, int n) { return 6 * stride_of(keys) * n + 2L * QUERIES * n; }

static Head head_in(float *memory, int keys, int n) {
  long size = stride_of(keys) * n;
  return (Head){memory,            memory + size,     memory + 2 * size, memory + 3 * size,
                memory + 4 * size, memory + 5 * size, memory + 6 * size, memory + 6 * size + (long)QUERIES * n,
                stride_of(keys),   keys,              n};
}

/* Row of the k-th token of sequence b within a value whose rows are (L, B, M). */
INLINE long token_row(int token, int tokens, int batch, int b) {
  return ((long)(token / tokens) * batch + b) * tokens + token % tokens;
}

/* Copies the keys or values of a head: those of the state (P M, W), then those of this call. */
static void gather_head(const Operation *op, const Operation *from, int column, const float *state, int h, int b,
                        int batch, const Head *head, float *to, float *across) {
  int past = op->count * op->tokens, size = op->width / op->heads;
  for (int k = 0; k < head->count; k++) {
    const float *row = k < past ? state + (long)k * op->width
                                : from->value + token_row(k - past, op->tokens, batch, b) * from->columns + column;
    for (int d = 0; d < size; d++) across[d * head->stride + k] = to[(long)k * head->n + d] = row[h * size + d];
  }
  /* Keys after the last one meet weights of 0, which a number of an earlier call may not turn into NaN. */
  memset(to + (long)head->count * head->n, 0, (head->stride - head->count) * head->n * sizeof(float));
  for (int d = 0; d < size; d++)
    memset(across + d * head->stride + head->count, 0, (head->stride - head->count) * sizeof(float));
}

/* Writes the keys or values of the last P steps as the state. */
static void write_state(const Operation *op, int h, const Head *head, const float *from, float *state) {
  int past = op->count * op->tokens, size = op->width / op->heads;
  for (int k = 0; k < past; k++)
    memcpy(state + (long)k * op->width + h * size, from + (long)(head->count - past + k) * head->n,
           size * sizeof(float));
}

/* Softmax of scores within [low, high), 0 elsewhere; there is room for a vector after the row.

   Lanes count from `low`: a step has the same sum wherever its block begins, so that acting, which has blocks of one
   step, and learning compute the same bits. */
static void weigh(int columns, int low, int high, float *scores) {
  float largest = scores[low], sums[LANES] = {0};
  for (int c = low + 1; c < high; c++) largest = scores[c] > largest ? scores[c] : largest;
  memset(scores, 0, low * sizeof(float));
  for (int c = low; c < high; c += WIDTH) store(scores + c, exp_(load(scores + c) - largest));
  memset(scores + high, 0, (columns + LANES - high) * sizeof(float));
  for (int c = low; c < high; c += LANES)
    for (int l = 0; l < LANES && c + l < high; l++) sums[l] += scores[c + l];
  float inverse = 1.0f / sum_lanes(sums);
  for (int c = low; c < high; c += WIDTH) store(scores + c, load(scores + c) * inverse);
}

/* Columns of the scores of a block: a multiple of LANES, whatever the vectors are. */
INLINE int block_columns(const Operation *op) {
  return (op->count * op->tokens + QUERIES + LANES - 1) / LANES * LANES;
}

/* From row to row of the scores of a block. */
INLINE int score_row(const Operation *op) { return block_columns(op) + LANES; }

/* The weights of a block of queries of a head; kept if there will be a gradient. */
INLINE float *weights_of(const Operation *op, int b, int h, int block, int blocks) {
  if (!op->gradient) return op->saved[0];
  return op->saved[0] + (((long)b * op->heads + h) * blocks + block) * QUERIES * score_row(op);
}

/* Copies rows of a block of a head from a value or a gradient; padding stays 0. */
static void gather_queries(const Operation *op, const Operation *from, const float *at, float scale, int h, int b,
                           int batch, int start, int count, int n, float *to) {
  int size = op->width / op->heads;
  for (int i = 0; i < count; i++) {
    const float *row = at + token_row(start + i, op->tokens, batch, b) * from->columns + h * size;
    for (int d = 0; d < size; d++) to[(long)i * n + d] = row[d] * scale;
  }
}

static void scatter_queries(const Operation *op, const Operation *to, float *at, float scale, int h, int b, int batch,
                            int start, int count, int n, const float *from) {
  int size = op->width / op->heads;
  for (int i = 0; i < count; i++) {
    float *row = at + token_row(start + i, op->tokens, batch, b) * to->columns + h * size;
    for (int d = 0; d < size; d++) row[d] = from[(long)i * n + d] * scale;
  }
}

/* Column of the keys of `other`: it has keys and values, and in front of them queries if it is the input as well. */
INLINE int key_column(const Operation *op, const Operation *other) {
  return other->columns - 2 * padded(op->width);
}

INLINE float score_scale(const Operation *op) { return 1.0f / __builtin_sqrtf((float)(op->width / op->heads)); }

static void attention_forward(const Operation *op, const Operation *input, const Operation *other,
                              const Operation *steps, int rows, int batch) {
  int tokens = op->tokens, queries = rows / batch * tokens, past = op->count * tokens, columns = block_columns(op);
  int wide = score_row(op);
  int n = padded(op->width / op->heads), blocks = (queries + QUERIES - 1) / QUERIES, column = key_column(op, other);
  const int32_t *step = (const int32_t *)steps->value;
  Head head = head_in(op->carry[0], past + queries, n);
  for (int b = 0; b < batch; b++)
    for (int h = 0; h < op->heads; h++) {
      const float *keys = op->state[0] + op->state_stride * b, *values = op->state[1] + op->state_stride * b;
      gather_head(op, other, column, keys, h, b, batch, &head, head.keys, head.keys_across);
      gather_head(op, other, column + padded(op->width), values, h, b, batch, &head, head.values, head.values_across);
      if (op->end[0]) {
        write_state(op, h, &head, head.keys, op->end[0] + op->state_stride * b);
        write_state(op, h, &head, head.values, op->end[1] + op->state_stride * b);
      }
      for (int block = 0; block < blocks; block++) {
        int start = block * QUERIES, count = queries - start < QUERIES ? queries - start : QUERIES;
        float *weights = weights_of(op, b, h, block, blocks);
        gather_queries(op, input, input->value, score_scale(op), h, b, batch, start, count, n, head.queries);
        Left left = {head.queries, n, 1}, of_weights = {weights, wide, 1};
        multiply(count, columns, op->width / op->heads, left, head.keys_across + start, head.stride, weights, wide,
                 ZERO, NULL);
        for (int i = 0; i < count; i++) {
          int t = (start + i) / tokens, back = step[t * batch + b] < op->count ? step[t * batch + b] : op->count;
          /* Key (P + t) M is the first of its own step; key `start` is column 0. */
          weigh(columns, (op->count + t - back) * tokens - start, past + i + 1, weights + (long)i * wide);
        }
        multiply(count, n, columns, of_weights, head.values + (long)start * n, n, head.outputs, n, ZERO, NULL);
        scatter_queries(op, op, op->value, 1.0f, h, b, batch, start, count, n, head.outputs);
      }
    }
}

/* The gradients of queries, keys and values take the place of those, or are beside the queries. */
static void attention_backward(const Operation *op, const Operation *input, const Operation *other, int rows,
                               int batch) {
  int tokens = op->tokens, queries = rows / batch * tokens, past = op->count * tokens, columns = block_columns(op);
  int wide = score_row(op);
  int size = op->width / op->heads, n = padded(size), blocks = (queries + QUERIES - 1) / QUERIES;
  int column = key_column(op, other);
  Head head = head_in(op->carry[0], past + queries, n);
  float *by_scores = op->carry[1];
  for (int b = 0; b < batch; b++)
    for (int h = 0; h < op->heads; h++) {
      const float *keys = op->state[0] + op->state_stride * b, *values = op->state[1] + op->state_stride * b;
      gather_head(op, other, column, keys, h, b, batch, &head, head.keys, head.keys_across);
      gather_head(op, other, column + padded(op->width), values, h, b, batch, &head, head.values, head.values_across);
      memset(head.by_keys, 0, 2 * head.stride * n * sizeof(float));
      for (int block = 0; block < blocks; block++) {
        int start = block * QUERIES, count = queries - start < QUERIES ? queries - start : QUERIES;
        const float *weights = weights_of(op, b, h, block, blocks);
        long from = (long)start * n;
        gather_queries(op, input, input->value, score_scale(op), h, b, batch, start, count, n, head.queries);
        gather_queries(op, op, op->gradient, 1.0f, h, b, batch, start, count, n, head.outputs);
        Left by_outputs = {head.outputs, n, 1};
        multiply(count, columns, size, by_outputs, head.values_across + start, head.stride, by_scores, wide, ZERO,
                 NULL);
        for (int i = 0; i < count; i++) {
          const float *weight = weights + (long)i * wide;
          float *d = by_scores + (long)i * wide, sums[LANES] = {0};
          for (int c = 0; c < columns; c += LANES)
            for (int l = 0; l < LANES; l++) sums[l] += weight[c + l] * d[c + l];
          float along = sum_lanes(sums);
          for (int c = 0; c < columns; c += WIDTH) store(d + c, load(weight + c) * (load(d + c) - along));
        }
        Left across = {by_scores, 1, wide}, weights_across = {weights, 1, wide}, left = {by_scores, wide, 1};
        multiply(columns, n, count, across, head.queries, n, head.by_keys + from, n, ADD, NULL);
        multiply(columns, n, count, weights_across, head.outputs, n, head.by_values + from, n, ADD, NULL);
        multiply(count, n, columns, left, head.keys + from, n, head.queries, n, ZERO, NULL);
        scatter_queries(op, input, input->gradient, score_scale(op), h, b, batch, start, count, n, head.queries);
      }
      long own = (long)past * n;
      scatter_queries(op, other, other->gradient + column, 1.0f, h, b, batch, 0, queries, n, head.by_keys + own);
      scatter_queries(op, other, other->gradient + column + padded(op->width), 1.0f, h, b, batch, 0, queries, n,
                      head.by_values + own);
    }
}

#endif
