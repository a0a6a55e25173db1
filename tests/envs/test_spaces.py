"""Spaces at the border: what becomes a leaf, what an action means, and what is refused."""

import json

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import example, given
from hypothesis import strategies as st

from recollect.common.errors import UsageError
from recollect.envs.spaces import read_spaces
from recollect.envs.spaces_json import spaces_from_json, spaces_to_json

ANY_OBS, ANY_ACTION = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)
NESTED = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (4, 5, 3), np.uint8),
        "inner": spaces.Tuple(
            [
                spaces.Discrete(4, start=-3),
                spaces.Dict({"code": spaces.MultiDiscrete([2, 5], start=[1, -2])}),
            ]
        ),
        "switch": spaces.MultiBinary((2, 3)),
    }
)


def action_spec(space: spaces.Space):
    return read_spaces(ANY_OBS, space)[1]


def batch(space: spaces.Space, count: int, seed: int = 0):
    """`count` samples of a space, batched as Gymnasium's vector environments batch them."""
    space.seed(seed)
    return stack(space, [space.sample() for _ in range(count)])


def stack(space: spaces.Space, samples: list):
    if isinstance(space, spaces.Dict):
        return {key: stack(part, [x[key] for x in samples]) for key, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(stack(part, [x[i] for x in samples]) for i, part in enumerate(space.spaces))
    return np.stack(samples)


# Observations ---------------------------------------------------------------------------------


def test_nested_spaces_become_dotted_leaves():
    obs = batch(NESTED, 6)
    leaves = read_spaces(NESTED, ANY_ACTION)[0].split(obs)
    assert leaves.keys() == {"obs.camera", "obs.inner.0", "obs.inner.1.code", "obs.switch"}
    assert leaves["obs.camera"].dtype == np.float32
    np.testing.assert_array_equal(leaves["obs.camera"], obs["camera"])
    np.testing.assert_array_equal(leaves["obs.inner.0"][:, 0], obs["inner"][0] + 3)
    np.testing.assert_array_equal(leaves["obs.inner.1.code"], obs["inner"][1]["code"] - [1, -2])
    np.testing.assert_array_equal(leaves["obs.switch"], obs["switch"])


def test_the_width_is_what_one_hot_features_take():
    leaves = read_spaces(NESTED, ANY_ACTION)[0].leaves
    widths = {name: leaf.width for name, leaf in leaves.items()}
    expected = {"obs.camera": 60, "obs.inner.0": 4, "obs.inner.1.code": 7, "obs.switch": 6}
    assert widths == expected


@pytest.mark.parametrize("space", [NESTED, ANY_OBS, spaces.Discrete(3), spaces.MultiBinary(3)])
def test_a_single_observation_is_told_from_a_batch(space):
    spec = read_spaces(space, ANY_ACTION)[0]
    assert spec.is_single(space.sample())
    assert not spec.is_single(batch(space, 1))


def test_masking_leaves_the_environments_own_array_alone():
    spec = read_spaces(ANY_OBS, ANY_ACTION, mask=(1,))[0]
    obs = np.ones((3, 2), dtype=np.float32)
    np.testing.assert_array_equal(spec.split(obs)["obs"], [[1, 0]] * 3)
    assert (obs == 1).all()


def test_the_vector_of_a_dict_is_masked_like_one_alone():
    spec = read_spaces(spaces.Dict({"x": ANY_OBS}), ANY_ACTION, mask=(1,))[0]
    seen = spec.split({"x": np.ones((3, 2), dtype=np.float32)})
    np.testing.assert_array_equal(seen["obs.x"], [[1, 0]] * 3)


@pytest.mark.parametrize(
    ("space", "mask"),
    [
        (ANY_OBS, (2,)),
        (ANY_OBS, (-1,)),
        (NESTED, (0,)),
        (spaces.Discrete(3), (0,)),
        (spaces.Box(0, 1, (2, 2)), (0,)),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(space, mask):
    with pytest.raises(UsageError, match=r"env\.mask"):
        read_spaces(space, ANY_ACTION, mask)


@pytest.mark.parametrize("space", [spaces.Text(5), spaces.Sequence(ANY_OBS), spaces.Graph(ANY_OBS, None)])
@pytest.mark.parametrize("nested", [False, True])
def test_an_unsupported_observation_is_refused_by_name(space, nested):
    whole = spaces.Dict({"fine": ANY_OBS, "odd": space}) if nested else space
    with pytest.raises(UsageError) as caught:
        read_spaces(whole, ANY_ACTION)
    assert str(space) in str(caught.value)
    assert ("obs.odd" in str(caught.value)) == nested


def test_empty_entries_are_left_out_and_an_empty_observation_is_refused():
    nothing = spaces.Box(-1, 1, (2, 0))
    space = spaces.Dict({"extra": nothing, "speed": ANY_OBS})
    spec = read_spaces(space, ANY_ACTION)[0]
    assert spec.split(batch(space, 3)).keys() == {"obs.speed"}
    with pytest.raises(UsageError, match=r"observation space .* is empty: it has no number"):
        read_spaces(spaces.Tuple([nothing, nothing]), ANY_ACTION)


def test_an_empty_entry_with_the_name_of_another_one_is_refused():
    twice = spaces.Dict({"a.b": spaces.Box(-1, 1, (0,)), "a": spaces.Dict({"b": ANY_OBS})})
    with pytest.raises(UsageError, match=r"two entries of the observation are named a\.b"):
        read_spaces(twice, ANY_ACTION)


# Actions --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(5),
        spaces.Tuple([ANY_ACTION, ANY_ACTION]),
        spaces.Dict({"move": ANY_ACTION}),
        spaces.Box(0, 5, (2,), np.int64),
    ],
)
def test_an_unsupported_action_is_refused_by_name(space):
    with pytest.raises(UsageError) as caught:
        action_spec(space)
    assert str(space) in str(caught.value)


def test_an_empty_action_is_refused():
    with pytest.raises(UsageError, match="is empty: there is nothing to choose"):
        action_spec(spaces.Box(-1, 1, (0,)))


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(4),
        spaces.Discrete(4, start=-2),
        spaces.Discrete(2, start=7),
        spaces.MultiDiscrete([2, 5, 3]),
        spaces.MultiDiscrete([[2, 5], [3, 4]], start=[[1, -1], [0, 9]]),
        spaces.MultiBinary(3),
        spaces.MultiBinary((2, 2)),
    ],
    ids=str,
)
def test_choices_count_from_zero_and_reach_exactly_the_space(space):
    spec = action_spec(space)
    drawn = np.stack([np.zeros(spec.width, dtype=np.int64), np.array(spec.sizes) - 1])
    lowest, highest = spec.to_env(drawn)
    assert space.contains(space.dtype.type(lowest) if space.shape == () else lowest.astype(space.dtype))
    start = getattr(space, "start", 0)
    np.testing.assert_array_equal(lowest, np.broadcast_to(start, space.shape))
    np.testing.assert_array_equal(highest - lowest + 1, np.reshape(spec.sizes, space.shape))
    np.testing.assert_array_equal(spec.to_prev_action(drawn), drawn)


