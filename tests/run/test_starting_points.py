"""Runs that begin from another agent, recordings, and agents that are cloned from them or from a teacher."""

import copy
import json
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from benchmarks.starting_points import steps_to_best
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

import recollect
from recollect import cli
from recollect.common.errors import UsageError
from recollect.config.config import InitConfig, RunConfig
from recollect.encoder import Encoder
from recollect.encoder.nature import NatureConfig
from recollect.envs import EnvConfig
from recollect.envs.spaces import read_spaces
from recollect.envs.spaces_json import spaces_to_json
from recollect.learn import clone
from recollect.learn.rollout import OBS, Rollout
from recollect.run import checkpoint, dataset, minari
from recollect.run.build import build
from recollect.run.teaching import clone_data, clone_teacher, record_episodes

from ..encoder.test_pictures import Filmed
from ..helpers import (
    ROOT_MODELS,
    StopAt,
    T,
    assert_same_end,
    branch,
    prepare,
    roll,
    run_quietly,
    small_config,
)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A short run of a GRU, to begin from."""
    return run_quietly(small_config(actor=branch("gru"), rollouts=3), tmp_path_factory.mktemp("source"))


def from_source(source, **changes):
    return small_config(actor=branch("gru"), init=InitConfig(path=str(source.folder), **changes))


# Weights --------------------------------------------------------------------------------------


def test_a_run_begins_from_the_weights_of_another_agent(source):
    _, agent, config = build(replace(from_source(source), seed=8))
    for name, x in source.agent.state_dict().items():
        assert torch.equal(agent.state_dict()[name], x), name
    assert agent.normalizer.count > 0 and config.init.path == str(source.folder.resolve())


def test_parts_take_their_weights_and_leave_the_others_as_they_are_drawn(source):
    _, fresh, _ = build(small_config(actor=branch("gru")))
    _, agent, _ = build(from_source(source, parts=("actor.memory", "critic.head")))
    theirs, drawn = source.agent.state_dict(), fresh.state_dict()
    for name, x in agent.state_dict().items():
        taken = name.startswith(("actor.memory.", "critic.head."))
        assert torch.equal(x, theirs[name] if taken else drawn[name]), name


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "trpo"])
def test_while_the_critic_is_warmed_up_the_actor_stays_and_the_critic_learns(source, algorithm, tmp_path):
    config = replace(from_source(source, critic_rollouts=2), rollouts=2, algorithm=algorithm)
    run = run_quietly(config, tmp_path)
    before, after = source.agent.state_dict(), run.agent.state_dict()
    for name, x in after.items():
        if name.startswith("actor."):
            assert torch.equal(x, before[name]), name
    assert any(not torch.equal(after[n], before[n]) for n in after if n.startswith("critic."))
    further = run_quietly(replace(config, rollouts=3), tmp_path, "further").agent.state_dict()
    assert any(not torch.equal(further[n], before[n]) for n in further if n.startswith("actor."))


def test_the_scale_of_rewards_comes_with_the_critic(source, tmp_path):
    count = checkpoint.read(source.folder / "checkpoints" / "last.safetensors")[0]["rewards.count"]
    for parts, earlier in (((), float(count)), (("actor",), 0.0)):
        run = run_quietly(replace(from_source(source, parts=parts), rollouts=1), tmp_path, f"run{len(parts)}")
        saved = checkpoint.read(run.folder / "checkpoints" / "last.safetensors")[0]["rewards.count"]
        assert float(saved) == earlier + run.summary["step"]


def test_a_run_is_resumed_exactly_although_the_agent_it_began_from_is_gone(source, tmp_path, monkeypatch):
    place = tmp_path / "source"
    shutil.copytree(source.folder, place)
    config = small_config(actor=branch("gru"), init=InitConfig(path=str(place), critic_rollouts=4))
    whole = run_quietly(config, tmp_path, "whole")
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(3))
    stopped = run_quietly(config, tmp_path, "stopped")
    monkeypatch.undo()
    shutil.copytree(stopped.folder, tmp_path / "without")
    for path in (tmp_path / "without" / "checkpoints").iterdir():
        path.unlink()
    assert_same_end(whole.folder, recollect.resume(tmp_path / "without", quiet=True).folder)
    shutil.rmtree(place)
    assert_same_end(whole.folder, recollect.resume(stopped.folder, quiet=True).folder)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (small_config("Acrobot-v1", actor=branch("gru")), "with observations .* and Acrobot-v1 has"),
        (small_config(actor=branch("lstm")), "the actor of this run is another one than that of .*: only"),
        (small_config(actor=replace(branch("gru"), hidden=(7,))), r"\(7, 4\) here and \(6, 4\) there"),
    ],
)
def test_another_agent_is_refused_in_one_line_that_names_both(config, message, source):
    with pytest.raises(UsageError, match=message) as error:
        build(replace(config, init=InitConfig(path=str(source.folder))))
    assert str(source.folder) in str(error.value) and "\n" not in str(error.value)


def test_a_warm_up_of_a_critic_that_is_not_trained_is_refused():
    with pytest.raises(UsageError, match=r"reinforce trains no critic: init\.critic_rollouts 2"):
        small_config(algorithm="reinforce", init=InitConfig(critic_rollouts=2))


def test_parts_that_nobody_has_are_refused(source):
    with pytest.raises(UsageError, match=r"init\.parts names actor\.mind, .* it has .*actor\.memory"):
        build(from_source(source, parts=("actor.mind",)))
    with pytest.raises(UsageError, match=r"init\.parts actor needs the agent"):
        InitConfig(parts=("actor",))
    with pytest.raises(UsageError, match="nowhere does not exist"):
        build(small_config(init=InitConfig(path="nowhere")))


# Recordings -----------------------------------------------------------------------------------


def test_a_recording_holds_what_was_seen_and_taken(source, tmp_path):
    data = record_episodes(source, 7, seed=2)
    dataset.write(tmp_path / "a.npz", data)
    again = dataset.read(tmp_path / "a.npz")
    assert again.spaces == data.spaces and again.about == data.about
    for name in dataset.COLUMNS:
        np.testing.assert_array_equal(getattr(again, name), getattr(data, name), err_msg=name)
    np.testing.assert_array_equal(again.obs["obs"], data.obs["obs"])
    assert len(data.bounds) == 7 and data.returns.sum() == len(data.first) - 7  # of CartPole: 1 a step
    # The agent takes the recorded actions for the recorded observations.
    for start, stop in data.bounds:
        player = source.player()
        for row in range(start, stop - 1):
            assert player.act(data.obs["obs"][row]) == data.action[row, 0]
        assert (data.terminated | data.truncated)[start:stop].tolist() == [False] * (stop - start - 2) + [
            True,
            False,
        ]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=12),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_every_recorded_row_is_a_step_of_one_environment_after_the_row_before_it(lengths, num_envs, length):
    data = numbered(lengths)
    columns = dataset.columns_of(data, num_envs, length)
    assert sorted(columns[columns >= 0]) == list(range(len(data.first))) and len(columns) % length == 0
    rows = dataset.rows_of(data, columns)
    assert rows["first"][0].all() and rows["valid"].sum() == sum(lengths) and not rows["valid"][-1].any()
    for t, n in np.argwhere(rows["valid"]):
        row = columns[t, n]
        assert rows["obs.obs"][t, n] == row and rows["reward"][t, n] == 10 + row
        expected = 0 if data.first[row] else 10 + row - 1
        assert rows["prev_reward"][t, n] == expected
        assert columns[t + 1, n] == row + 1 if t + 1 < len(columns) else True
    ends = rows["terminated"] | rows["truncated"]
    assert ends.sum() == len(lengths) and not (ends & ~rows["valid"][:-1]).any()
    assert not rows["reward"][~rows["valid"][:-1]].any()


def numbered(lengths):
    """Episodes of these lengths, whose observations are the numbers of the rows."""
    rows = sum(lengths) + len(lengths)
    first, ended = np.zeros(rows, dtype=bool), np.zeros(rows, dtype=bool)
    starts = np.cumsum([0, *(n + 1 for n in lengths)])
    first[starts[:-1]], ended[starts[1:] - 2] = True, True
    specs = read_spaces(spaces.Box(-1, 1, ()), spaces.Discrete(3))
    reward = np.arange(10.0, 10.0 + rows)
    action = np.zeros((rows, 1), dtype=np.int64)
    return dataset.Dataset(
        "numbers", specs, {"obs": np.arange(rows)}, action, reward, ended, ~ended & False, first, {}
    )


def recorded(rollout):
    """The rows of a rollout by the names of their fields, as a file of recorded episodes gives them."""
    fields = {OBS + key: x for key, x in rollout.rows.obs.items()}
    fields |= {k: getattr(rollout.rows, k) for k in ("first", "prev_action", "prev_reward")}
    fields |= {k: getattr(rollout, k) for k in ("valid", "action", "reward", "terminated", "truncated")}
    return {key: x.numpy().copy() for key, x in fields.items()}


@pytest.mark.parametrize("name", ["mlp", "stack", "gru", "lstm", "gpt2", "pictures"])
def test_replayed_rows_are_what_acting_computed(name):
    if name == "pictures":
        look = branch("gru", encoder=NatureConfig(features=8))
        s = prepare(look, look, Filmed((40, 40, 3)), normalize=True, scale=0.02)
    else:
        s = prepare(branch(name), branch(name))
    row = s.learner.row
    roll(s)
    again = Rollout(s.agent, row, T, torch.float64)
    again.open(row)
    again.fill(recorded(s.rollout))
    again.open(row)  # as in every epoch
    clone.replay(s.learner, again, s.rollout.starts[0], 4)
    valid = s.rollout.valid[:-1]
    torch.testing.assert_close(again.log_prob[valid], s.rollout.log_prob[valid], rtol=0, atol=1e-12)
    assert len(again.starts) == len(s.rollout.starts)


@pytest.mark.parametrize(
    "action", [spaces.Discrete(4, start=2), spaces.MultiDiscrete([3, 2]), spaces.Box(-2, 3, (2,))]
)
def test_actions_of_the_environment_are_those_of_the_policy(action):
    _, spec = read_spaces(spaces.Box(-1, 1, (1,)), action)
    action.seed(0)
    taken = np.stack([action.sample() for _ in range(50)])
    np.testing.assert_allclose(spec.to_env(spec.from_env(taken)), taken, rtol=1e-5, atol=1e-6)


def test_files_that_are_no_recordings_are_refused(tmp_path, source):
    with pytest.raises(UsageError, match="does not exist; recollect record"):
        dataset.read(tmp_path / "no.npz")
    (tmp_path / "text.npz").write_text("no arrays")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    data = record_episodes(source, 1)
    dataset.write(tmp_path / "short.npz", replace(data, reward=data.reward[:-1]))
    for name in ("text", "other", "short"):
        with pytest.raises(UsageError, match=f"{name}.npz"):
            dataset.read(tmp_path / f"{name}.npz")


def test_damaged_recordings_are_refused_or_the_same(tmp_path, source):
    """Single bits flipped, as zip files have a checksum and their headers none."""
    path = tmp_path / "damaged.npz"
    dataset.write(path, record_episodes(source, 1))
    whole, data, random = dataset.read(path), path.read_bytes(), np.random.default_rng(0)
    for place in random.integers(len(data), size=300):
        changed = bytearray(data)
        changed[place] ^= 1 << int(random.integers(8))
        path.write_bytes(changed)
        try:
            read = dataset.read(path)
        except UsageError as error:
            assert str(path) in str(error)
        else:
            np.testing.assert_array_equal(read.obs["obs"], whole.obs["obs"])
            np.testing.assert_array_equal(read.action, whole.action)


def test_recordings_with_impossible_values_are_refused(tmp_path, source):
    path = tmp_path / "changed.npz"
    dataset.write(path, record_episodes(source, 1))
    with np.load(path) as file:
        arrays = dict(file)
    reward, action = arrays["reward"].copy(), arrays["action"].copy()
    reward[3], action[5] = np.nan, 7
    changes = {
        "reward has numbers that are not finite, first in row 3": {"reward": reward},
        "the action in row 5 is not in the action space": {"action": action},
        "is not a file of recollect record": {"about": np.array('"text"')},
    }
    for message, change in changes.items():
        np.savez(path, **arrays | change)
        with pytest.raises(UsageError, match=message):
            dataset.read(path)


def test_rows_that_are_no_episodes_and_values_outside_of_a_space_are_refused(tmp_path):
    space = spaces.Dict({"code": spaces.MultiDiscrete([3, 4], start=[0, 2]), "switch": spaces.MultiBinary(2)})
    rows = {"first": [1, 0, 0, 1, 0, 0, 0], "terminated": [0, 1, 0, 0, 0, 0, 0]}
    rows |= {"truncated": [0, 0, 0, 0, 0, 1, 0], "reward": [0] * 7, "action": [1, 2, 1, 1, 2, 2, 1]}
    obs = {"obs.code": np.tile([2, 3], (7, 1)), "obs.switch": np.ones((7, 2), np.int8)}
    about = {
        "format": dataset.FORMAT,
        "spaces": spaces_to_json(*read_spaces(space, spaces.Discrete(2, start=1))),
    }
    arrays = {name: np.array(x) for name, x in rows.items()} | obs | {"about": np.array(json.dumps(about))}
    path = tmp_path / "made.npz"

    def changed(name, row, value):
        x = arrays[name].astype(np.float64)
        x[row] = value
        return {name: x}

    np.savez(path, **arrays)
    dataset.read(path)
    ends = "terminated or truncated at its last action, and at no other: row"
    for message, change in (
        (f"{ends} 5", changed("truncated", 5, 0)),
        (f"{ends} 0", changed("terminated", 0, 1)),
        (f"{ends} 2", changed("truncated", 2, 1)),
        ("the episode that begins in row 0 has no action", changed("first", 1, 1)),
        ("the episode that begins in row 6 has no action", changed("first", 6, 1)),
        (
            r"obs\.code\[0\] in row 4 is outside: its space has the values 0 to 2",
            changed("obs.code", 4, [3, 0]),
        ),
        (
            r"obs\.code\[1\] in row 0 is outside: its space has the values 2 to 5",
            changed("obs.code", 0, [0, -1]),
        ),
        (r"obs\.code has 0\.5 in row 1; whole numbers are needed", changed("obs.code", 1, 0.5)),
        (r"action has 1\.5 in row 3; whole numbers are needed", changed("action", 3, 1.5)),
        (
            r"obs\.switch\[1\] in row 2 is outside: its space has the values 0 and 1",
            changed("obs.switch", 2, [0, 7]),
        ),
    ):
        np.savez(path, **arrays | change)
        with pytest.raises(UsageError, match=f"made.npz: .*{message}"):
            dataset.read(path)


@pytest.mark.parametrize("kind", [np.float32, np.int64, np.uint8])
def test_ends_may_be_numbers(tmp_path, source, kind):
    """Of a file that was made by hand: `~` of a number is no `not`."""
    path, names = tmp_path / "ends.npz", ("first", "terminated", "truncated")
    whole = record_episodes(source, 2)
    dataset.write(path, whole)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **arrays | {name: arrays[name].astype(kind) for name in names})
    read = dataset.read(path)
    assert all(np.array_equal(getattr(read, name), getattr(whole, name)) for name in names)
    assert {getattr(read, name).dtype for name in names} == {np.dtype(bool)}
    np.savez(path, **arrays | {"first": 2 * arrays["first"].astype(kind)})
    with pytest.raises(UsageError, match="first has other values than 0 and 1"):
        dataset.read(path)


def test_a_recording_that_unpacks_to_more_than_memory_is_refused(tmp_path, source, monkeypatch):
    monkeypatch.setattr(dataset, "MOST_BYTES", 1000)
    dataset.write(tmp_path / "large.npz", record_episodes(source, 1))
    with pytest.raises(UsageError, match=r"large\.npz is not a file .*: its arrays have 0 GiB, at most 0"):
        dataset.read(tmp_path / "large.npz")


@pytest.mark.parametrize("name", ["action", "reward", "first", "obs"])
@pytest.mark.parametrize(
    "change",
    [lambda x: np.stack([x, x], 1), lambda x: np.float32(1), lambda x: x.astype(str)],
    ids=["wide", "0-d", "text"],
)
def test_arrays_of_another_shape_are_refused_in_one_line(tmp_path, source, name, change, capsys):
    path = tmp_path / "changed.npz"
    dataset.write(path, record_episodes(source, 1))
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **arrays | {name: change(arrays[name])})
    words = ["clone", str(path), "-e", "CartPole-v1", "-o", str(tmp_path / "c.safetensors")]
    assert cli.main(words) == 2
    message = capsys.readouterr().err
    assert f"changed.npz: {name} has shape" in message and "Traceback" not in message


def test_recordings_of_every_kind_of_leaf_are_read(tmp_path):
    spec, action = read_spaces(
        spaces.Dict(
            {
                "grid": spaces.MultiDiscrete(np.full((2, 3), 4)),
                "one": spaces.Discrete(3, start=1),
                "bits": spaces.MultiBinary((2, 2)),
                "picture": spaces.Box(0, 255, (36, 36, 3), np.uint8),
                "numbers": spaces.Box(-1, 1, (2, 2)),
                "number": spaces.Box(-1, 1, ()),
                "action_mask": spaces.MultiBinary(2),
            }
        ),
        spaces.Box(-1, 1, (2, 2)),
    )
    obs = {
        "grid": np.ones((3, 2, 3), np.int64),
        "one": np.ones(3, np.int64),
        "bits": np.ones((3, 2, 2), np.int8),
        "picture": np.ones((3, 36, 36, 3), np.uint8),
        "numbers": np.ones((3, 2, 2), np.float32),
        "number": np.ones(3, np.float32),
        "action_mask": np.ones((3, 2), np.int8),
    }
    ends, never = np.array([False, True, False]), np.zeros(3, dtype=bool)
    columns = [
        np.zeros((3, 4), np.float32),
        np.zeros(3, np.float32),
        ends,
        never,
        np.array([True, False, False]),
    ]
    data = dataset.Dataset("x", (spec, action), spec.split(obs), *columns, about={})
    dataset.write(tmp_path / "x.npz", data)
    assert dataset.read(tmp_path / "x.npz").obs.keys() == data.obs.keys()


# Cloning --------------------------------------------------------------------------------------


def poc(memory):
    """The configuration of a student in poc."""
    options = {"env.num_envs": 8, "ppo.num_steps": 32, "steps": 6_000}
    return recollect_config("poc", "ppo_gru" if memory else "ppo", options)


def recollect_config(env, model, options):
    from recollect.config.assembly import configure
    from recollect.config.data import settings_in

    return configure(settings_in({"env.id": env, "model": model, **options}, "test"))


def success(learner, config):
    trained = recollect.run.run.Trained(learner.agent, config, Path(), {})
    return trained.evaluate(100).summary()["success"]


@pytest.mark.thorough
def test_a_clone_with_memory_does_what_was_recorded_and_one_without_cannot():
    teacher = recollect.load(ROOT_MODELS / "poc-ppo_gru.safetensors")
    data = record_episodes(teacher, 100)
    errors = []

    def on_epoch(metrics):
        assert torch.get_num_threads() == 2
        errors.append(max(metrics["ratio_error"], metrics["value_error"]))

    before = torch.get_num_threads()
    configs = {memory: replace(poc(memory), threads=2) for memory in (True, False)}
    reached = {memory: success(*clone_data(config, data, 15, on_epoch)) for memory, config in configs.items()}
    assert torch.get_num_threads() == before
    assert reached[True] > 0.95 > 0.8 > reached[False]
    assert max(errors) < 1e-4 and len(errors) == 30


@pytest.mark.thorough
def test_a_student_with_memory_learns_from_a_teacher_that_sees_what_it_does_not(tmp_path):
    options = {"actor.sees": ["obs", "hidden"], "env.num_envs": 8, "ppo.num_steps": 32}
    teacher = recollect.train("poc", steps=15_000, options=options, out=tmp_path, quiet=True)
    assert teacher.evaluate(50).summary()["success"] > 0.95
    config = poc(True)
    with pytest.raises(UsageError, match=r"T sees hidden .* and poc has none; add --env\.hidden"):
        clone_teacher(config, teacher.agent, "T", lambda _: None)
    config = replace(config, env=replace(config.env, hidden=True))
    learner, config = clone_teacher(config, teacher.agent, "T", lambda _: None)
    assert "hidden" not in learner.agent.actor.inputs.leaves
    assert success(learner, config) > 0.95


@pytest.mark.parametrize("masks", [((1,), ()), ((), (1,))], ids=["teacher", "student"])
def test_a_teacher_of_another_mask_is_refused(masks):
    """Entries that are 0 for one are numbers for the other."""
    theirs, ours = (small_config(env=replace(small_config().env, mask=mask)) for mask in masks)
    envs, teacher, _ = build(theirs)
    envs.adapter.close()
    with pytest.raises(UsageError, match=r"env\.mask is .* of the teacher T, and"):
        clone_teacher(ours, teacher, "T", lambda _: None)


class Mean(Encoder):
    """The mean of a picture, from the picture itself."""

    out_dim = 1

    def forward(self, obs, dtype):
        return obs["obs.camera"].to(dtype).mean((-3, -2, -1))[..., None] / 255


class Forbids(gymnasium.Env):
    """Three actions, of which the last is never allowed."""

    observation_space = spaces.Box(-1, 1, (2,))
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.count += 1
        return np.zeros(2, np.float32), 0.0, self.count == 5, False, {}

    def action_masks(self):
        return np.array([True, True, False])


@pytest.fixture
def forbids(monkeypatch):
    """Name -> config of an agent whose actions are masked or not."""
    monkeypatch.setitem(
        gymnasium.registry, "Forbids-v0", gymnasium.envs.registration.EnvSpec("Forbids-v0", Forbids)
    )
    plain = small_config("Forbids-v0", rollouts=2)
    return {"plain": plain, "masked": replace(plain, env=replace(plain.env, action_mask=True))}


def test_a_student_with_masks_learns_the_best_allowed_action_of_a_teacher_without(forbids):
    envs, teacher, _ = build(forbids["plain"])
    envs.adapter.close()
    with torch.no_grad():
        teacher.actor.head.out.bias.copy_(torch.tensor([0.0, 5.0, 9.0]))  # the last action, then the second
    losses = []
    clone_teacher(forbids["masked"], teacher, "T", lambda metrics: losses.append(metrics["policy_loss"]))
    assert 0 < losses[-1] < 1


def test_a_teacher_with_masks_needs_those_of_the_student(forbids):
    envs, teacher, _ = build(forbids["masked"])
    envs.adapter.close()
    with pytest.raises(UsageError, match=r"the teacher T has action masks, .* add --env\.action-mask True"):
        clone_teacher(forbids["plain"], teacher, "T", lambda _: None)


def test_a_teacher_sees_pictures_as_its_encoder_takes_them():
    """Those of the student may be given by their places among the distinct ones."""
    look = branch("gru", encoder=NatureConfig(features=8))
    s = prepare(look, look, Filmed((40, 40, 3)), scale=0.02)
    roll(s)
    teacher = copy.deepcopy(s.agent)
    teacher.actor.inputs.eyes = Mean()
    layers = [x for x in teacher.actor.modules() if isinstance(x, torch.nn.Linear)]
    layers[0].weight = torch.nn.Parameter(layers[0].weight[:, :1])
    assert s.agent.takes_shown and not teacher.takes_shown
    clone.by_teacher(teacher)(s.learner, s.rollout, s.plan, 4)
    plain = Rollout(teacher, s.learner.row, T, torch.float64)
    plain.fill(recorded(s.rollout))
    params, _ = teacher.actor(plain.sent.rows, teacher.initial_state(s.rollout.num_envs).actor)
    assert torch.equal(s.rollout.action, teacher.policy.mode(params[:-1]))


def test_recording_cloning_and_training_from_the_clone_on_the_command_line(source, tmp_path, capsys):
    episodes, file = str(tmp_path / "e.npz"), str(tmp_path / "c.safetensors")
    options = ["-e", "CartPole-v1", "-m", "ppo_gru", "--env.num-envs", "4"]
    assert cli.main(["record", str(source.folder), "-o", episodes, "--episodes", "6"]) == 0
    assert cli.main(["record", str(source.folder), "-o", episodes]) == 2
    assert cli.main(["clone", episodes, episodes, *options, "-o", file, "--epochs", "2"]) == 0
    printed = capsys.readouterr().out
    assert "12 episodes" in printed
    # Both epochs within a second: the last is printed whenever it ends.
    assert [printed.count(f"epoch    {epoch} ") for epoch in (1, 2)] == [1, 1]
    out = ["--out", str(tmp_path), "--run-id", "next", "--quiet", "--steps", "500"]
    words = ["train", *options, "--init", file, "--init.critic-rollouts", "1", *out]
    assert cli.main(words) == 0
    assert recollect.load(tmp_path / "ppo_gru/CartPole-v1/next").config.init.critic_rollouts == 1


def test_the_last_step_under_a_teacher_is_printed(source, tmp_path, capsys):
    options = ["-e", "CartPole-v1", "-m", "ppo_gru", "--env.num-envs", "4", "--ppo.num-steps", "32"]
    words = [
        "--teacher",
        str(source.folder),
        *options,
        "--steps",
        "384",
        "-o",
        str(tmp_path / "c.safetensors"),
    ]
    assert cli.main(["clone", *words]) == 0
    steps = [int(line.split()[1]) for line in capsys.readouterr().out.splitlines() if line.startswith("step")]
    assert steps == sorted(set(steps)) and steps[-1] >= 384


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-e", "CartPole-v1"], "clone needs either recorded episodes or a --teacher, here is neither"),
        (["a.npz", "--teacher", "b", "-e", "CartPole-v1"], "here is a.npz and b"),
        (
            ["EPISODES", "-e", "Acrobot-v1"],
            "(of CartPole-v1) has observations (obs: 4 numbers), and Acrobot-v1 has (obs: 6 numbers)",
        ),
        (["EPISODES", "-e", "CartPole-v1", "--epochs", "0"], "--epochs is 0"),
        (["EPISODES", "-e", "CartPole-v1", "--ppo.rnd-coef", "0.5"], "ppo.rnd_coef is 0.5, and clone copies"),
    ],
)
def test_clone_refuses_what_does_not_fit(words, message, source, tmp_path, capsys):
    dataset.write(tmp_path / "e.npz", record_episodes(source, 1))
    words = [str(tmp_path / "e.npz") if word == "EPISODES" else word for word in words]
    assert cli.main(["clone", *words, "-o", str(tmp_path / "c.safetensors")]) == 2
    assert message in capsys.readouterr().err


class Tripled(gymnasium.Env):
    """The observations of CartPole, and three actions."""

    observation_space = gymnasium.make("CartPole-v1").observation_space
    action_space = spaces.Discrete(3)


def test_other_spaces_than_those_of_the_agent_are_described(source):
    for env, message in (
        ("Acrobot-v1", "Acrobot-v1 gives observations (obs: 6 numbers), the agent takes (obs: 4 numbers)"),
        (Tripled, "callable-Tripled takes actions (3 choices), the agent gives (2 choices)"),
    ):
        with pytest.raises(UsageError, match=re.escape(message)):
            recollect.load(source.folder, env=env).evaluate(1)


# Minari ---------------------------------------------------------------------------------------


def fake_minari(monkeypatch, start=0, value=0.0):
    """A package with one dataset of two episodes, in the form of minari."""

    def episode(steps):
        return SimpleNamespace(
            observations=value + np.arange(2.0 * steps + 2).reshape(-1, 2),
            actions=np.full(steps, start + 1),
            rewards=np.ones(steps),
            terminations=np.zeros(steps, dtype=bool),
            truncations=np.zeros(steps, dtype=bool),
        )

    one = SimpleNamespace(
        observation_space=spaces.Box(-9, 9, (2,)),
        action_space=spaces.Discrete(2, start=start),
        iterate_episodes=lambda: iter([episode(3), episode(5)]),
    )

    def load_dataset(name, download):
        if name != "two-v0":
            raise ValueError(f"no {name}\nhere")
        return one

    monkeypatch.setitem(sys.modules, "minari", SimpleNamespace(load_dataset=load_dataset))


def test_a_dataset_of_minari_is_a_recording(monkeypatch):
    fake_minari(monkeypatch)
    data = minari.read("minari:two-v0", RunConfig(env=EnvConfig(mask=(1,))))
    assert data.bounds == [(0, 4), (4, 10)] and data.returns.tolist() == [3, 5]
    assert data.obs["obs"][:4].tolist() == [[0, 0], [2, 0], [4, 0], [6, 0]]
    assert np.flatnonzero(data.truncated).tolist() == [2, 8] and not data.terminated.any()
    with pytest.raises(UsageError, match="minari:none cannot be loaded: ValueError: no none here"):
        minari.read("minari:none", RunConfig())


def test_actions_of_minari_are_those_of_the_policy_and_its_numbers_are_checked(monkeypatch):
    fake_minari(monkeypatch, start=5)
    assert minari.read("minari:two-v0", RunConfig()).action[:, 0].tolist() == [1, 1, 1, 0, 1, 1, 1, 1, 1, 0]
    fake_minari(monkeypatch, value=np.nan)
    with pytest.raises(UsageError, match="minari:two-v0: obs has numbers that are not finite, first in row"):
        minari.read("minari:two-v0", RunConfig())


def test_without_minari_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(UsageError, match=r"minari:x: datasets of Minari need minari: .*minari"):
        minari.read("minari:x", RunConfig())


def test_about_is_plain_json(source, tmp_path):
    dataset.write(tmp_path / "a.npz", record_episodes(source, 1))
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        about = json.loads(str(file["about"]))
        assert about["env"] == "CartPole-v1" and set(file.files) == {"about", "obs", *dataset.COLUMNS}


def test_the_benchmark_counts_steps_to_three_validations_in_a_row():
    returns = [500.0, 499.0, 500.0, 500.0, 500.0, 80.0]
    assert steps_to_best(list(enumerate(returns))) == 2
    assert steps_to_best(list(enumerate(returns[:4]))) is None
