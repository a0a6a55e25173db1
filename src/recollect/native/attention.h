/* Attention to a bounded number of past steps of the episode, over whole sequences.

   A block of queries meets only the keys that one of them attends to. Scores are stored across: a row has one key and
   all queries of the block, so heads of any size fill the vectors, keys and values are read where they are, and all sums
   run down a column, in the order of keys. A key that the mask hides has a weight of exactly 0 and changes no sum. So a
   step has the same bits wherever its block begins: acting, which has blocks of one step, equals learning.

   Shapes.  P past steps, M tokens per step, K = (P + L) M keys, D features of a head. Queries are those of all M tokens
   or of the last token of each step. */

#ifndef ATTENTION_H
#define ATTENTION_H

#include "distances.h"
#include "functions.h"

/* Steps ----------------------------------------------------------------------------------------- */

/* The step of its episode of every row, as int32 in `value`; the state is the age of each episode. */
static void steps_forward(const Operation *op, int rows, int batch, const uint8_t *first) {
  int32_t *step = (int32_t *)op->value;
  const int64_t *age = (const int64_t *)op->state[0];
  for (int row = 0; row < rows; row++) {
    int64_t before = row < batch ? age[row] : (int64_t)step[row - batch] + 1;
    int64_t now = first && first[row] ? 0 : before;
    step[row] = now < INT32_MAX ? now : INT32_MAX;
  }
  for (int b = 0; op->end[0] && b < batch; b++) ((int64_t *)op->end[0])[b] = (int64_t)step[rows - batch + b] + 1;
}

/* Heads ----------------------------------------------------------------------------------------- */

/* Keys or values of one head of one sequence: those of the state, P M rows, and those of this call. */
typedef struct {
  const float *past;
  float *now, *gradient; /* (L M, n) with n = padded(D) */
} Side;

/* One head of one sequence. */
typedef struct {
  Side keys, values;
  float *across, *outputs_across; /* (D, QUERIES): queries, and outputs or their gradient */
  float *queries, *outputs;       /* (QUERIES, n): the same in rows */
  float *by_scores;               /* (columns, QUERIES) */
  Distances away;
  int past, tokens, size, n;      /* P M, M, D */
} Head;

/* The keys of a block of queries at most. */
INLINE int most_keys(const Operation *op, int tokens) { return op->count * tokens + QUERIES * tokens / op->tokens + tokens; }

static Head head_of(const Operation *op, const Operation *other, int steps) {
  int tokens = other->tokens, size = op->width / op->heads, n = padded(size);
  float *at = op->carry[0], *blocks = op->carry[1];
  long rows = (long)steps * tokens * n, block = (long)QUERIES * n;
  return (Head){{NULL, at, at + rows},
                {NULL, at + 2 * rows, at + 3 * rows},
                blocks,
                blocks + block,
                blocks + 2 * block,
                blocks + 3 * block,
                blocks + 6 * block + (long)(op->count + 1) * QUERIES,
                {blocks + 4 * block, blocks + 5 * block, blocks + 6 * block},
                op->count * tokens,
                tokens,
                size,
                n};
}

/* Row of the i-th token of sequence b within a value whose rows are (L, B, M). */
INLINE long token_row(int i, int tokens, int batch, int b) {
  return ((long)(i / tokens) * batch + b) * tokens + i % tokens;
}

/* Features of one head of `count` tokens from the i-th on: from a value or a gradient to rows, or back. */
static void gather(const Operation *from, const float *at, int start, int count, int batch, int b, int size, float scale,
                   float *to, int n) {
  for (int i = 0; i < count; i++) {
    const float *row = at + token_row(start + i, from->tokens, batch, b) * from->columns;
    for (int d = 0; d < size; d++) to[(long)i * n + d] = row[d] * scale;
  }
}

static void scatter(const Operation *to, float *at, int start, int count, int batch, int b, int size, const float *from,
                    int row_step, int step) {
  for (int i = 0; i < count; i++) {
    float *row = at + token_row(start + i, to->tokens, batch, b) * to->columns;
    for (int d = 0; d < size; d++) row[d] = from[(long)i * row_step + (long)d * step];
  }
}

