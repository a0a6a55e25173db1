/* The gated norm at the end of a layer, with its gradients, in one pass over each row.

   z = x silu(gate), y = z r weight with r = 1 / sqrt(mean of z^2 + eps). */

#ifndef GATED_NORM_H
#define GATED_NORM_H

#include "outer.h"
#include "sequences.h"

/* Rows of `width` numbers: those of x, of the gate and of their gradients lie so far apart, those of y as those of x.
   The gradient of the weight is added. */
typedef struct {
  int32_t rows, width;
  int64_t x_row, gate_row, by_x_row, by_gate_row;
  float eps;
  const float *x, *gate, *weight;
  float *y, *scale; /* scale: r of each row, for the gradient */
  const float *by_y;
  float *by_x, *by_gate, *by_weight;
  float *scratch;
} GatedNorm;

/* Numbers of `scratch`: x, the gate, silu of the gate and z of one row; the weight; the gradients of z and of the
   weight. Each is filled with zeros to whole vectors. */
EXPORT long gated_norm_scratch(const GatedNorm *o) { return 7L * wide(o->width); }

typedef struct {
  float *x, *gate, *open, *z, *weight, *by_z, *by_weight;
} GatedRow;

static GatedRow gated_row(const GatedNorm *o) {
  long size = wide(o->width);
  float *s = o->scratch;
  GatedRow row = {s, s + size, s + 2 * size, s + 3 * size, s + 4 * size, s + 5 * size, s + 6 * size};
  copy_padded(row.weight, o->weight, o->width, size);
  memset(row.by_weight, 0, size * sizeof(float));
  return row;
}

/* x, gate, silu(gate) and z of a row. */
INLINE void open_row(const GatedNorm *o, GatedRow row, int r) {
  int size = wide(o->width);
  copy_padded(row.x, o->x + r * o->x_row, o->width, size);
  copy_padded(row.gate, o->gate + r * o->gate_row, o->width, size);
  for (int i = 0; i < size; i += WIDTH) {
    Vec open = silu(load(row.gate + i));
    store(row.open + i, open);
    store(row.z + i, load(row.x + i) * open);
  }
}

EXPORT void gated_norm_forward(const GatedNorm *o) {
  int size = wide(o->width);
  GatedRow row = gated_row(o);
  for (int r = 0; r < o->rows; r++) {
    open_row(o, row, r);
    float scale = 1.0f / __builtin_sqrtf(product(row.z, row.z, size) / o->width + o->eps);
    o->scale[r] = scale;
    for (int i = 0; i < size; i += WIDTH) store(row.z + i, load(row.z + i) * scale * load(row.weight + i));
    memcpy(o->y + r * o->x_row, row.z, o->width * sizeof(float));
  }
}

EXPORT void gated_norm_backward(const GatedNorm *o) {
  int size = wide(o->width);
  GatedRow row = gated_row(o);
  for (int r = 0; r < o->rows; r++) {
    float scale = o->scale[r];
    open_row(o, row, r);
    copy_padded(row.by_z, o->by_y + r * o->x_row, o->width, size);
    for (int i = 0; i < size; i += WIDTH) {
      Vec dy = load(row.by_z + i);
      store(row.by_weight + i, fma_(dy, load(row.z + i) * scale, load(row.by_weight + i)));
      store(row.by_z + i, dy * load(row.weight + i));
    }
    /* r depends on every z of the row. */
    float along = product(row.by_z, row.z, size) * scale * scale / o->width;
    for (int i = 0; i < size; i += WIDTH) {
      Vec dz = (load(row.by_z + i) - load(row.z + i) * along) * scale;
      store(row.by_z + i, dz * load(row.open + i));
      store(row.z + i, dz * load(row.x + i) * silu_slope(load(row.gate + i)));
    }
    memcpy(o->by_x + r * o->by_x_row, row.by_z, o->width * sizeof(float));
    memcpy(o->by_gate + r * o->by_gate_row, row.z, o->width * sizeof(float));
  }
  for (int i = 0; i < o->width; i++) o->by_weight[i] += row.by_weight[i];
}

#endif
