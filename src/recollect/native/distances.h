/* Scores of attention that depend on the distance between two steps alone, as Transformer-XL has them:

     (q + u) . key of the step + (q + v) . key of the distance

   The key of a distance is a linear map of its sinusoids, one token per step.

   ATTENTION with distances has
     table      sinusoids (P + 1, padded(W)) of the distances 0, 1, ... P
     weights    the map, with a block for each head
     vector     u and v
     saved[1]   the keys (P + 1, H padded(D)), computed when the weights are packed
     saved[2]   their gradient

   Shapes.  P past steps, H heads of D features, W = H D, QUERIES of a block. */

#ifndef DISTANCES_H
#define DISTANCES_H

#include "program.h"

enum { QUERIES = 16 }; /* of a block: one vector of the widest */

/* Of a block of one head.

   queries  (QUERIES, n): q + v, scaled
   across   (D, QUERIES): the same, or their gradient
   scores   (P + 1, QUERIES), or their gradient */
typedef struct {
  float *queries, *across, *scores;
} Distances;

static void pack_distances(const Operation *op) {
  if (op->kind != ATTENTION || !op->table) return;
  Weights *map = op->weights[0];
  apply(map, op->count + 1, op->table, padded(op->width), op->saved[1], columns_of(map), ZERO);
}

static void clear_distances(const Operation *op) {
  if (op->table) memset(op->saved[2], 0, (long)(op->count + 1) * columns_of(op->weights[0]) * sizeof(float));
}

/* The gradient of the map, from that of all keys. */
static void unpack_distances(const Operation *op) {
  Weights *map = op->weights[0];
  if (op->table) add_gradient(map, op->count + 1, op->table, padded(op->width), op->saved[2], columns_of(map));
}

/* to (count, n) = from + scale u, or v; columns from `size` on stay 0. */
static void shift_queries(const float *vector, int count, int size, int n, float scale, const float *from, float *to) {
  for (int i = 0; i < count; i++)
    for (int d = 0; d < size; d++) to[(long)i * n + d] = from[(long)i * n + d] + vector[d] * scale;
}

/* The keys whose distance from query i of a block is at most P: from *low on, before the result. The first key has the
   distance `ahead` from the first query. */
INLINE int keys_in_reach(const Operation *op, int keys, int ahead, int i, int *low) {
  int nearest = ahead + i, end = nearest + 1 < keys ? nearest + 1 : keys;
  *low = nearest > op->count ? nearest - op->count : 0;
  return end;
}

/* Adds the scores of distances to those of steps (keys, QUERIES). */
static void add_distances(const Operation *op, const Distances *at, int h, int size, int count, int keys, int ahead,
                          float *scores) {
  int columns = columns_of(op->weights[0]);
  Left away = {op->saved[1] + (long)h * padded(size), columns, 1};
  multiply(op->count + 1, QUERIES, size, away, at->across, QUERIES, at->scores, QUERIES, ZERO, NULL);
  for (int i = 0, low; i < count; i++) {
    int end = keys_in_reach(op, keys, ahead, i, &low);
    for (int k = low; k < end; k++) scores[(long)k * QUERIES + i] += at->scores[(long)(ahead + i - k) * QUERIES + i];
  }
}

/* Adds to the gradients of keys, of u and v, and of the queries: by_query (D, QUERIES) is so far that of q + u. */
static void add_distance_gradients(const Operation *op, const Distances *at, int h, int size, int count, int keys,
                                   int ahead, float scale, const float *by_scores, float *by_query) {
  int columns = columns_of(op->weights[0]), n = padded(size);
  memset(at->scores, 0, (long)(op->count + 1) * QUERIES * sizeof(float));
  for (int i = 0, low; i < count; i++) {
    int end = keys_in_reach(op, keys, ahead, i, &low);
    for (int k = low; k < end; k++) at->scores[(long)(ahead + i - k) * QUERIES + i] = by_scores[(long)k * QUERIES + i];
  }
  Left away = {op->saved[1] + (long)h * n, 1, columns}, by_distance = {at->scores, QUERIES, 1};
  multiply(size, QUERIES, op->count + 1, away, at->scores, QUERIES, at->across, QUERIES, ZERO, NULL);
  multiply(op->count + 1, n, count, by_distance, at->queries, n, op->saved[2] + (long)h * n, columns, ADD, NULL);
  for (int d = 0; d < size; d++) {
    float by_u = 0.0f, by_v = 0.0f;
    for (int i = 0; i < count; i++) {
      float *query = by_query + d * QUERIES + i, distance = at->across[d * QUERIES + i];
      by_u += *query;
      by_v += distance;
      *query += distance;
    }
    op->vector_sums[h * size + d] += by_u * scale;
    op->vector_sums[op->columns + h * size + d] += by_v * scale;
  }
}

#endif
