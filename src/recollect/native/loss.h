/* The loss of PPO and its gradients by the outputs of the heads; learn/ppo.py and agent/policies.py have the
   formulas. A block of rows lies in scratch as columns (parameter, row), so vectors run over rows. */

#ifndef LOSS_H
#define LOSS_H

#include "functions.h"
#include "program.h"

typedef float Column[BLOCK] __attribute__((aligned(64)));

/* Numbers of the rows of a block; 0 beyond its end. */
typedef struct {
  Column weight, valid, old_log_prob, advantage, old_value, target;
  float sums[TERMS][LANES];
} Rows;

static void gather_rows(const Batch *batch, int row, int count, Rows *rows) {
  for (int r = 0; r < BLOCK; r++) {
    int inside = r < count;
    long at = row + r;
    rows->weight[r] = inside ? batch->weight[at] : 0.0f;
    rows->valid[r] = inside ? batch->valid[at] : 0.0f;
    rows->old_log_prob[r] = inside ? batch->old_log_prob[at] : 0.0f;
    rows->advantage[r] = inside ? batch->advantage[at] : 0.0f;
    rows->old_value[r] = inside ? batch->old_value[at] : 0.0f;
    rows->target[r] = inside ? batch->target[at] : 0.0f;
  }
}

/* The weighted mean of a term: row r goes to accumulator r mod LANES, whatever WIDTH is. */
INLINE void add_term(Rows *rows, int term, int r, Vec x) {
  float *sum = rows->sums[term] + r % LANES;
  store(sum, fma_(load(rows->weight + r), x, load(sum)));
}

/* (count, columns) -> (width, BLOCK), 0 beyond the end; and back. */
static void to_columns(int count, int columns, int width, const float *from, Column *to) {
  for (int p = 0; p < width; p++)
    for (int r = 0; r < BLOCK; r++) to[p][r] = r < count ? from[(long)r * columns + p] : 0.0f;
}

static void to_rows(int count, int columns, int width, Column *from, float *to) {
  memset(to, 0, (long)count * columns * sizeof(float)); /* also the padding */
  for (int r = 0; r < count; r++)
    for (int p = 0; p < width; p++) to[(long)r * columns + p] = from[p][r];
}

/* The clipped objective of WIDTH rows: adds their terms, and returns the gradient by the log-probability. */
INLINE Vec policy_gradient(const Batch *batch, Rows *rows, int r, Vec log_prob, Vec entropy, Column ratios) {
  Vec valid = load(rows->valid + r), advantage = load(rows->advantage + r), weight = load(rows->weight + r);
  Vec log_ratio = (log_prob - load(rows->old_log_prob + r)) * valid, ratio = exp_(log_ratio);
  Vec clipped = smaller(all(1.0f + batch->clip), larger(all(1.0f - batch->clip), ratio));
  Vec free = ratio * advantage, bounded = clipped * advantage, away = ratio - 1.0f;
  add_term(rows, POLICY_TERM, r, -choose(free > bounded, bounded, free));
  add_term(rows, ENTROPY_TERM, r, entropy);
  add_term(rows, KL_TERM, r, away - log_ratio);
  add_term(rows, CLIPPED_TERM, r, choose(size_of(away) > batch->clip, all(1.0f), all(0.0f)));
  store(ratios + r, ratio);
  /* Where the clipped term is the smaller one, it does not depend on the policy. */
  return choose(free > bounded, all(0.0f), -free) * weight * valid;
}

/* Log-probabilities and probabilities of one group of choices, in place of logits; returns the entropy, and
   adds the log-probability of the choice. */
INLINE Vec softmax(int size, int r, Column *logits, Column *probabilities, Vec choice, Vec *log_prob) {
  Vec most = load(logits[0] + r), sum = all(0.0f), entropy = all(0.0f);
  for (int p = 1; p < size; p++) most = larger(most, load(logits[p] + r));
  for (int p = 0; p < size; p++) {
    Vec shifted = load(logits[p] + r) - most;
    /* exp_ is never 0, the probability of a choice that is not allowed is. */
    Vec power = choose(shifted < IMPOSSIBLE / 2, all(0.0f), exp_(shifted));
    store(logits[p] + r, shifted);
    store(probabilities[p] + r, power);
    sum += power;
  }
  Vec log_sum = log_(sum), inverse = 1.0f / sum;
  for (int p = 0; p < size; p++) {
    Vec log_p = load(logits[p] + r) - log_sum, probability = load(probabilities[p] + r) * inverse;
    store(logits[p] + r, log_p);
    store(probabilities[p] + r, probability);
    entropy = fma_(-probability, log_p, entropy);
    *log_prob += choose(choice == (float)p, log_p, all(0.0f));
  }
  return entropy;
}

/* In the columns of parameters (P, BLOCK): `to` where a choice is not allowed. */
static void mask_columns(const Batch *batch, int width, int row, int count, float to, Column *columns) {
  for (int p = 0; batch->allowed && p < width; p++)
    for (int r = 0; r < count; r++)
      if (!batch->allowed[(long)(row + r) * width + p]) columns[p][r] = to;
}