bounds = st.floats(-1e6, 1e6, width=32)
numbers = st.floats(-1e3, 1e3, width=32)


@given(bounds, bounds, numbers, st.sampled_from([np.float32, np.float64]))
@example(0.00025, -262144.0, 0.0, np.float32)
def test_a_bounded_action_reaches_both_bounds_and_passes_neither(a, b, drawn, dtype):
    low, high = min(a, b), max(a, b)
    space = spaces.Box(low, high, (2,), dtype)
    spec = action_spec(space)
    action = np.array([[-1, 1], [drawn, -drawn], [0, 0]], dtype=np.float32)
    out = spec.to_env(action)
    assert out.shape == (3, 2)
    span = high - low
    np.testing.assert_allclose(out[0], [low, high], rtol=1e-6, atol=1e-6 * span)
    np.testing.assert_allclose(out[2], (low + high) / 2, rtol=1e-6, atol=1e-6 * span)
    assert (out >= low).all() and (out <= high).all()
    np.testing.assert_array_equal(spec.to_prev_action(action), np.clip(action, -1, 1))


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
@example(0.0, 0.1)
@example(0.0, 2.9)
def test_bounds_that_single_precision_cannot_hold_are_not_passed(a, b):
    """An environment that checks `action_space.contains` must not stop at its own bounds."""
    space = spaces.Box(min(a, b), max(a, b), (2,), np.float64)
    (out,) = action_spec(space).to_env(np.array([[-1, 1]], dtype=np.float32))
    assert (out >= space.low).all() and (out <= space.high).all()


