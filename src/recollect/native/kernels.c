/* The loss of PPO over a minibatch and its gradients by all weights, without autograd; values, and acting.

   A network is a program of operations (program.h). Rows go through it in blocks, forward and backward, so that
   activations stay in the cache; only operations over whole sequences need all rows between. The results are
   the same bits for every processor, number of threads and optimisation level: all sums have one order, and
   products are fused where the source says so (matrix.h, lanes.h). */

#include "acting.h"
#include "attention.h"
#include "blocks.h"
#include "gated.h"
#include "legendre.h"
#include "loss.h"
#include "matrix_layers.h"
#include "outer.h"
#include "recurrence.h"
#include "sequences.h"
#include "worker.h"

/* Layers ---------------------------------------------------------------------------------------- */

static void input_forward(const Operation *op, int row, int count) {
  float *value = value_at(op, row);
  for (int r = 0; r < count; r++) {
    memcpy(value + (long)r * op->columns, op->state[0] + (long)(row + r) * op->width, op->width * sizeof(float));
    memset(value + (long)r * op->columns + op->width, 0, (op->columns - op->width) * sizeof(float));
  }
}

INLINE Vec activate(int activation, Vec x) {
  if (activation == TANH) return tanh_(x);
  if (activation == RELU) return larger(all(0.0f), x);
  return choose(x > 0.0f, x, exp_(x) - 1.0f);
}

/* The derivative, of the output y. */
INLINE Vec slope_at(int activation, Vec y) {
  if (activation == TANH) return fma_(-y, y, all(1.0f));
  if (activation == RELU) return choose(y > 0.0f, all(1.0f), all(0.0f));
  return choose(y > 0.0f, all(1.0f), y + 1.0f);
}

static void linear_forward(const Operation *op, const Operation *input, int row, int count) {
  float *value = value_at(op, row);
  const float *x = value_at(input, row) + op->offset;
  apply(op->weights[0], rows_at(op, count), x, input->columns, value, op->columns, BIAS);
  long size = (long)rows_at(op, count) * op->columns;
#define EACH(kind) \
  if (op->activation == kind) for (long i = 0; i < size; i += WIDTH) store(value + i, activate(kind, load(value + i)));
  EACH(TANH) EACH(RELU) EACH(ELU)
#undef EACH
}

static void linear_backward(const Operation *op, const Operation *input, int row, int count) {
  float *value = value_at(op, row), *gradient = gradient_at(op, row);
  int rows = rows_at(op, count);
  long size = (long)rows * op->columns;
#define EACH(kind)                                                   \
  if (op->activation == kind)                                        \
    for (long i = 0; i < size; i += WIDTH)                           \
      store(gradient + i, load(gradient + i) * slope_at(kind, load(value + i)));
  EACH(TANH) EACH(RELU) EACH(ELU)
#undef EACH
  add_gradient(op->weights[0], rows, value_at(input, row) + op->offset, input->columns, gradient, op->columns);
  if (input->gradient && !op->stops)
    apply_transposed(op->weights[0], rows, gradient, op->columns, gradient_at(input, row), input->columns,
                     op->adds ? ADD : ZERO);
}

/* value = other + scale * input: the skip connection of a branch. */
static void residual_forward(const Operation *op, const Operation *input, const Operation *other, int row, int count) {
  float *value = value_at(op, row), *x = value_at(input, row), *skipped = value_at(other, row);
  for (long i = 0; i < (long)rows_at(op, count) * op->columns; i += WIDTH)
    store(value + i, fma_(load(x + i), all(op->scale), load(skipped + i)));
}

static void residual_backward(const Operation *op, const Operation *input, const Operation *other, int row,
                              int count) {
  float *gradient = gradient_at(op, row), *by_input = gradient_at(input, row);
  long size = (long)rows_at(op, count) * op->columns;
  for (long i = 0; i < size; i += WIDTH) store(by_input + i, load(gradient + i) * op->scale);
  /* It comes before all others that add to the gradient of `other`. */
  if (other->gradient) memcpy(gradient_at(other, row), gradient, size * sizeof(float));
}