/* (count, n) -> (D, QUERIES), with zeros in place of missing queries. */
static void turn(const Head *head, int count, const float *from, float *to) {
  for (int d = 0; d < head->size; d++)
    for (int i = 0; i < QUERIES; i++) to[d * QUERIES + i] = i < count ? from[(long)i * head->n + d] : 0.0f;
}

/* Column of the keys of `other`: it has keys and values. */
INLINE int key_column(const Operation *op, const Operation *other) { return other->columns - 2 * padded(op->width); }

static void take_side(const Operation *op, const Operation *other, Side *side, const Head *head, const float *state,
                      int column, int h, int b, int batch, int steps) {
  side->past = state + op->state_stride * b + h * head->size;
  gather(other, other->value + column + h * head->size, 0, steps * head->tokens, batch, b, head->size, 1.0f, side->now,
         head->n);
}

/* The keys or values of the last P steps, for all heads of a sequence; the state may be the one before. */
static void write_state(const Operation *op, const Operation *other, const float *before, float *state, int column, int b,
                        int batch, int steps) {
  int past = op->count * other->tokens, now = steps * other->tokens, kept = now < past ? past - now : 0;
  before += op->state_stride * b, state += op->state_stride * b;
  memmove(state, before + (long)(past - kept) * op->width, (long)kept * op->width * sizeof(float));
  for (int k = kept; k < past; k++) {
    const float *row = other->value + token_row(k + now - past, other->tokens, batch, b) * other->columns;
    memcpy(state + (long)k * op->width, row + column, op->width * sizeof(float));
  }
}

/* A range of keys, cut at the start of this call: `past` of them are in the state. */
typedef struct {
  int from, past, count;
} Range;

/* to (count, QUERIES) = rows of a side times (D, QUERIES). */
static void rows_times(const Operation *op, const Head *head, const Side *side, Range range, const float *by, float *to) {
  Left past = {side->past + (long)range.from * op->width, op->width, 1};
  Left now = {side->now + (long)(range.from + range.past - head->past) * head->n, head->n, 1};
  multiply(range.past, QUERIES, head->size, past, by, QUERIES, to, QUERIES, ZERO, NULL);
  multiply(range.count - range.past, QUERIES, head->size, now, by, QUERIES, to + (long)range.past * QUERIES, QUERIES, ZERO,
           NULL);
}

/* to (D, QUERIES) = sum of rows of a side by the weights (count, QUERIES). */
static void sum_rows(const Operation *op, const Head *head, const Side *side, Range range, const float *by, float *to) {
  Left past = {side->past + (long)range.from * op->width, 1, op->width};
  Left now = {side->now + (long)(range.from + range.past - head->past) * head->n, 1, head->n};
  multiply(head->size, QUERIES, range.past, past, by, QUERIES, to, QUERIES, ZERO, NULL);
  multiply(head->size, QUERIES, range.count - range.past, now, by + (long)range.past * QUERIES, QUERIES, to, QUERIES, ADD,
           NULL);
}

/* Blocks ---------------------------------------------------------------------------------------- */

/* The keys that queries attend to: [low, high) of each. */
static Range keys_of_block(const Operation *op, const Head *head, const int32_t *step, int batch, int b, int start,
                           int count, int32_t *low, int32_t *high) {
  int from = INT32_MAX, end = 0;
  for (int i = 0; i < count; i++) {
    int t = (start + i) / op->tokens, token = (start + i) % op->tokens + head->tokens - op->tokens;
    int back = step[(long)t * batch + b] < op->count ? step[(long)t * batch + b] : op->count;
    low[i] = head->past + (t - back) * head->tokens;
    high[i] = head->past + t * head->tokens + token + 1;
    from = low[i] < from ? low[i] : from;
    end = high[i] > end ? high[i] : end;
  }
  for (int i = 0; i < QUERIES; i++) {
    low[i] = i < count ? low[i] - from : 0;
    high[i] = i < count ? high[i] - from : 1; /* without a query: any key */
  }
  int past = from < head->past ? (end < head->past ? end : head->past) - from : 0;
  return (Range){from, past, end - from};
}