@given(numbers)
def test_an_infinite_side_passes_numbers_as_they_are(drawn):
    low = np.array([-np.inf, 0, -np.inf, -3], dtype=np.float32)
    high = np.array([np.inf, np.inf, 2, 5], dtype=np.float32)
    spec = action_spec(spaces.Box(low, high))
    action = np.full((1, 4), drawn, dtype=np.float32)
    (out,) = spec.to_env(action)
    mapped = 1 + 4 * np.clip(drawn, -1, 1)
    np.testing.assert_allclose(out, [drawn, max(drawn, 0), min(drawn, 2), mapped], rtol=1e-5, atol=1e-5)
    (before,) = spec.to_prev_action(action)
    assert before.dtype == np.float32
    # As the environment got it, in the units of the policy.
    np.testing.assert_array_equal(
        before, np.float32([drawn, max(drawn, 0), min(drawn, 2), np.clip(drawn, -1, 1)])
    )


def test_a_box_keeps_its_shape():
    out = action_spec(spaces.Box(-2, 2, (2, 3))).to_env(np.linspace(-1, 1, 12).reshape(2, 6))
    np.testing.assert_allclose(out, np.linspace(-2, 2, 12).reshape(2, 2, 3), rtol=1e-6)


# Plain data -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "space",
    [ANY_ACTION, spaces.Box(-np.inf, 3, (2,)), spaces.MultiDiscrete([2, 3], start=[1, 0])],
    ids=str,
)
@pytest.mark.parametrize("obs", [NESTED, ANY_OBS])
def test_spaces_survive_json(obs, space):
    whole = read_spaces(obs, space, mask=(1,) if obs is ANY_OBS else ())
    assert spaces_from_json(json.loads(json.dumps(spaces_to_json(*whole)))) == whole


WRONG = [None, True, 3, 0.5, float("nan"), "x", [], {}, [None], [0.5], [-1], ["x"], [[2]], [2**63], [10**400]]


@pytest.mark.parametrize("value", WRONG, ids=lambda value: str(value)[:9])
@pytest.mark.parametrize(
    "place",
    [
        *(("obs", "obs", field) for field in ("kind", "shape", "sizes")),
        *(("action", field) for field in ("kind", "sizes", "shape", "start", "unknown")),
        *(("obs", "obs"), ("obs",), ("order",), ("mask",), ("action",)),
    ],
    ids=".".join,
)
def test_spaces_of_another_form_are_one_error(place, value):
    """What is read from a file has the types and the sizes that a space has, or is refused."""
    obs, action = read_spaces(spaces.Discrete(5), spaces.MultiDiscrete([2, 3]))
    data = json.loads(json.dumps(spaces_to_json(obs, action)))
    *above, last = place
    parent = data
    for key in above:
        parent = parent[key]
    if parent.get(last) == value:
        return
    parent[last] = value
    with pytest.raises(ValueError) as caught:
        spaces_from_json(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("field", ["low", "high", "dtype"])
@pytest.mark.parametrize("value", [[], [1.0], [None, 1.0], "int32", 3, None])
def test_bounds_of_another_form_are_one_error(field, value):
    data = json.loads(json.dumps(spaces_to_json(*read_spaces(ANY_OBS, spaces.Box(-1, 1, (2,))))))
    data["action"][field] = value
    with pytest.raises(ValueError, match=f"action.{field}|action.low or action.high"):
        spaces_from_json(data)


def test_a_file_keeps_the_order_of_leaves():
    """It is the order of the input features, and files sort the keys of dicts."""
    space = spaces.Tuple([spaces.Box(-1, 1, (i + 1,)) for i in range(11)])
    spec, action = read_spaces(space, ANY_ACTION)
    saved = json.loads(json.dumps(spaces_to_json(spec, action), sort_keys=True))
    assert list(spaces_from_json(saved)[0].leaves) == list(spec.leaves)
    assert sorted(spec.leaves) != list(spec.leaves)


def test_a_component_with_one_value_is_a_number_for_the_policy():
    spec = action_spec(spaces.Box(np.array([1.0, -1.0], np.float32), np.array([1.0, 2.0], np.float32)))
    np.testing.assert_allclose(
        spec.from_env(np.array([[1.0, 0.5], [1.0, 2.0]])), [[-1, 0], [-1, 1]], atol=1e-6
    )
    np.testing.assert_array_equal(spec.to_env(np.array([[0.3, 1.0]], np.float32)), [[1.0, 2.0]])
