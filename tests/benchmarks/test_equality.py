"""What benchmarks/equality.py takes for a difference, and that its cases cover what the library has."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from benchmarks import equality, equality_cases
from recollect import memory
from recollect.config import presets


def write_run(folder, weight=1.0, kl=0.5, time=1.0, key="kl", tensor="agent.actor.recalled"):
    """The files of a run of one rollout and one weight."""
    (folder / "run").mkdir(parents=True)
    save_file({tensor: np.array([weight], np.float32)}, folder / "run" / "last.safetensors")
    (folder / "run" / "metrics.jsonl").write_text(json.dumps({"step": 64, key: kl, "time": time}) + "\n")
    (folder / "evaluation.json").write_text("[[21.0]]")
    return folder


def compared(one, other, names=None):
    return equality.differences(equality.read(one, names or {}), equality.read(other, {}))


def test_equal_runs_may_differ_in_their_clock_alone(tmp_path):
    one, other = write_run(tmp_path / "a"), write_run(tmp_path / "b", time=2.0)
    assert compared(one, other) == []


def test_one_bit_of_a_weight_is_a_difference(tmp_path):
    one = write_run(tmp_path / "a", weight=0.0)
    text = "weights: 1 of 1 differ (last agent.actor.recalled)"
    assert compared(one, write_run(tmp_path / "b", weight=-0.0)) == [text]


def test_values_that_are_not_numbers_are_equal_to_themselves(tmp_path):
    one, other = (write_run(tmp_path / name, weight=np.nan, kl=None) for name in "ab")
    assert compared(one, other) == []


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"kl": 0.25}, "metrics: 1 of 2 differ (line 1 kl)"),
        ({"key": "kld"}, "metrics: 1 of 2 missing (line 1 kl), 1 of 2 added (line 1 kld)"),
    ],
)
def test_a_difference_is_named(change, text, tmp_path):
    one, other = write_run(tmp_path / "a"), write_run(tmp_path / "b", **change)
    assert compared(one, other) == [text]


def test_a_run_that_left_nothing_is_no_success(tmp_path):
    assert compared(tmp_path, tmp_path) == ["the run left no weights or no metrics"]


def test_new_names_are_no_difference_where_they_are_given(tmp_path):
    one = write_run(tmp_path / "a")
    other = write_run(tmp_path / "b", key="divergence", tensor="agent.actor.bias")
    assert len(compared(one, other)) == 2
    assert compared(one, other, {"kl": "divergence", "recalled": "bias"}) == []


def test_a_name_is_renamed_as_a_whole_or_part_by_part():
    names = {"keep": "forget_bias", "ppo.clip": "ppo.clip_range"}
    assert equality.renamed("actor.memory.keep", names) == "actor.memory.forget_bias"
    assert equality.renamed("ppo.clip", names) == "ppo.clip_range"
    assert equality.renamed("ppo.clip_decay.final", names) == "ppo.clip_decay.final"
    assert equality.renamed(16, names) == 16


def test_every_preset_and_every_memory_has_a_case():
    assert set(equality_cases.PRESETS) == set(presets.MODELS)
    assert {options["actor"] for options in equality_cases.MEMORIES.values()} == set(memory.available())


def test_no_case_has_the_option_that_the_control_changes():
    assert not any(set(equality_cases.CONTROL) & set(case.options) for case in equality_cases.CASES.values())
