"""Config files of recurrent PPO: read as they are, equal to ours, and refused in one line."""

import copy
import json
import re
from pathlib import Path

import pytest
import yaml

from benchmarks import published_recurrent
from recollect import cli
from recollect.config import recurrent_ppo
from recollect.config.assembly import assemble

CONFIGS = Path(__file__).parents[2] / "configs"
DOC = Path(__file__).parents[2] / "docs" / "recurrent_ppo.md"


def schedule(initial, final, steps):
    return {"initial": initial, "final": final, "power": 1.0, "max_decay_steps": steps}


def theirs(environment, recurrence, numbers, schedules):
    """A file of theirs; recurrence and numbers in the order of their keys."""
    names = ("sequence_length", "hidden_state_size", "layer_type", "reset_hidden_state")
    keys = ("gamma", "updates", "epochs", "n_workers", "worker_steps", "n_mini_batch")
    keys += ("value_loss_coefficient", "hidden_layer_size", "max_grad_norm")
    named = zip(("learning_rate_schedule", "beta_schedule", "clip_range_schedule"), schedules, strict=True)
    return {
        "environment": environment,
        "lamda": 0.95,
        **dict(zip(keys, numbers, strict=True)),
        "recurrence": dict(zip(names, recurrence, strict=True)),
        **dict(named),
    }


LEVELS = {"start-seed": 0, "num-seeds": 100_000, "agent_scale": 0.25}
MORTAR = LEVELS | {
    "arena_size": 5,
    "allowed_commands": 5,
    "command_count": [10],
    "explosion_duration": [2],
    "explosion_delay": [6],
    "reward_command_failure": 0.0,
    "reward_command_success": 0.1,
    "reward_episode_success": 0.0,
}
PATH = LEVELS | {
    "cardinal_origin_choice": [0, 1, 2, 3],
    "show_origin": False,
    "show_goal": False,
    "visual_feedback": True,
    "reward_goal": 1.0,
    "reward_fall_off": 0.0,
    "reward_path_progress": 0.0,
}
# What their repository ships, under the names of our files.
PUBLISHED = {
    "poc": theirs(
        {"type": "PocMemoryEnv"},
        (8, 32, "gru", True),
        (0.99, 30, 4, 16, 128, 8, 0.1, 64, 0.5),
        (schedule(3e-4, 3e-4, 30), schedule(1e-3, 1e-4, 30), schedule(0.2, 0.2, 30)),
    ),
    "cartpole_masked": theirs(
        {"type": "CartPoleMasked"},
        (8, 64, "lstm", True),
        (0.99, 100, 4, 16, 256, 4, 0.2, 128, 0.5),
        (schedule(3e-4, 3e-6, 100), schedule(1e-3, 1e-4, 100), schedule(0.2, 0.2, 1000)),
    ),
    "minigrid_memory_s9": theirs(
        {"type": "Minigrid", "name": "MiniGrid-MemoryS9-v0"},
        (8, 256, "lstm", False),
        (0.99, 500, 4, 16, 256, 8, 0.25, 512, 0.5),
        (schedule(2e-4, 2e-4, 300), schedule(1e-3, 1e-3, 300), schedule(0.2, 0.2, 300)),
    ),
    "mortar_mayhem_grid": theirs(
        {"type": "MemoryGym", "name": "MortarMayhem-Grid-v0", "reset_params": MORTAR},
        (-1, 512, "gru", True),
        (0.995, 5000, 3, 32, 512, 8, 0.5, 512, 0.25),
        (schedule(2.5e-4, 1e-5, 10_000), schedule(1e-4, 1e-6, 10_000), schedule(0.1, 0.1, 10_000)),
    ),
    "mystery_path_grid": theirs(
        {"type": "MemoryGym", "name": "MysteryPath-Grid-v0", "reset_params": PATH},
        (-1, 512, "gru", True),
        (0.995, 10_000, 3, 32, 512, 8, 0.5, 512, 0.25),
        (schedule(2.75e-4, 1e-5, 10_000), schedule(1e-3, 1e-6, 10_000), schedule(0.2, 0.2, 10_000)),
    ),
}


@pytest.fixture
def written(tmp_path):
    """Writes a file of theirs; its path."""

    def write(data):
        path = tmp_path / "theirs.yaml"
        path.write_text(yaml.safe_dump(data))
        return str(path)

    return write


