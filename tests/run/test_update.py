"""Callbacks and training as a loop: what they see, what they change, and that a resumed run repeats it."""

import itertools
import json
import math
import signal
from dataclasses import replace

import pytest
import torch

import recollect
from recollect.common.errors import UsageError
from recollect.common.signals import Signals
from recollect.config.config import InitConfig
from recollect.learn import ppo
from recollect.run import checkpoint

from ..helpers import metrics_of, set_status, small_config

OPTIONS = {"env.num_envs": 4, "ppo.num_steps": 16, "ppo.num_minibatches": 2, "save_interval": 1}


def train(out, on_rollout=None, rollouts=6, **kwargs):
    config = small_config(rollouts=rollouts)
    return recollect.train(config, out=out, run_id="run", quiet=True, on_rollout=on_rollout, **kwargs)


def weights_of(trained):
    return [p.detach().clone() for p in trained.agent.parameters()]


def assert_equal(one, other):
    for a, b in zip(weights_of(one), weights_of(other), strict=True):
        assert torch.equal(a, b)


def cut_back(folder, iteration):
    """The folder of a run that died after this iteration."""
    for path in (folder / "checkpoints").iterdir():
        if not path.name.startswith(f"iteration-{iteration:08}"):
            path.unlink()
    set_status(folder)


def test_a_callback_sees_every_iteration_and_changes_nothing(tmp_path):
    seen = []
    with_callback = train(tmp_path / "with", lambda update: seen.append((update, dict(update.metrics))))
    without = train(tmp_path / "without")
    assert_equal(with_callback, without)
    lines = [json.loads(line) for line in (with_callback.folder / "metrics.jsonl").read_text().splitlines()]
    assert [metrics for _, metrics in seen] == lines and len(lines) == 6
    update = seen[0][0]
    assert update.agent is with_callback.agent and update.folder == with_callback.folder
    assert update.config == with_callback.config
    assert repr(update).startswith("Update(step=") and "iteration=6" in repr(update)


def test_a_callback_stops_the_run_as_if_its_budget_were_used_up(tmp_path):
    stopped = train(tmp_path / "a", lambda update: update.metrics["iteration"] == 3 and update.stop())
    assert stopped.summary["status"] == "finished" and stopped.summary["iteration"] == 3
    # Not equal to a run of three rollouts, whose learning rate decays faster.
    assert [row["iteration"] for row in metrics_of(stopped.folder)] == [1, 2, 3]
    loaded = recollect.load(stopped.folder)
    assert_equal(stopped, loaded)
    assert recollect.resume(stopped.folder, quiet=True).summary["iteration"] == 3


def halve_at_2(update):
    if update.metrics["iteration"] == 2:
        update.learning_rate /= 2


def test_a_learning_rate_that_is_set_keeps_its_schedule(tmp_path):
    usual, halved = train(tmp_path / "a"), train(tmp_path / "b", halve_at_2)
    rates = [[row["learning_rate"] for row in metrics_of(run.folder)] for run in (usual, halved)]
    factors = [b / a for a, b in zip(*rates, strict=True)]
    assert factors == pytest.approx([1, 1, 0.5, 0.5, 0.5, 0.5])
    with pytest.raises(AssertionError):
        assert_equal(usual, halved)


def test_a_learning_rate_may_be_set_after_every_update_of_a_schedule_that_ends_at_0(tmp_path):
    def halve(update):
        update.learning_rate /= 2

    run = train(tmp_path, halve, rollouts=4)
    rates = [row["learning_rate"] / run.config.ppo.learning_rate for row in metrics_of(run.folder)]
    assert rates == pytest.approx([1, 0.75 / 2, 0.5 / 4, 0.25 / 8])
    assert run.summary["status"] == "finished"


def test_the_rate_of_an_actor_that_is_not_trained_yet_cannot_be_set(tmp_path):
    source = train(tmp_path / "source", rollouts=1)
    init = InitConfig(path=str(source.folder), critic_rollouts=3)
    config = replace(small_config(rollouts=4), init=init)
    with pytest.raises(UsageError, match=r"learning_rate: .* not trained yet; see init\.critic_rollouts"):
        recollect.train(config, out=tmp_path, quiet=True, on_rollout=halve_at_2)


