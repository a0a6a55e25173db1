/* The features of an actor from the fields of a rollout, and actions from its outputs; agent/nets.py,
   agent/normalize.py and agent/policies.py have the formulas. Rounding is the same there, so that acting and
   learning agree. */

#ifndef ACTING_H
#define ACTING_H

#include "functions.h"
#include "program.h"

/* x within -bound and bound; NaN stays NaN. */
INLINE float within(float bound, float x) { return x < -bound ? -bound : x > bound ? bound : x; }

static void copy_numbers(const Source *source, const float *from, float *to) {
  for (int i = 0; i < source->width; i++)
    to[i] = source->scale ? within(10.0f, (from[i] - source->shift[i]) * source->scale[i]) : from[i];
}

static void copy_binary(const Source *source, const char *from, float *to) {
  /* The first byte: every processor that we know has the lowest one first. */
  for (int i = 0; i < source->width; i++) to[i] = from[(long)i * source->bytes];
}

static void copy_choices(const Source *source, const int64_t *from, int opens, float *to) {
  memset(to, 0, source->width * sizeof(float));
  if (source->blank && opens) return;
  for (int g = 0; g < source->groups; to += source->sizes[g++])
    /* Another index is an error, which the value pass reports. */
    if (from[g] >= 0 && from[g] < source->sizes[g]) to[from[g]] = 1.0f;
}

/* The features (B, width) of step t. */
static void gather_features(const Actor *actor, int t, int width, const uint8_t *first) {
  int at = 0;
  for (const Source *source = actor->sources; source < actor->sources + actor->source_count; source++) {
    const char *from = source->from + t * source->stride;
    for (int b = 0; b < actor->batch; b++) {
      float *to = actor->features + (long)b * width + at;
      if (source->kind == NUMBERS) copy_numbers(source, (const float *)from + (long)b * source->width, to);
      else if (source->kind == BINARY) copy_binary(source, from + (long)b * source->width * source->bytes, to);
      else if (source->kind == REWARD) *to = within(10.0f, ((const float *)from)[b]);
      else copy_choices(source, (const int64_t *)from + (long)b * source->groups, first[b], to);
    }
    at += source->width;
  }
}

/* For each group the choice with the largest sum of logit and noise: a sample, as the noise is Gumbel's. */
static void sample_choices(const Operation *op, int most, const float *logits, const float *noise, int64_t *choices) {
  for (int g = 0; g < op->count; logits += op->sizes[g++], noise += most) {
    int best = 0;
    for (int p = 1; p < op->sizes[g]; p++)
      if (logits[p] + noise[p] > logits[best] + noise[best]) best = p;
    choices[g] = best;
  }
}

/* Parameters of the policy, and the actions, of rows of step t. */
static void sample(const Actor *actor, const Operation *op, const Operation *outputs, int t, int row, int count) {
  int width = op->width, gaussian = op->kind == GAUSSIAN;
  const float *value = value_at(outputs, row);
  for (int r = 0; r < count; r++, value += outputs->columns) {
    long at = (long)t * actor->batch + row + r;
    float *params = actor->params + at * width * (gaussian ? 2 : 1);
    memcpy(params, value, width * sizeof(float));
    if (!gaussian) {
      const char *allowed = actor->allowed + t * actor->allowed_stride + (row + r) * width;
      for (int p = 0; actor->allowed && p < width; p++)
        if (!allowed[p]) params[p] = IMPOSSIBLE;
      const float *noise = actor->noise + at * op->count * actor->most;
      sample_choices(op, actor->most, params, noise, (int64_t *)actor->actions + at * op->count);
      continue;
    }
    memcpy(params + width, op->log_std, width * sizeof(float));
    float *action = (float *)actor->actions + at * width;
    for (int k = 0; k < width; k++) action[k] = value[k] + actor->std[k] * actor->noise[at * width + k];
  }
}

#endif
