"""The structures of the headers and of kernels.c, field by field."""

import ctypes

BLOCK = 64  # rows that go through all layers together
LANES = 16  # accumulators of a sum over rows
TERMS = 6  # means of a batch, and the total

# Row by row.
INPUT, LINEAR, RESIDUAL, NORM, GATE, GELU, EMBED, LAST, SKIP, GLU, HEAD_NORM, GATED_NORM = range(12)
# Over whole sequences.
STEPS, FRAMES, MINGRU, GRU, LSTM, LMU, OSCILLATE, CONVOLVE, DELTA, SELECTIVE, ATTENTION = range(12, 23)
CATEGORICAL, GAUSSIAN, VALUE = range(23, 26)
WEIGHTS, VECTORS, PACKED = 6, 3, 5  # of an operation, at most
QUERIES = 16  # rows of a block of attention
ROWS = 8  # rows of a matrix memory are a multiple of it
IDENTITY, TANH, RELU, ELU = range(4)
NUMBERS, BINARY, CHOICES, REWARD = range(4)

_int, _float, _pointer = ctypes.c_int32, ctypes.c_float, ctypes.c_void_p


class Weights(ctypes.Structure):
    """Parameters of a linear map."""

    _fields_ = (
        *((name, _pointer) for name in ("weight", "bias", "weight_gradient", "bias_gradient")),
        *((name, _pointer) for name in ("forward", "backward", "sums", "bias_packed", "bias_sums")),
        *((name, _int) for name in ("inputs", "blocks", "width", "transposed")),
    )


class Operation(ctypes.Structure):
    """One operation of a program."""

    _fields_ = (
        *((name, _int) for name in ("kind", "stage", "full", "adds", "columns", "width", "count", "keys")),
        *((name, _int) for name in ("activation", "input", "other", "steps", "offset")),
        *((name, _int) for name in ("tokens", "heads", "stops")),
        ("scale", _float),
        ("weights", ctypes.POINTER(Weights) * WEIGHTS),
        *((name, _pointer * VECTORS) for name in ("vector", "vector_gradient")),
        *((name, _pointer) for name in ("packed", "vector_sums", "table", "table_gradient")),
        *((name, _pointer) for name in ("value", "gradient")),
        ("saved", _pointer * 3),
        *((name, _pointer * 2) for name in ("carry", "state", "end")),
        ("state_stride", ctypes.c_int64),
        *((name, _pointer) for name in ("sizes", "log_std", "log_std_gradient")),
    )


class Program(ctypes.Structure):
    """A network."""

    _fields_ = (
        ("operations", ctypes.POINTER(Operation)),
        ("weights", ctypes.POINTER(Weights)),
        ("first", _pointer),
        *((name, _int) for name in ("operation_count", "weights_count", "stages")),
    )


class Batch(ctypes.Structure):
    """A minibatch."""

    _fields_ = (
        *((name, _int) for name in ("rows", "batch")),
        *(
            (name, _pointer)
            for name in ("valid", "weight", "old_log_prob", "advantage", "old_value", "target")
        ),
        *((name, _pointer) for name in ("choices", "allowed", "actions")),
        *((name, _float) for name in ("clip", "entropy", "value_weight", "value_clip")),
        *((name, _pointer) for name in ("ratio", "values", "terms")),
    )


class Source(ctypes.Structure):
    """A part of the features of an actor."""

    _fields_ = (
        ("from_", _pointer),
        ("stride", ctypes.c_int64),
        *((name, _pointer) for name in ("shift", "scale", "sizes")),
        *((name, _int) for name in ("kind", "width", "groups", "blank", "bytes")),
    )


class Actor(ctypes.Structure):
    """An actor during a rollout."""

    _fields_ = (
        ("program", ctypes.POINTER(Program)),
        ("sources", ctypes.POINTER(Source)),
        ("first", _pointer),
        ("first_stride", ctypes.c_int64),
        ("allowed", _pointer),
        ("allowed_stride", ctypes.c_int64),
        *((name, _pointer) for name in ("noise", "std", "features", "params", "actions")),
        *((name, _int) for name in ("source_count", "batch", "resets", "most")),
    )


class Convolution(ctypes.Structure):
    """A short convolution of sequences."""

    _fields_ = (
        *((name, _int) for name in ("steps", "batch", "channels", "taps")),
        *((name, ctypes.c_int64) for name in ("x_row", "y_row", "by_x_row", "by_y_row")),
        *((name, _pointer) for name in ("x", "weight", "start", "first", "sums", "y", "end")),
        *((name, _pointer) for name in ("by_y", "by_end", "by_sums", "by_x", "by_weight", "by_start")),
    )


class Matrix(ctypes.Structure):
    """A matrix memory over sequences."""

    _fields_ = (
        *((name, _int) for name in ("steps", "batch", "heads", "keys", "values", "is_delta")),
        *((f"{name}_row", ctypes.c_int64) for name in ("query", "key", "value")),
        *((f"{name}_head", ctypes.c_int64) for name in ("query", "key", "value")),
        *((f"{name}_row", ctypes.c_int64) for name in ("output", "by_query", "by_key", "by_value")),
        *((name, _pointer) for name in ("query", "key", "value", "beta", "decay", "start", "first")),
        *((name, _pointer) for name in ("output", "end", "by_output", "by_end")),
        *((f"by_{name}", _pointer) for name in ("query", "key", "value", "beta", "decay", "start")),
        ("scratch", _pointer),
    )


class Gated(ctypes.Structure):
    """The recurrence of sLSTM over sequences."""

    _fields_ = (
        *((name, _int) for name in ("steps", "batch", "heads", "units")),
        *((name, _pointer) for name in ("x", "weight", "start_h", "start_c", "start_n", "start_m", "first")),
        *((name, _pointer) for name in ("output", "end_c", "end_n", "end_m", "saved")),
        *((name, _pointer) for name in ("by_output", "by_end_c", "by_end_n")),
        *((f"by_{name}", _pointer) for name in ("x", "weight", "start_h", "start_c", "start_n", "start_m")),
        ("scratch", _pointer),
    )


class GatedNorm(ctypes.Structure):
    """A gated norm of rows."""

    _fields_ = (
        *((name, _int) for name in ("rows", "width")),
        *((name, ctypes.c_int64) for name in ("x_row", "gate_row", "by_x_row", "by_gate_row")),
        ("eps", _float),
        *((name, _pointer) for name in ("x", "gate", "weight", "y", "scale")),
        *((name, _pointer) for name in ("by_y", "by_x", "by_gate", "by_weight", "scratch")),
    )


STRUCTURES = Weights, Operation, Program, Batch, Source, Actor, Convolution, Matrix, Gated, GatedNorm
SIZES = [ctypes.sizeof(structure) for structure in STRUCTURES]