/* Scratch: log-probabilities (P), probabilities (P), entropies and choices (groups each), ratios. */
static void categorical_loss(const Operation *op, float *outputs, float *gradient, int columns, int row, int count,
                             const Batch *batch, Rows *rows) {
  Column *logits = (Column *)op->carry[0], *probabilities = logits + op->width;
  Column *entropies = probabilities + op->width, *choices = entropies + op->count, *ratios = choices + op->count;
  to_columns(count, columns, op->width, outputs, logits);
  mask_columns(batch, op->width, row, count, IMPOSSIBLE, logits);
  for (int g = 0; g < op->count; g++)
    for (int r = 0; r < BLOCK; r++)
      choices[g][r] = r < count ? (float)batch->choices[(long)(row + r) * op->count + g] : 0.0f;
  for (int r = 0; r < count; r += WIDTH) {
    Vec log_prob = all(0.0f), entropy = all(0.0f);
    for (int g = 0, from = 0; g < op->count; from += op->sizes[g++]) {
      Vec choice = load(choices[g] + r);
      Vec of_group = softmax(op->sizes[g], r, logits + from, probabilities + from, choice, &log_prob);
      store(entropies[g] + r, of_group);
      entropy += of_group;
    }
    Vec by_log_prob = policy_gradient(batch, rows, r, log_prob, entropy, *ratios);
    Vec by_entropy = load(rows->weight + r) * batch->entropy;
    for (int g = 0, from = 0; g < op->count; from += op->sizes[g++])
      for (int p = 0; p < op->sizes[g]; p++) {
        Vec probability = load(probabilities[from + p] + r), log_p = load(logits[from + p] + r);
        Vec chosen = choose(load(choices[g] + r) == (float)p, all(1.0f), all(0.0f));
        Vec of_entropy = by_entropy * (probability * (log_p + load(entropies[g] + r)));
        store(logits[from + p] + r, fma_(by_log_prob, chosen - probability, of_entropy));
      }
  }
  mask_columns(batch, op->width, row, count, 0.0f, logits); /* such a logit does not depend on the actor */
  to_rows(count, columns, op->width, logits, gradient);
  memcpy(batch->ratio + row, *ratios, count * sizeof(float));
}

/* Scratch: means (K), actions (K), inverse standard deviations, log standard deviations and the gradients of
   these (K numbers in LANES each), ratios. */
static void gaussian_loss(const Operation *op, float *outputs, float *gradient, int columns, int row, int count,
                          const Batch *batch, Rows *rows) {
  const float HALF_LOG_2_PI = 0.918938533f;
  int width = op->width;
  Column *means = (Column *)op->carry[0], *actions = means + width, *ratios = actions + width;
  float (*sums)[LANES] = (float (*)[LANES])op->carry[1];
  to_columns(count, columns, width, outputs, means);
  to_columns(count, width, width, batch->actions + (long)row * width, actions);
  for (int r = 0; r < count; r += WIDTH) {
    Vec log_prob = all(-width * HALF_LOG_2_PI), entropy = all(width * (HALF_LOG_2_PI + 0.5f));
    for (int k = 0; k < width; k++) {
      Vec log_std = all(op->log_std[k]), z = (load(actions[k] + r) - load(means[k] + r)) * exp_(-log_std);
      store(actions[k] + r, z);
      log_prob = fma_(z * -0.5f, z, log_prob) - log_std;
      entropy += log_std;
    }
    Vec by_log_prob = policy_gradient(batch, rows, r, log_prob, entropy, *ratios);
    Vec by_entropy = load(rows->weight + r) * batch->entropy;
    for (int k = 0; k < width; k++) {
      Vec z = load(actions[k] + r);
      float *sum = sums[k] + r % LANES;
      store(means[k] + r, by_log_prob * z * exp_(all(-op->log_std[k])));
      store(sum, load(sum) + fma_(by_log_prob, z * z - 1.0f, -by_entropy));
    }
  }
  to_rows(count, columns, width, means, gradient);
  memcpy(batch->ratio + row, *ratios, count * sizeof(float));
}

static void value_loss(const Operation *op, float *outputs, float *gradient, int columns, int row, int count,
                       const Batch *batch, Rows *rows) {
  Column *values = (Column *)op->carry[0];
  to_columns(count, columns, 1, outputs, values);
  memcpy(batch->values + row, *values, count * sizeof(float));
  for (int r = 0; r < count; r += WIDTH) {
    Vec value = load(*values + r), target = load(rows->target + r), old = load(rows->old_value + r);
    Vec error = value - target, loss = error * error, slope = error * (2.0f * batch->value_weight);
    if (batch->value_clip >= 0) {
      Vec near = smaller(all(batch->value_clip), larger(all(-batch->value_clip), value - old)) + old - target;
      Ints bounded = near * near > loss, outside = size_of(value - old) > batch->value_clip;
      loss = choose(bounded, near * near, loss);
      /* A clipped value does not depend on the critic. */
      slope = choose(bounded & outside, all(0.0f), slope);
    }
    add_term(rows, VALUE_TERM, r, loss);
    store(*values + r, slope * load(rows->weight + r));
  }
  to_rows(count, columns, 1, values, gradient);
}

#endif