/* Softmax down each column. */
static void weigh(int keys, const int32_t *low, const int32_t *high, float *scores) {
  for (int j = 0; j < QUERIES; j += WIDTH) {
    Ints first, end;
    memcpy(&first, low + j, sizeof first);
    memcpy(&end, high + j, sizeof end);
    Vec largest = all(-__builtin_inff()), sum = all(0.0f);
    for (int k = 0; k < keys; k++) {
      Ints seen = (first <= k) & (end > k);
      largest = choose(seen, larger(largest, load(scores + (long)k * QUERIES + j)), largest);
    }
    for (int k = 0; k < keys; k++) {
      float *score = scores + (long)k * QUERIES + j;
      Vec weight = choose((first <= k) & (end > k), exp_(load(score) - largest), all(0.0f));
      sum += weight;
      store(score, weight);
    }
    Vec inverse = 1.0f / sum;
    for (int k = 0; k < keys; k++)
      store(scores + (long)k * QUERIES + j, load(scores + (long)k * QUERIES + j) * inverse);
  }
}

/* The gradient of the scores from that of the weights, in its place. */
static void by_softmax(int keys, const float *weights, float *gradient) {
  for (int j = 0; j < QUERIES; j += WIDTH) {
    Vec along = all(0.0f);
    for (long k = 0; k < (long)keys * QUERIES; k += QUERIES)
      along = fma_(load(weights + k + j), load(gradient + k + j), along);
    for (long k = 0; k < (long)keys * QUERIES; k += QUERIES)
      store(gradient + k + j, load(weights + k + j) * (load(gradient + k + j) - along));
  }
}

INLINE float score_scale(const Head *head) { return 1.0f / __builtin_sqrtf((float)head->size); }

/* The queries of a block, scaled, in rows and across. */
static void take_queries(const Operation *op, const Operation *input, const Head *head, int h, int start, int count, int b,
                         int batch) {
  float scale = score_scale(head);
  gather(input, input->value + h * head->size, start, count, batch, b, head->size, scale, head->queries, head->n);
  if (op->table) {
    const float *u = op->packed + h * head->size, *v = u + op->columns;
    shift_queries(v, count, head->size, head->n, scale, head->queries, head->away.queries);
    shift_queries(u, count, head->size, head->n, scale, head->queries, head->queries);
    turn(head, count, head->away.queries, head->away.across);
  }
  turn(head, count, head->queries, head->across);
}

/* The distance of the first key of a range from the step of the first query of a block. */
INLINE int distance_ahead(const Head *head, Range range, int start) { return head->past + start - range.from; }

/* The weights of a block of a head (most_keys, QUERIES); kept if there will be a gradient. */
INLINE float *weights_of(const Operation *op, const Head *head, int b, int h, int block, int blocks) {
  if (!op->gradient) return op->saved[0];
  return op->saved[0] + (((long)b * op->heads + h) * blocks + block) * QUERIES * most_keys(op, head->tokens);
}

static void attention_forward(const Operation *op, const Operation *input, const Operation *other,
                              const Operation *steps_op, int rows, int batch) {
  int steps = rows / batch, queries = steps * op->tokens, blocks = (queries + QUERIES - 1) / QUERIES;
  int column = key_column(op, other);
  const int32_t *step = (const int32_t *)steps_op->value;
  int32_t low[QUERIES], high[QUERIES];
  Head head = head_of(op, other, steps);
  for (int b = 0; b < batch; b++) {
    for (int h = 0; h < op->heads; h++) {
      take_side(op, other, &head.keys, &head, op->state[0], column, h, b, batch, steps);
      take_side(op, other, &head.values, &head, op->state[1], column + padded(op->width), h, b, batch, steps);
      for (int block = 0; block < blocks; block++) {
        int start = block * QUERIES, count = queries - start < QUERIES ? queries - start : QUERIES;
        float *weights = weights_of(op, &head, b, h, block, blocks);
        Range range = keys_of_block(op, &head, step, batch, b, start, count, low, high);
        take_queries(op, input, &head, h, start, count, b, batch);
        rows_times(op, &head, &head.keys, range, head.across, weights);
        if (op->table)
          add_distances(op, &head.away, h, head.size, count, range.count, distance_ahead(&head, range, start), weights);
        weigh(range.count, low, high, weights);
        sum_rows(op, &head, &head.values, range, weights, head.outputs_across);
        scatter(op, op->value + h * head.size, start, count, batch, b, head.size, head.outputs_across, 1, QUERIES);
      }
    }
    if (!op->end[0]) continue;
    write_state(op, other, op->state[0], op->end[0], column, b, batch, steps);
    write_state(op, other, op->state[1], op->end[1], column + padded(op->width), b, batch, steps);
  }
}