def test_a_resumed_run_goes_on_with_the_learning_rate_that_was_set(tmp_path, capsys):
    whole = train(tmp_path, halve_at_2)
    before = weights_of(whole), metrics_of(whole.folder)
    checkpoints = checkpoint.existing(whole.folder / "checkpoints")
    cut_back(whole.folder, len(checkpoints) and 4)
    resumed = recollect.resume(whole.folder, on_rollout=halve_at_2)
    assert "a callback multiplied the learning rates by 0.5" in capsys.readouterr().out
    assert metrics_of(resumed.folder) == before[1]
    for a, b in zip(weights_of(resumed), before[0], strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("rate", [-1e-3, math.nan, math.inf, None, "0.1", True])
def test_a_bad_learning_rate_is_refused(rate, tmp_path):
    def set_rate(update):
        update.learning_rate = rate

    with pytest.raises(UsageError, match=f"learning_rate is {rate!r}, it must be a finite number of"):
        train(tmp_path, set_rate)


def test_a_callback_whose_iterator_has_ended_raises_that_error(tmp_path):
    rates = iter([1e-3, 5e-4])

    def set_rate(update):
        update.learning_rate = next(rates)

    with pytest.raises(StopIteration):
        train(tmp_path, set_rate)
    (summary,) = tmp_path.rglob("summary.json")
    assert json.loads(summary.read_text())["status"] == "failed"


def test_an_agent_is_saved_on_the_way(tmp_path):
    paths = [tmp_path / f"{i}.safetensors" for i in range(1, 7)]
    run = train(tmp_path / "runs", lambda update: update.save(paths[int(update.metrics["iteration"]) - 1]))
    assert_equal(run, recollect.load(paths[-1]))
    with pytest.raises(AssertionError):
        assert_equal(run, recollect.load(paths[0]))


def test_a_name_of_another_format_is_refused_on_the_way_too(tmp_path):
    with pytest.raises(UsageError, match=r"agent\.zip: an agent is saved as \.safetensors or \.onnx"):
        train(tmp_path / "runs", lambda update: update.save(tmp_path / "agent.zip"))
    assert not (tmp_path / "agent.zip").exists()


def test_a_graph_is_saved_on_the_way(tmp_path):
    onnx = pytest.importorskip("onnx")
    train(tmp_path / "runs", lambda update: update.save(tmp_path / "agent.ONNX"), rollouts=1)
    onnx.checker.check_model(tmp_path / "agent.ONNX")


def test_an_error_of_a_callback_ends_the_run_with_its_own_traceback(tmp_path):
    def fail(update):
        raise RuntimeError("of the callback")

    with pytest.raises(RuntimeError, match="of the callback") as caught:
        train(tmp_path, fail)
    assert any(entry.name == "fail" for entry in caught.traceback)
    (summary,) = tmp_path.rglob("summary.json")
    assert json.loads(summary.read_text())["status"] == "failed"
    # The files are closed and unlocked: the run can be resumed, without the callback.
    assert recollect.resume(summary.parent, quiet=True).summary["status"] == "finished"


# A loop --------------------------------------------------------------------------------------


def test_a_loop_trains_what_train_trains(tmp_path):
    training = recollect.iterate(small_config(rollouts=6), out=tmp_path / "loop", run_id="run")
    with pytest.raises(UsageError, match="has not ended"):
        _ = training.trained
    assert [update.metrics["iteration"] for update in training] == [1, 2, 3, 4, 5, 6]
    assert_equal(training.trained, train(tmp_path / "train"))
    assert list(training) == [] and training.trained.summary["status"] == "finished"


@pytest.mark.parametrize("way", ["with", "close", "deleted"])
def test_a_loop_that_is_left_can_be_resumed(way, tmp_path):
    training = recollect.iterate(small_config(rollouts=6), out=tmp_path / "loop", run_id="run")
    if way == "with":
        with training:
            update = next(itertools.islice(training, 2, None))
    else:
        update = next(itertools.islice(training, 2, None))
        if way == "close":
            training.close()
        del training
    summary = json.loads((update.folder / "summary.json").read_text())
    assert summary["status"] == "stopped" and summary["iteration"] == 3
    resumed = recollect.resume(update.folder, quiet=True)
    assert_equal(resumed, train(tmp_path / "train"))


def test_a_closed_loop_leaves_the_handlers_of_signals(tmp_path):
    handler = signal.getsignal(signal.SIGINT)
    training = recollect.iterate(small_config(rollouts=6), out=tmp_path, run_id="run")
    next(training)
    training.close()
    assert list(training) == []
    assert signal.getsignal(signal.SIGINT) is handler and Signals.active is None


def test_signals_in_the_body_of_a_loop_are_for_the_loop(tmp_path):
    handler = signal.getsignal(signal.SIGINT)
    loops = [recollect.iterate(small_config(rollouts=3), out=tmp_path, run_id=name) for name in "ab"]
    for _ in zip(*loops, strict=False):
        assert signal.getsignal(signal.SIGINT) is handler and Signals.active is None
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is handler
    for loop in loops:
        assert list(loop) == [] and loop.trained.summary["status"] == "finished"


def test_a_signal_in_an_iteration_ends_a_loop_as_a_run(tmp_path, monkeypatch):
    loop = recollect.iterate(small_config(rollouts=9), out=tmp_path, run_id="run")
    update = next(loop)
    collect = ppo.collect
    monkeypatch.setattr(ppo, "collect", lambda *a: signal.raise_signal(signal.SIGINT) or collect(*a))
    update = next(loop)
    assert Signals.active is None and update.metrics["iteration"] == 2
    assert list(loop) == []
    assert json.loads((update.folder / "summary.json").read_text())["status"] == "SIGINT"


def test_a_loop_stops_where_an_update_says(tmp_path):
    for update in recollect.iterate("CartPole-v1", steps=10**6, options=OPTIONS, out=tmp_path, seed=3):
        if update.metrics["iteration"] == 2:
            update.stop()
    assert json.loads((update.folder / "summary.json").read_text())["status"] == "finished"


def test_the_public_names_are_listed():
    assert dir(recollect) == sorted(recollect.__all__)
    for name in dir(recollect):
        assert getattr(recollect, name) is not None