@pytest.mark.parametrize("name", PUBLISHED)
def test_their_file_is_read_as_ours_of_the_same_settings(name, written, capsys):
    config = assemble(["--config", written(PUBLISHED[name])])
    assert config == assemble(["--config", str(CONFIGS / f"{name}.yaml")])
    assemble(["--config", written(PUBLISHED[name])])  # said once, however often it is read
    error = capsys.readouterr().err
    assert f"read as {config.model} on {config.env.id}" in error and error.count("\n") == 1
    named = "num-seeds 100000" in error and "(levels are unlimited)" in error
    assert named == config.env.id.startswith("memory_gym:")


def test_flags_win_over_their_file(written):
    config = assemble(["--config", written(PUBLISHED["poc"]), "--seed", "7", "--ppo.bptt", "16"])
    assert (config.seed, config.ppo.bptt) == (7, 16)


def test_a_run_begins_from_their_file(written, tmp_path):
    flags = ["--rollouts", "1", "--out", str(tmp_path), "--run-id", "a", "--quiet"]
    assert cli.main(["train", "--config", written(PUBLISHED["poc"]), *flags]) == 0
    assert (tmp_path / "ppo_gru-critic_shared" / "poc" / "a" / "checkpoints" / "last.safetensors").exists()


@pytest.mark.parametrize("length", [0, -1])
def test_a_dynamic_sequence_length_is_whole_episodes(length, written):
    data = copy.deepcopy(PUBLISHED["poc"])
    data["recurrence"]["sequence_length"] = length
    assert assemble(["--config", written(data)]).ppo.bptt == "episode"


def test_cartpole_with_velocities_is_that_of_200_steps(written):
    config = assemble(["--config", written(PUBLISHED["poc"] | {"environment": {"type": "CartPole"}})])
    assert (config.env.id, config.env.time_limit, config.env.reward_scale) == ("CartPole-v1", 200, 0.01)


def changed(*path, value=None, drop=False):
    """The file of poc with one thing changed."""
    data = copy.deepcopy(PUBLISHED["poc"])
    place = data
    for key in path[:-1]:
        place = place[key]
    if drop:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return data


BAD = {
    "unknown key": (
        changed("gama", value=0.9),
        "unknown key gama in a config of recurrent PPO; did you mean",
    ),
    "missing key": (changed("lamda", drop=True), "a config of recurrent PPO lacks lamda"),
    "schedule": (
        changed("beta_schedule", "power", drop=True),
        "a config of recurrent PPO lacks beta_schedule.power",
    ),
    "no schedule": (changed("beta_schedule", value=0.1), "beta_schedule is 0.1 in a config of recurrent PPO"),
    "parameters": (
        changed("environment", value={"type": "MemoryGym", "name": "MysteryPath-v0", "reset_params": [1]}),
        "reset_params is [1] in a config of recurrent PPO",
    ),
    "environment": (
        changed("environment", "type", value="PocMemory"),
        "environment.type PocMemory of recurrent PPO is unknown; did you mean PocMemoryEnv",
    ),
    "layer": (changed("recurrence", "layer_type", value="rnn"), "recurrence.layer_type is rnn; gru and lstm"),
    "value": (changed("gamma", value=2.0), "ppo.gamma is 2.0, it must lie in [0, 1]"),
    "length": (
        changed("recurrence", "sequence_length", value=7),
        "ppo.bptt is 7, and must divide ",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_one_line(case, written, capsys, tmp_path):
    data, message = BAD[case]
    assert cli.main(["train", "--config", written(data), "--out", str(tmp_path / "runs")]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert message in last and last.startswith("recollect: ")


def test_the_page_has_every_key():
    """Of their files, with the option that it becomes."""
    rows = [line for line in DOC.read_text().splitlines() if line.startswith("| `")]
    for key in (*recurrent_ppo.KEYS, *recurrent_ppo.RECURRENCE, *recurrent_ppo.SCHEDULE):
        assert any(line.startswith(f"| `{key}`") for line in rows), key
    for key, option in recurrent_ppo.SAME.items():
        assert any(line.startswith(f"| `{key}` | `{option}`") for line in rows), (key, option)


def test_the_page_has_the_results_that_were_kept():
    kept = json.loads(published_recurrent.RESULTS.read_text())
    assert published_recurrent.table(kept) in DOC.read_text()


def test_the_page_names_tests_that_there_are():
    names = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", DOC.read_text())
    assert len(names) > 4
    for file, name in names:
        assert f"def {name}(" in (DOC.parents[1] / file).read_text(), name