/* The gradients of keys and values take the place of those. */
static void attention_backward(const Operation *op, const Operation *input, const Operation *other,
                               const Operation *steps_op, int rows, int batch) {
  int steps = rows / batch, queries = steps * op->tokens, blocks = (queries + QUERIES - 1) / QUERIES;
  int column = key_column(op, other);
  const int32_t *step = (const int32_t *)steps_op->value;
  int32_t low[QUERIES], high[QUERIES];
  Head head = head_of(op, other, steps);
  long now = (long)steps * head.tokens * head.n;
  clear_distances(op);
  for (int b = 0; b < batch; b++)
    for (int h = 0; h < op->heads; h++) {
      take_side(op, other, &head.keys, &head, op->state[0], column, h, b, batch, steps);
      take_side(op, other, &head.values, &head, op->state[1], column + padded(op->width), h, b, batch, steps);
      memset(head.keys.gradient, 0, now * sizeof(float));
      memset(head.values.gradient, 0, now * sizeof(float));
      for (int block = 0; block < blocks; block++) {
        int start = block * QUERIES, count = queries - start < QUERIES ? queries - start : QUERIES;
        const float *weights = weights_of(op, &head, b, h, block, blocks);
        Range range = keys_of_block(op, &head, step, batch, b, start, count, low, high);
        take_queries(op, input, &head, h, start, count, b, batch);
        gather(op, op->gradient + h * head.size, start, count, batch, b, head.size, 1.0f, head.outputs, head.n);
        turn(&head, count, head.outputs, head.outputs_across);
        rows_times(op, &head, &head.values, range, head.outputs_across, head.by_scores);
        by_softmax(range.count, weights, head.by_scores);
        sum_rows(op, &head, &head.keys, range, head.by_scores, head.across);
        if (op->table)
          add_distance_gradients(op, &head.away, h, head.size, count, range.count, distance_ahead(&head, range, start),
                                 score_scale(&head), head.by_scores, head.across);
        for (int i = 0; i < head.size * QUERIES; i++) head.across[i] *= score_scale(&head);
        /* The state is from earlier calls and gets no gradient. */
        long skipped = (long)range.past * QUERIES, row = (long)(range.from + range.past - head.past) * head.n;
        Left by_scores = {head.by_scores + skipped, QUERIES, 1}, by_weights = {weights + skipped, QUERIES, 1};
        int keys = range.count - range.past;
        multiply(keys, head.n, count, by_scores, head.queries, head.n, head.keys.gradient + row, head.n, ADD, NULL);
        multiply(keys, head.n, count, by_weights, head.outputs, head.n, head.values.gradient + row, head.n, ADD, NULL);
        scatter(input, input->gradient + h * head.size, start, count, batch, b, head.size, head.across, 1, QUERIES);
      }
      float *to = other->gradient + column + h * head.size;
      int tokens = steps * head.tokens;
      scatter(other, to, 0, tokens, batch, b, head.size, head.keys.gradient, head.n, 1);
      scatter(other, to + padded(op->width), 0, tokens, batch, b, head.size, head.values.gradient, head.n, 1);
    }
  unpack_distances(op);
}

#endif
