/* A network as a list of operations, and a minibatch. native/structures.py has the same structures.

   Shapes.  L steps, B sequences, rows = L B: row t B + b is step t of sequence b. */

#ifndef PROGRAM_H
#define PROGRAM_H

#include "matrix.h"

enum { BLOCK = 64 }; /* rows that go through all layers together, so that their activations stay in the cache */

enum Kind {
  INPUT, LINEAR, RESIDUAL, NORM, GATE, GELU, EMBED, LAST, SKIP, GLU, HEAD_NORM, GATED_NORM,
  STEPS, FRAMES, MINGRU, GRU, LSTM, LMU, OSCILLATE, CONVOLVE, DELTA, SELECTIVE, ATTENTION,
  CATEGORICAL, GAUSSIAN, VALUE
};
enum Activation { IDENTITY, TANH, RELU, ELU };
enum { WEIGHTS = 6, VECTORS = 3, PACKED = 5 }; /* of an operation, at most */

/* The operations of a stage are computed block by block. A stage ends before an operation over whole sequences
   (STEPS to ATTENTION), which needs all rows of its input and is the first of the next stage.

   full      whether value and gradient hold all rows; otherwise they hold one block
   gradient  of the loss by the value; NULL: not needed
   adds      whether the gradient by the input is added to one that a later operation has written */
typedef struct {
  int32_t kind, stage, full, adds;
  int32_t columns;        /* of the value: the width, padded */
  int32_t width;          /* INPUT, FRAMES: features; recurrences: units; heads: parameters of the policy */
  int32_t count;          /* FRAMES: frames; ATTENTION: past steps; EMBED: positions; CATEGORICAL: groups of choices;
                             GELU: whether it is the exact function; CONVOLVE: taps; DELTA, SELECTIVE: numbers of a
                             value; LMU: coefficients */
  int32_t keys;           /* DELTA, SELECTIVE: numbers of a key */
  int32_t activation;     /* LINEAR */
  int32_t input, other;   /* operations; RESIDUAL, GATE, SKIP, HEAD_NORM, GATED_NORM, LMU, DELTA, SELECTIVE, ATTENTION
                             and EMBED with two tokens have two inputs */
  int32_t steps;          /* ATTENTION, EMBED: the operation STEPS */
  int32_t offset;         /* LINEAR, CONVOLVE: the first column of its input; DELTA, SELECTIVE, HEAD_NORM,
                             GATED_NORM: of `other` */
  int32_t tokens;         /* rows of the value for each step */
  int32_t heads;          /* ATTENTION, HEAD_NORM */
  int32_t stops;          /* LINEAR, NORM: whether no gradient goes to the input */
  float scale;            /* RESIDUAL: of `input`; NORM, HEAD_NORM, GATED_NORM: added to the variance */
  Weights *weights[WEIGHTS]; /* LINEAR: 1; LSTM: recurrent; GRU: recurrent of both gates, and of the candidate;
                                GATE; LMU: legendre.h; ATTENTION: of distances */
  const float *vector[VECTORS]; /* NORM: gain, bias; GATE: bias; SKIP: factor; HEAD_NORM, GATED_NORM: gain; DELTA: rate, step;
                                   SELECTIVE: rate, step, skip; OSCILLATE: nu, theta, gamma; EMBED: in place of the first token where an episode
                                   opens; ATTENTION: distances.h */
  float *vector_gradient[VECTORS];
  float *packed, *vector_sums; /* (PACKED, columns), (VECTORS, columns) of them */
  const float *table;     /* EMBED: of positions (count, width); CONVOLVE: taps (count, width); ATTENTION: of distances,
                             NULL: no distances */
  float *table_gradient;
  float *value, *gradient;
  float *saved[3];        /* (rows, padded(width)) for the gradient; ATTENTION: weights */
  float *carry[2];        /* recurrences: (B, padded(width)) from step to step; heads: scratch */
  const float *state[2];  /* (B, width) before step 0, after resets of earlier steps; INPUT: features (rows, width);
                             ATTENTION: keys and values (B, P M, width); STEPS: age (B) int64; OSCILLATE: (B, 2 width);
                             CONVOLVE: (B, count - 1, width); DELTA, SELECTIVE: (B, width, keys, count) */
  float *end[2];          /* (B, width) after the last step; NULL: not needed */
  int64_t state_stride;   /* ATTENTION: from sequence to sequence */
  const int32_t *sizes;   /* CATEGORICAL: choices of each group */
  const float *log_std;   /* GAUSSIAN */
  float *log_std_gradient;
} Operation;

typedef struct {
  Operation *operations;
  Weights *weights;
  const uint8_t *first; /* (rows); NULL: no resets */
  int32_t operation_count, weights_count, stages;
} Program;

/* Every pointer is to (rows) numbers, but of actions to (rows, K). */
typedef struct {
  int32_t rows, batch;
  const uint8_t *valid;
  const float *weight, *old_log_prob, *advantage, *old_value, *target;
  const int64_t *choices;     /* CATEGORICAL */
  const uint8_t *allowed;     /* CATEGORICAL: (rows, P), 0 where a choice is not allowed; NULL: all are */
  const float *actions;       /* GAUSSIAN */
  float clip, entropy, value_weight;
  float value_clip;           /* below 0: none */
  float *ratio, *values;      /* results */
  float *terms;               /* (TERMS + 1): policy loss, value loss, entropy, KL, clip fraction; their total */
} Batch;

/* A part of the features of an actor, which lies in the fields of a rollout: step t is t * stride bytes after `from`. */
typedef struct {
  const char *from;
  int64_t stride;
  const float *shift, *scale; /* NUMBERS: of the normaliser; NULL: as they are */
  const int32_t *sizes;       /* CHOICES: of each group */
  int32_t kind, width;        /* width: of the features */
  int32_t groups;             /* CHOICES */
  int32_t blank;              /* CHOICES: whether they are 0 where an episode opens */
  int32_t bytes;              /* BINARY: of an entry, which is 0 or 1 */
} Source;

enum SourceKind { NUMBERS, BINARY, CHOICES, REWARD };

/* An actor during a rollout of T steps of B environments. The last operation of its program is a head. */
typedef struct {
  Program *program;
  const Source *sources;
  const char *first;  /* of the rollout: true where an episode opens */
  int64_t first_stride;
  const char *allowed; /* of the rollout: (B, P), 0 where a choice is not allowed; NULL: all are */
  int64_t allowed_stride;
  const float *noise; /* CATEGORICAL: (T, B, groups, most); GAUSSIAN: (T, B, K) */
  const float *std;   /* GAUSSIAN: (K) */
  float *features;    /* (B, width) */
  float *params;      /* (T, B, parameters) */
  void *actions;      /* (T, B, K) int64 or float */
  int32_t source_count, batch, resets, most;
} Actor;

/* The logit of a choice that is not allowed: its probability is exactly 0, and products with it are finite. */
static const float IMPOSSIBLE = -1e30f;

enum { POLICY_TERM, VALUE_TERM, ENTROPY_TERM, KL_TERM, CLIPPED_TERM, TERMS };

/* Rows of the value of some steps. */
INLINE int rows_at(const Operation *op, int count) { return count * op->tokens; }

INLINE int block_at(int row, int rows) { return rows - row < BLOCK ? rows - row : BLOCK; }

/* Values, or gradients, of an operation from a row on. */
INLINE float *value_at(const Operation *op, int row) {
  return op->value + (op->full ? (long)row * op->tokens * op->columns : 0);
}

INLINE float *gradient_at(const Operation *op, int row) {
  return op->gradient + (op->full ? (long)row * op->tokens * op->columns : 0);
}

#endif