/* Programs -------------------------------------------------------------------------------------- */

static void forward_block(const Program *p, int stage, int row, int count) {
  for (int i = 0; i < p->operation_count; i++) {
    const Operation *op = p->operations + i, *input = p->operations + op->input;
    if (op->stage != stage) continue;
    if (op->kind == INPUT) input_forward(op, row, count);
    else if (op->kind == LINEAR) linear_forward(op, input, row, count);
    else if (op->kind == RESIDUAL) residual_forward(op, input, p->operations + op->other, row, count);
    else if (op->kind == NORM) norm_forward(op, input, row, count);
    else if (op->kind == GATE) gate_forward(op, input, p->operations + op->other, row, count);
    else if (op->kind == GELU) gelu_forward(op, input, row, count);
    else if (op->kind == SKIP) skip_forward(op, input, p->operations + op->other, row, count);
    else if (op->kind == GLU) glu_forward(op, input, row, count);
    else if (op->kind == HEAD_NORM) head_norm_forward(op, input, p->operations + op->other, row, count);
    else if (op->kind == GATED_NORM) norm_of_gated_forward(op, input, p->operations + op->other, row, count);
    else if (op->kind == LAST) last_forward(op, input, row, count);
    else if (op->kind == EMBED)
      embed_forward(op, input, p->operations + op->other, p->operations + op->steps, row, count);
  }
}

static void backward_block(const Program *p, int stage, int row, int count) {
  for (int i = p->operation_count - 1; i >= 0; i--) {
    const Operation *op = p->operations + i, *input = p->operations + op->input;
    if (op->stage != stage || !op->gradient) continue;
    if (op->kind == LINEAR) linear_backward(op, input, row, count);
    else if (op->kind == RESIDUAL) residual_backward(op, input, p->operations + op->other, row, count);
    else if (op->kind == NORM) norm_backward(op, input, row, count);
    else if (op->kind == GATE) gate_backward(op, input, p->operations + op->other, row, count);
    else if (op->kind == GELU) gelu_backward(op, input, row, count);
    else if (op->kind == SKIP) skip_backward(op, input, p->operations + op->other, row, count);
    else if (op->kind == GLU) glu_backward(op, input, row, count);
    else if (op->kind == HEAD_NORM) head_norm_backward(op, input, p->operations + op->other, row, count);
    else if (op->kind == GATED_NORM) norm_of_gated_backward(op, input, p->operations + op->other, row, count);
    else if (op->kind == LAST) last_backward(op, input, row, count);
    else if (op->kind == EMBED)
      embed_backward(op, input, p->operations + op->other, p->operations + op->steps, row, count);
  }
}

static void forward_sequences(const Program *p, int stage, int rows, int batch, const uint8_t *first) {
  for (int i = 0; i < p->operation_count; i++) {
    const Operation *op = p->operations + i, *input = p->operations + op->input;
    if (op->stage != stage) continue;
    if (op->kind == STEPS) steps_forward(op, rows, batch, first);
    else if (op->kind == ATTENTION)
      attention_forward(op, input, p->operations + op->other, p->operations + op->steps, rows, batch);
    else if (op->kind == FRAMES) frames_forward(op, input, rows, batch, first);
    else if (op->kind == MINGRU) mingru_forward(op, input, rows, batch, first);
    else if (op->kind == GRU) gru_forward(op, input, rows, batch, first);
    else if (op->kind == LSTM) lstm_forward(op, input, rows, batch, first);
    else if (op->kind == LMU) lmu_forward(op, input, p->operations + op->other, rows, batch, first);
    else if (op->kind == OSCILLATE) lru_forward(op, input, rows, batch, first);
    else if (op->kind == CONVOLVE) convolve_forward(op, input, rows, batch, first);
    else if (op->kind == DELTA || op->kind == SELECTIVE)
      matrix_memory_forward(op, input, p->operations + op->other, rows, batch, first);
  }
}

