/* Products of matrices, and the weights of a linear map in the layouts that the products need.

   Every number of a product is one chain of fused multiply-adds in the order of the inner dimension. How
   rows and columns are grouped into tiles therefore changes no bit. */

#ifndef MATRIX_H
#define MATRIX_H

#include "lanes.h"

/* A matrix of which element (i, k) is at[i * row + k * depth]: of either orientation, without a copy. */
typedef struct {
  const float *at;
  long row, depth;
} Left;

enum Start { ZERO, BIAS, ADD };

#if defined(__AVX512F__) || defined(__aarch64__)
enum { TILE_ROWS = 6, TILE_VECTORS = 4 }; /* 24 of 32 registers hold sums */
#else
enum { TILE_ROWS = 6, TILE_VECTORS = 2 }; /* 12 of 16 registers */
#endif

/* Rows and vectors are constants where this is called, so that the sums stay in registers. */
INLINE void tile(const int rows, const int vectors, int depth, Left a, const float *b, long b_row,
                 float *c, long c_row, enum Start start, const float *bias) {
  Vec sum[TILE_ROWS][4];
#pragma GCC unroll 6
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++) {
      const float *from = start == ADD ? c + i * c_row : bias;
      sum[i][j] = start == ZERO ? all(0.0f) : load(from + j * WIDTH);
    }
  for (int k = 0; k < depth; k++) {
    Vec right[4];
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++) right[j] = load(b + k * b_row + j * WIDTH);
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
      Vec left = all(a.at[i * a.row + k * a.depth]);
#pragma GCC unroll 4
      for (int j = 0; j < vectors; j++) sum[i][j] = fma_(left, right[j], sum[i][j]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
    for (int j = 0; j < vectors; j++) store(c + i * c_row + j * WIDTH, sum[i][j]);
}

/* All rows of up to TILE_VECTORS vectors of columns. */
INLINE void panel(const int vectors, int rows, int depth, Left a, const float *b, long b_row, float *c,
                  long c_row, enum Start start, const float *bias) {
  int i = 0;
#define TILES(n)                                                                                     \
  for (; i + n <= rows; i += n) {                                                                    \
    Left from = {a.at + i * a.row, a.row, a.depth};                                                  \
    tile(n, vectors, depth, from, b, b_row, c + i * c_row, c_row, start, bias);                      \
  }
  TILES(TILE_ROWS)
  TILES(4)
  TILES(2)
  TILES(1)
#undef TILES
}

/* c (rows, columns) = start + a (rows, depth) b (depth, columns); columns is a multiple of WIDTH. */
static __attribute__((noinline)) void multiply(int rows, int columns, int depth, Left a, const float *b,
                                               long b_row, float *c, long c_row, enum Start start,
                                               const float *bias) {
  for (int j = 0; j < columns; j += TILE_VECTORS * WIDTH) {
    int vectors = (columns - j) / WIDTH;
    const float *from = bias ? bias + j : bias;
    if (vectors >= TILE_VECTORS) panel(TILE_VECTORS, rows, depth, a, b + j, b_row, c + j, c_row, start, from);
    else if (TILE_VECTORS > 3 && vectors == 3) panel(3, rows, depth, a, b + j, b_row, c + j, c_row, start, from);
    else if (TILE_VECTORS > 2 && vectors == 2) panel(2, rows, depth, a, b + j, b_row, c + j, c_row, start, from);
    else panel(1, rows, depth, a, b + j, b_row, c + j, c_row, start, from);
  }
}

/* sums (columns) += the rows of x (rows, columns). */
static void add_rows(int rows, int columns, const float *x, long x_row, float *sums) {
  for (int j = 0; j < columns; j += WIDTH) {
    Vec sum = load(sums + j);
    for (int r = 0; r < rows; r++) sum += load(x + r * x_row + j);
    store(sums + j, sum);
  }
}

/* Weights --------------------------------------------------------------------------------------- */

/* y = W x + b. The outputs are blocks (gates) of equal width, each padded to whole vectors, so output o of
   block g is column g * padded(width) + o. Pointers to parameters and gradients are those of the optimiser.

   forward   (in, columns)          W transposed
   backward  (columns, padded(in))  W
   sums      the gradient of W, as (columns, padded(in)), or transposed as (in, columns) where that has less
             padding */