static void backward_sequences(const Program *p, int stage, int rows, int batch, const uint8_t *first) {
  for (int i = 0; i < p->operation_count; i++) {
    const Operation *op = p->operations + i, *input = p->operations + op->input;
    if (op->stage != stage || !op->gradient) continue;
    if (op->kind == ATTENTION)
      attention_backward(op, input, p->operations + op->other, p->operations + op->steps, rows, batch);
    else if (op->kind == FRAMES) frames_backward(op, input, rows, batch, first);
    else if (op->kind == MINGRU) mingru_backward(op, input, rows, batch, first);
    else if (op->kind == GRU) gru_backward(op, input, rows, batch, first);
    else if (op->kind == LSTM) lstm_backward(op, input, rows, batch, first);
    else if (op->kind == LMU) lmu_backward(op, input, p->operations + op->other, rows, batch, first);
    else if (op->kind == OSCILLATE) lru_backward(op, input, rows, batch, first);
    else if (op->kind == CONVOLVE) convolve_backward(op, input, rows, batch, first);
    else if (op->kind == DELTA || op->kind == SELECTIVE)
      matrix_memory_backward(op, input, p->operations + op->other, rows, batch, first);
  }
}

static void losses_of_block(const Program *p, int row, int count, const Batch *batch, Rows *rows) {
  gather_rows(batch, row, count, rows);
  for (int i = 0; i < p->operation_count; i++) {
    const Operation *op = p->operations + i, *input = p->operations + op->input;
    if (op->kind < CATEGORICAL) continue;
    float *outputs = value_at(input, row), *gradient = gradient_at(input, row);
    if (op->kind == CATEGORICAL) categorical_loss(op, outputs, gradient, input->columns, row, count, batch, rows);
    else if (op->kind == GAUSSIAN) gaussian_loss(op, outputs, gradient, input->columns, row, count, batch, rows);
    else value_loss(op, outputs, gradient, input->columns, row, count, batch, rows);
  }
}

static void clear_log_std(const Program *p) {
  for (int i = 0; i < p->operation_count; i++)
    if (p->operations[i].kind == GAUSSIAN)
      memset(p->operations[i].carry[1], 0, p->operations[i].width * LANES * sizeof(float));
}

static void finish_log_std(const Program *p) {
  for (int i = 0; i < p->operation_count; i++) {
    const Operation *op = p->operations + i;
    for (int k = 0; op->kind == GAUSSIAN && k < op->width; k++)
      op->log_std_gradient[k] = sum_lanes(op->carry[1] + (long)k * LANES);
  }
}

/* All stages before the last one, and the sequences with which that begins. */
static void forward_stages(const Program *p, int rows, int batch) {
  for (int stage = 0; stage < p->stages - 1; stage++) {
    for (int row = 0; row < rows; row += BLOCK) forward_block(p, stage, row, block_at(row, rows));
    forward_sequences(p, stage + 1, rows, batch, p->first);
  }
}

/* Takes the weights as they are now. */
EXPORT void pack_weights(Program *p) {
  for (int i = 0; i < p->weights_count; i++) pack(p->weights + i);
  for (int i = 0; i < p->operation_count; i++) {
    pack_vectors(p->operations + i);
    pack_decays(p->operations + i);
    pack_distances(p->operations + i);
  }
}

static void run_program(Program *p, const Batch *batch, Rows *rows) {
  int last = p->stages - 1, count = batch->rows;
  pack_weights(p);
  clear_log_std(p);
  for (int i = 0; i < p->operation_count; i++) clear_vectors(p->operations + i);
  forward_stages(p, count, batch->batch);
  for (int row = 0; row < count; row += BLOCK) {
    forward_block(p, last, row, block_at(row, count));
    losses_of_block(p, row, block_at(row, count), batch, rows);
    backward_block(p, last, row, block_at(row, count));
  }
  for (int stage = last - 1; stage >= 0; stage--) {
    backward_sequences(p, stage + 1, count, batch->batch, p->first);
    for (int row = 0; row < count; row += BLOCK) backward_block(p, stage, row, block_at(row, count));
  }
  for (int i = 0; i < p->weights_count; i++) unpack(p->weights + i);
  for (int i = 0; i < p->operation_count; i++) {
    unpack_decays(p->operations + i);
    unpack_vectors(p->operations + i);
  }
  finish_log_std(p);
}