typedef struct {
  const float *weight, *bias;             /* (blocks * width, in), (blocks * width); bias may be NULL */
  float *weight_gradient, *bias_gradient; /* NULL: not trained */
  float *forward, *backward, *sums, *bias_packed, *bias_sums;
  int32_t in, blocks, width, transposed;
} Weights;

INLINE int columns_of(const Weights *w) { return w->blocks * padded(w->width); }

/* Copies the parameters into the layouts above, and zeroes the sums. */
static void pack(Weights *w) {
  int columns = columns_of(w), in_columns = padded(w->in), block = padded(w->width);
  for (int g = 0; g < w->blocks; g++)
    for (int o = 0; o < w->width; o++) {
      const float *row = w->weight + (long)(g * w->width + o) * w->in;
      int column = g * block + o;
      memcpy(w->backward + (long)column * in_columns, row, w->in * sizeof(float));
      if (w->bias) w->bias_packed[column] = w->bias[g * w->width + o];
    }
  /* Eight columns at a time, so that each line of the cache is read once. */
  for (int from = 0; from < columns; from += 8)
    for (int i = 0; i < w->in; i++)
      for (int c = from; c < from + 8 && c < columns; c++)
        w->forward[(long)i * columns + c] = w->backward[(long)c * in_columns + i];
  if (w->weight_gradient) {
    long size = w->transposed ? (long)w->in * columns : (long)columns * in_columns;
    memset(w->sums, 0, size * sizeof(float));
    memset(w->bias_sums, 0, columns * sizeof(float));
  }
}

/* Copies the sums into the gradient of the optimiser. */
static void unpack(const Weights *w) {
  int columns = columns_of(w), in_columns = padded(w->in), block = padded(w->width);
  if (!w->weight_gradient) return;
  for (int g = 0; g < w->blocks; g++)
    for (int o = 0; o < w->width; o++) {
      float *row = w->weight_gradient + (long)(g * w->width + o) * w->in;
      int column = g * block + o;
      if (w->transposed)
        for (int i = 0; i < w->in; i++) row[i] = w->sums[(long)i * columns + column];
      else
        memcpy(row, w->sums + (long)column * in_columns, w->in * sizeof(float));
      if (w->bias_gradient) w->bias_gradient[g * w->width + o] = w->bias_sums[column];
    }
}

/* y (rows, columns) = W x + b, or added to y. */
INLINE void apply(const Weights *w, int rows, const float *x, long x_row, float *y, long y_row, enum Start start) {
  Left inputs = {x, x_row, 1};
  int columns = columns_of(w);
  multiply(rows, columns, w->in, inputs, w->forward, columns, y, y_row, start, w->bias_packed);
}

/* dx (rows, padded(in)) = dy W, or added to dx. Block by block: padding would add zeros to the chains, and
   how many depends on WIDTH. */
INLINE void apply_transposed(const Weights *w, int rows, const float *dy, long dy_row, float *dx, long dx_row,
                             enum Start start) {
  int block = padded(w->width), in_columns = padded(w->in);
  for (int g = 0; g < w->blocks; g++) {
    Left outputs = {dy + g * block, dy_row, 1};
    const float *weight = w->backward + (long)g * block * in_columns;
    multiply(rows, in_columns, w->width, outputs, weight, in_columns, dx, dx_row, g ? ADD : start, NULL);
  }
}

/* Adds the gradient of W and b by rows of inputs x and of gradients dy. */
INLINE void add_gradient(Weights *w, int rows, const float *x, long x_row, const float *dy, long dy_row) {
  int columns = columns_of(w), in_columns = padded(w->in);
  if (!w->weight_gradient) return;
  if (w->transposed) {
    Left inputs = {x, 1, x_row};
    multiply(w->in, columns, rows, inputs, dy, dy_row, w->sums, columns, ADD, NULL);
  } else {
    for (int g = 0; g < w->blocks; g++) {
      int column = g * padded(w->width);
      Left outputs = {dy + column, 1, dy_row};
      float *sums = w->sums + (long)column * in_columns;
      multiply(w->width, in_columns, rows, outputs, x, x_row, sums, in_columns, ADD, NULL);
    }
  }
  if (w->bias_gradient) add_rows(rows, columns, dy, dy_row, w->bias_sums);
}

#endif