enum { MOST_PROGRAMS = 2 };

typedef struct {
  Program *program;
  const Batch *batch;
  Rows rows;
} Task;

static void run_task(void *argument) {
  Task *task = argument;
  run_program(task->program, task->batch, &task->rows);
}

/* Multiplications of a forward pass. */
static double work(const Program *p, const Batch *batch) {
  double weights = 0;
  for (int i = 0; i < p->weights_count; i++)
    weights += (double)p->weights[i].in * p->weights[i].blocks * p->weights[i].width;
  return weights * batch->rows;
}

/* Waking a thread takes 10 to 40 us, in which a core does about so many multiplications forward and backward. */
static const double WORTH_A_THREAD = 1e6;

/* Entry points ---------------------------------------------------------------------------------- */

/* Actions and parameters of the policy of step t, with the weights last packed. */
EXPORT void act(const Actor *actor, int t) {
  Program *p = actor->program;
  const Operation *head = p->operations + p->operation_count - 1, *outputs = p->operations + head->input;
  const uint8_t *first = (const uint8_t *)(actor->first + t * actor->first_stride);
  p->first = actor->resets ? first : NULL;
  gather_features(actor, t, p->operations->width, first);
  forward_stages(p, actor->batch, actor->batch);
  for (int row = 0; row < actor->batch; row += BLOCK) {
    int count = block_at(row, actor->batch);
    forward_block(p, p->stages - 1, row, count);
    sample(actor, head, outputs, t, row, count);
  }
}

/* Values (rows) by a program that ends with the head of a critic. */
EXPORT void values(Program *p, int rows, int batch, float *to) {
  const Operation *outputs = p->operations + p->operations[p->operation_count - 1].input;
  pack_weights(p);
  forward_stages(p, rows, batch);
  for (int row = 0; row < rows; row += BLOCK) {
    int count = block_at(row, rows);
    forward_block(p, p->stages - 1, row, count);
    for (int r = 0; r < count; r++) to[row + r] = value_at(outputs, row)[(long)r * outputs->columns];
  }
}

/* Fills the gradients of all weights of the programs, and the results of the batch.

   Two programs, the actor and the critic, share no memory that is written, and no sum. So they may run on two
   threads, which changes no bit. */
EXPORT void gradients(Program *programs, int count, const Batch *batch, int threads) {
  Task tasks[MOST_PROGRAMS] = {{programs, batch, {.sums = {{0}}}}, {programs + 1, batch, {.sums = {{0}}}}};
  int both = threads > 1 && count == 2 && work(programs, batch) > WORTH_A_THREAD &&
             work(programs + 1, batch) > WORTH_A_THREAD;
  if (both) run_both(run_task, tasks, tasks + 1);
  for (int i = 0; i < count && !both; i++) run_task(tasks + i);
  float *terms = batch->terms;
  for (int term = 0; term < TERMS; term++) {
    /* A term that the other program has is 0 here. */
    terms[term] = sum_lanes(tasks[0].rows.sums[term]);
    if (count == 2) terms[term] += sum_lanes(tasks[1].rows.sums[term]);
  }
  batch->terms[TERMS] =
      terms[POLICY_TERM] + batch->value_weight * terms[VALUE_TERM] - batch->entropy * terms[ENTROPY_TERM];
}

/* Floats of a vector: widths of buffers are multiples of it. */
EXPORT int vector_width(void) { return WIDTH; }

/* Sizes of all structures, to compare with those of native/structures.py; returns their number. */
EXPORT int structure_sizes(int *sizes) {
  const int all_sizes[] = {sizeof(Weights), sizeof(Operation), sizeof(Program),
                           sizeof(Batch),   sizeof(Source),    sizeof(Actor),
                           sizeof(Convolution), sizeof(Matrix), sizeof(Gated), sizeof(GatedNorm)};
  memcpy(sizes, all_sizes, sizeof all_sizes);
  return sizeof all_sizes / sizeof *all_sizes;
}
