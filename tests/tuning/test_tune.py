"""Tuning: trials are judged over several seeds, a stopped study resumes, and every trial is a valid run."""

import json
import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from recollect import cli
from recollect.common.errors import UsageError
from recollect.common.statistics import iqm
from recollect.comparison import study
from recollect.config.assembly import assemble
from recollect.config.command import parse
from recollect.config.data import config_hash
from recollect.config.presets import MODELS
from recollect.run.build import resolved_config
from recollect.tuning import tune, tuning_page
from recollect.tuning.display import TuningDisplay
from recollect.tuning.option_names import (
    changed_options,
    format_value,
    full_names,
    names_first,
    option_values,
    to_flags,
)
from recollect.tuning.optuna_storage import JOURNAL, load_study
from recollect.tuning.proposals import propose
from recollect.tuning.result import TuningResult, importances, trial_results
from recollect.tuning.search_space import Range
from recollect.tuning.space_file import build_space
from recollect.tuning.successive_halving import SuccessiveHalving, return_at

from ..audit import audit
from ..helpers import assert_same_end, run_quietly, sampled, seen_by_a_browser, wait_for

pytest.importorskip("optuna")

STEPS = 900
OPTIONS = ["-e", "CartPole-v1", "-m", "ppo", "--steps", str(STEPS), "--episodes", "3"]


class FakeExecutor:
    """Runs that only write given returns, a ninth of the steps at each poll.

    return_of  (trial, seed) -> the return of a run, or a function from the share of its steps to the return;
               None: not known; "": the run fails
    """

    def __init__(self, return_of, slots=2, successes=None):
        self.return_of, self.slots, self.successes = return_of, slots, successes
        self.running, self.stopping, self.begun, self.most = [], [], {}, 0

    @property
    def free(self):
        return len(self.running) < self.slots

    @property
    def idle(self):
        return not self.running

    def start(self, job, episodes):
        assert job not in self.running, "it is running already"
        trial = config_hash(replace(job.config, seed=1))
        self.begun.setdefault(trial, len(self.begun))
        self.running.append(job)
        self.most = max(self.most, len(self.running))
        job.folder.mkdir(parents=True, exist_ok=True)
        self.write(job, "summary.json", {"status": "running", "logging": {}})

    def stop(self, job=None):
        self.stopping += [one for one in self.running if job is None or one is job]

    def ended(self):
        over = []
        for job in list(self.running):
            trial = self.begun[config_hash(replace(job.config, seed=1))]
            step = (job.metrics.get("step") or 0) + STEPS // 9
            value = self.return_of(trial, job.config.seed)
            value = value(step / STEPS) if callable(value) else value
            line = {"iteration": 1, "step": step, "return": value, "time": 1.0}
            if any(job is one for one in self.stopping) or value == "" or step >= STEPS:
                over.append((job, "no gradient" if value == "" else None))
            if step >= STEPS:
                scores = {"mean": value or 0, "success": None, "episodes": 3, "returns": []}
                if self.successes:
                    reported = self.successes[trial]
                    share = None if None in reported else sum(reported) / len(reported)
                    scores |= {"successes": reported, "success": share}
                self.write(job, "evaluation.json", scores)
            if value != "":
                with (job.folder / "metrics.jsonl").open("a") as file:
                    file.write(json.dumps(line) + "\n")
        self.running = [job for job in self.running if not any(job is one for one, _ in over)]
        self.stopping = [job for job in self.stopping if any(job is one for one in self.running)]
        return over

    @staticmethod
    def write(job, name, data):
        extra = {"config_hash": config_hash(job.config)} if name == "summary.json" else {}
        (job.folder / name).write_text(json.dumps(data | extra))


def tuned(folder, return_of, total, arguments=(), slots=2, polls=1000, successes=None):
    """A study with fake runs after so many polls: its trials, its result and its executor."""
    options = parse(tune.TuneOptions, [*OPTIONS, "--out", str(folder), *arguments], "recollect tune")
    spec = tune.spec_of(options)
    home = tune.study_folder(spec, options)
    home.mkdir(parents=True, exist_ok=True)
    study = load_study(home, spec)
    search = SuccessiveHalving(spec, study, FakeExecutor(return_of, slots, successes), folder, total)
    for _ in range(polls):
        if search.over:
            break
        search.step()
    trials = trial_results(study)
    result = TuningResult(spec, home, options.settings, trials, importances(study))
    return SimpleNamespace(trials=trials, executor=search.executor, result=result)


def steps_of(folder):
    """How far every run came, by its folder."""
    return {path.parent: path.read_text().count("\n") for path in folder.rglob("metrics.jsonl")}


# Judging --------------------------------------------------------------------------------------


def test_trials_are_scored_alike_also_where_episodes_report_no_success(tmp_path):
    """By the success rate, as the first that ended: a mean of 60 is not better than a rate of 1."""
    reported = {0: [1.0, 1.0, 0.0], 1: [1.0, None, 0.0], 2: [1.0, 1.0, 1.0]}
    search = tuned(tmp_path, lambda trial, seed: 60, 3, successes=reported)
    assert [trial.score for trial in search.trials] == pytest.approx([2 / 3, 1 / 3, 1.0])
    assert search.result.best.number == 2


def test_a_trial_in_progress_is_not_said_to_be_worse_than_the_preset(tmp_path):
    result = tuned(tmp_path, lambda trial, seed: 60, 3).result
    preset, *others = result.trials

    def with_states(*states):
        trials = [replace(x, state=state, score=None) for x, state in zip(others, states, strict=True)]
        return replace(result, trials=[preset, *trials])

    assert "No other trial has ended so far" in with_states("begun", "begun").verdict[0]
    assert "None of 2 other trials (1 begun) is better" in with_states("begun", "stopped early").verdict[0]
    shown = tuning_page.colours(with_states("begun", "failed"))
    assert shown["trial 1"] == shown["begun"] and shown["trial 2"] == shown["failed"]


def test_a_trial_is_judged_by_several_seeds_and_not_by_its_luckiest(tmp_path):
    # By the mean of its seeds, 58, the second would go on, and by the best of them twice.
    returns = {0: (50, 50, 50), 1: (95, 40, 40), 2: (52, 51, 55)}
    search = tuned(tmp_path, lambda trial, seed: returns[trial][seed - 1], 3)
    assert [trial.state for trial in search.trials] == ["finished", "stopped early", "finished"]
    assert search.trials[1].rungs == {1: pytest.approx(iqm([95, 40, 40]))} and iqm([95, 40, 40]) < 50
    assert search.trials[2].score == pytest.approx(iqm([52, 51, 55]))
    assert search.trials[2].scores == [52, 51, 55] and set(search.trials[2].rungs) == {1, 3}


def test_a_trial_is_judged_when_all_seeds_are_there_and_little_is_computed_after(tmp_path):
    search = tuned(tmp_path, lambda trial, seed: 50 - trial, 4, slots=2)
    runs = Counter(steps_of(tmp_path).values())
    assert search.executor.most == 2
    # Three seeds of the preset to the end; nine runs of three trials to a ninth, or a few polls more.
    assert runs[9] == 3 and sum(runs.values()) == 12 and max(set(runs) - {9}) <= 4 and min(runs) >= 1


def test_the_preset_is_never_stopped(tmp_path):
    search = tuned(tmp_path, lambda trial, seed: 100 * trial, 4, slots=6)
    assert search.trials[0].state == "finished" and search.trials[0].score == 0


def test_a_trial_with_an_unknown_return_is_not_judged(tmp_path):
    search = tuned(tmp_path, lambda trial, seed: 50 if trial == 0 else (None, 1, 2)[seed - 1], 2)
    assert search.trials[1].rungs == {} and search.trials[1].state == "finished"


def test_returns_are_compared_after_equal_numbers_of_steps(tmp_path):
    late = {0: lambda share: 90 if share > 0.3 else None, 1: 50}
    search = tuned(tmp_path, lambda trial, seed: late[trial], 2)
    assert search.trials[0].rungs == pytest.approx({3: 90})
    assert (
        search.trials[1].rungs == pytest.approx({1: 50, 3: 50}) and search.trials[1].state == "stopped early"
    )


def test_a_line_that_is_being_written_is_read_at_the_next_poll(tmp_path):
    config = resolved_config(assemble(OPTIONS[:-2]))
    job = SimpleNamespace(config=config, folder=tmp_path)
    whole = json.dumps({"iteration": 1, "step": STEPS / 2, "return": 20.0}) + "\n"
    late = json.dumps({"iteration": 2, "step": STEPS, "return": 30.0}) + "\n"
    for text, expected in ((whole + late[:-9], None), (whole + late, 30.0)):
        (tmp_path / "metrics.jsonl").write_text(text)
        assert return_at(job, 0.4) == 20.0 and return_at(job, 1.0) == expected


def test_the_best_third_continue(tmp_path):
    rng = random.Random(3)
    returns = {trial: rng.random() for trial in range(20)}
    search = tuned(tmp_path, lambda trial, seed: returns[trial], 20)
    states = Counter(trial.state for trial in search.trials)
    assert states["finished"] <= 8 and states["stopped early"] >= 12
    assert search.result.best.score == pytest.approx(max(returns.values()))
    assert sum(search.result.importance.values()) == pytest.approx(1)


def test_an_option_that_only_the_preset_lacks_has_an_importance(tmp_path):
    (tmp_path / "space.yaml").write_text("ppo.critic_learning_rate: {low: 1.0e-4, high: 1.0e-2, log: true}")
    search = tuned(tmp_path, lambda trial, seed: trial, 12, ["--space", str(tmp_path / "space.yaml")])
    assert "ppo.critic_learning_rate" in search.result.importance


def test_a_failed_run_ends_its_trial_and_one_of_the_preset_the_study(tmp_path):
    search = tuned(tmp_path / "a", lambda trial, seed: "" if (trial, seed) == (1, 2) else 5, 3)
    assert [(t.state, t.error) for t in search.trials][:2] == [("finished", ""), ("failed", "no gradient")]
    assert search.trials[2].state == "finished"
    with pytest.raises(UsageError, match=r"the preset failed, so trials .*: no gradient"):
        tuned(tmp_path / "b", lambda trial, seed: "", 3)
    assert tuned(tmp_path / "b", lambda trial, seed: 5, 1).trials[0].state == "finished"


# Resuming -------------------------------------------------------------------------------------


@pytest.mark.parametrize("polls", [1, 9, 14])
def test_started_trials_are_resumed_and_no_step_is_repeated(polls, tmp_path):
    def return_of(trial, seed):
        return 50 + trial

    before = tuned(tmp_path, return_of, 6, polls=polls)
    journal = before.result.folder / JOURNAL
    journal.write_bytes(journal.read_bytes() + b'{"op_code": 5, "work')  # as a full disk leaves it
    after = tuned(tmp_path, return_of, 6)
    assert [trial.number for trial in after.trials] == list(range(6))
    assert all(trial.state in ("finished", "stopped early") for trial in after.trials)
    for one, other in zip(before.trials, after.trials, strict=False):
        assert one.params == {name: other.params[name] for name in one.params}
        assert one.score in (None, other.score)
    assert max(steps_of(tmp_path).values()) <= 9, "a step was repeated"
    assert tuned(tmp_path, return_of, 6).executor.begun == {}


def test_more_trials_have_other_settings(tmp_path):
    tuned(tmp_path, lambda trial, seed: 5, 4)
    trials = tuned(tmp_path, lambda trial, seed: 5, 8).trials
    rates = [trial.params["ppo.learning_rate"] for trial in trials]
    assert len(trials) == len(set(rates)) == 8 and trials[0].settings == {}


def test_trials_with_equal_settings_share_their_runs(tmp_path):
    narrow, spec = tmp_path / "space.yaml", tune.spec_of(parse(tune.TuneOptions, OPTIONS, ""))
    preset = option_values(spec.preset)
    single = {name: [format_value(preset[full_names(name, preset)[0]])] for name in spec.space}
    narrow.write_text(yaml.safe_dump(single))
    search = tuned(tmp_path, lambda trial, seed: 5, 3, ["--space", str(narrow)], slots=9)
    assert [trial.state for trial in search.trials] == ["finished"] * 3
    assert len(steps_of(tmp_path)) == 3 and search.result.best.number == 0


def test_a_study_with_other_settings_is_refused(tmp_path):
    tuned(tmp_path, lambda trial, seed: 5, 1)
    for flags, message in (
        (["--steps", "1800"], r"holds a study with other settings \(steps 900, now 1800\): use the same set"),
        (["--seeds", "4"], r"seeds 1 2 3, now 1 2 3 4"),
        (["--ppo.gamma", "0.5"], r"ppo.gamma 0.99, now 0.5; space of ppo.gamma 0.95, 0.98, .*, now None"),
    ):
        with pytest.raises(UsageError, match=message):
            tuned(tmp_path, lambda trial, seed: 5, 1, flags)


# The space ------------------------------------------------------------------------------------

TASKS = ("CartPole-v1", "LunarLander-v3", "minigrid:MiniGrid-MemoryS9-v0", "popgym:RepeatPreviousEasy")


def config_builder(model, env):
    return cache(lambda words: assemble(["--env.id", env, "--model", model, *words]))


def random_choice(seed):
    rng = random.Random(seed)
    return lambda name, dimension: rng.choice(dimension.ends)


def check_config(config):
    """Sizes fit together, and memories can be built."""
    recurrent = {config.actor.memory.name, config.critic.memory.name} != {"mlp"}
    config.ppo.chunks_per_minibatch(config.env.num_envs, config.ppo.chunk_length(recurrent))
    for branch in (config.actor, config.critic):
        branch.memory.build(8, 2)


def test_options_that_change_nothing_are_not_tuned():
    """No hidden layers cannot be halved, and in trials the previous action is always an input."""
    assert "hidden" not in build_space(config_builder("ppo", "FrozenLake-v1"), None, [])
    assert "hidden" in build_space(config_builder("ppo", "CartPole-v1"), None, [])
    assert "prev_action" in build_space(config_builder("ppo_gru", "meta:Bandit"), None, ["env.trial"])
    in_trials = cache(
        lambda words: assemble(["-e", "meta:Bandit", "-m", "ppo_gru", "--env.trial", "3", *words])
    )
    assert "prev_action" not in build_space(in_trials, None, ["env.trial"])


@pytest.mark.parametrize("model", sampled(MODELS, *list(MODELS)[::4]))
def test_every_proposal_is_a_valid_run_and_its_changed_options_define_it(model):
    for seed, env in enumerate(TASKS[: 2 if model == "trpo" else 4]):  # no trpo for minigrid
        build_config = config_builder(model, env)
        space = build_space(build_config, None, [])
        for i in range(4):
            config = build_config(to_flags(propose(random_choice(100 * seed + i), space, build_config)))
            check_config(config)
            assert build_config(to_flags(changed_options(config, build_config(())))) == config


@pytest.mark.parametrize("model", ["ppo", "ppo_gru", "ppo_gpt_shared", "ppo_trxl"])
def test_memories_of_every_kind_are_tuned_where_the_file_names_them(model, tmp_path):
    file = tmp_path / "space.yaml"
    file.write_text(
        "memory.name: [gru, gpt2, stack, mlp, gtrxl]\nmemory.width: [24, 40, 64]\ncritic.frames: [3]"
    )
    for env in TASKS[1:2]:
        build_config = config_builder(model, env)
        space = build_space(build_config, file, [])
        assert space["memory.name"].values == ("gru", "gpt2", "stack", "mlp", "gtrxl")
        kinds = set()
        for i in range(6):
            config = build_config(to_flags(propose(random_choice(i), space, build_config)))
            check_config(config)
            kinds.add(config.actor.memory.name)
            assert build_config(to_flags(changed_options(config, build_config(())))) == config
        assert len(kinds) > 2


@pytest.mark.parametrize("model", ["ppo", "ppo_gru", "ppo_gpt_shared"])
def test_encoders_of_every_kind_are_tuned_with_the_options_that_each_has(model, tmp_path):
    file = tmp_path / "space.yaml"
    file.write_text(
        "actor.encoder.width: [8, 24]\nactor.encoder.features: [16, 48]\n"
        "actor.encoder.name: [mixed, mlp, residual]\n"
    )
    build_config = config_builder(model, TASKS[1])
    space = build_space(build_config, file, [])
    kinds = set()
    for i in range(12):
        config = build_config(to_flags(propose(random_choice(i), space, build_config)))
        check_config(config)
        encoder = config.actor.encoder
        assert getattr(encoder, "width", 8) in (8, 24) and getattr(encoder, "features", 16) in (16, 48)
        assert build_config(to_flags(changed_options(config, build_config(())))) == config
        kinds.add(encoder.name)
    assert kinds == {"mixed", "mlp", "residual"}


def test_options_of_flags_are_not_tuned_and_a_file_overrides_the_default(tmp_path):
    file = tmp_path / "space.yaml"
    file.write_text(
        "ppo.ent-coef: {low: 0, high: 1}\nppo.learning-rate: {low: 1e-4, high: 1e-2, log: true}\n"
    )
    space = build_space(config_builder("ppo_gru", "CartPole-v1"), file, ["ppo.gamma", "actor.width"])
    assert "ppo.gamma" not in space and "memory.width" not in space and "memory.layers" in space
    assert str(space["ppo.learning_rate"]) == "1.0e-04 to 0.01 on a log scale"
    assert not space["ppo.ent_coef"].is_integer and space["ppo.ent_coef"].holds(0.2)


def test_a_range_of_an_option_that_is_a_float_or_none_holds_floats(tmp_path):
    file = tmp_path / "space.yaml"
    file.write_text("ppo.target_lambda: {low: 0, high: 1}\nppo.update_epochs: {low: 1, high: 4}\n")
    space = build_space(config_builder("ppo_gru", "CartPole-v1"), file, [])
    assert not space["ppo.target_lambda"].is_integer and space["ppo.target_lambda"].holds(0.2)
    assert space["ppo.update_epochs"].is_integer


@pytest.mark.parametrize("option", ["desired_kl", "target_entropy"])
def test_an_adapted_coefficient_is_proposed_within_its_range(option):
    """Outside of it the config would be refused, and the trial lost."""
    given = {"ppo.learning_rate": 0.004, "ppo.ent_coef": 0.01, "ppo.lr_decay.final": None}
    flags = to_flags({**given, "ppo.ent_decay.final": None, f"ppo.{option}": 0.01})
    build = config_builder("ppo_gru", "CartPole-v1")

    def build_config(chosen):
        return build((*flags, *chosen))

    space = build_space(build_config, None, [])
    for i in range(20):
        check_config(build_config(to_flags(propose(random_choice(i), space, build_config))))


@pytest.mark.parametrize("given", [[], ["ppo.batch_size"]])
def test_the_minibatch_size_is_tuned_in_one_unit(given, tmp_path):
    file = tmp_path / "space.yaml"
    file.write_text("ppo.gamma: [0.9]" if given else "ppo.batch_size: [256, 512]")
    build_config = config_builder("ppo_gru", "CartPole-v1")
    space = build_space(build_config, file, given)
    assert "ppo.num_minibatches" not in space
    chosen = propose(lambda _, dimension: dimension.ends[-1], space, build_config)
    assert build_config(to_flags(chosen)).ppo.batch_size == (None if given else 512)


BAD_SPACES = {
    "ppo.gama: [0.9]": "unknown option 'ppo.gama'; did you mean ppo.gamma",
    "memory.context: [8]": "unknown option 'memory.context'",
    "memory.name: [gruu]": "memory 'gruu' is unknown; did you mean gru",
    "ppo.gamma: 0.9": "0.9 is neither a list of choices nor {low, high, log, step}",
    "ppo.gamma: []": "[] is neither a list of choices nor {low, high, log, step}",
    "ppo.gamma: [0.9, 1.5]": "ppo.gamma is 1.5, it must lie in [0, 1]",
    "ppo.gamma: {low: 0.9, hihg: 1}": "unknown 'hihg'; did you mean high",
    "ppo.gamma: {low: 0.9}": "low must be below high, they are 0.9 and None",
    "ppo.gamma: {low: 1, high: 0.9}": "low must be below high, they are 1 and 0.9",
    "ppo.gamma: {low: a, high: 0.9}": "low is 'a', not a number",
    "ppo.learning_rate: {low: 1.0e-4, high: .inf}": "high is inf, not a number",
    "ppo.num_steps: {low: 0, high: 64}": "ppo.num_steps 0: ppo.num_steps is 0, at least 2 is needed",
    f"ppo.gamma: {{low: 0.9, high: 1{400 * '0'}}}": "not a number",
    "ppo.num_steps: [null]": "ppo.num_steps None: --ppo.num_steps takes a whole number, not 'None'",
    "ppo.num_steps: [a]": "ppo.num_steps a:",
    "ppo.bptt: [-3]": "ppo.bptt -3:",
    "memory.width: [8]\nactor.memory.width: [16]": "memory.width and actor.memory.width both set actor.",
    "ppo.clip: {low: 0, high: 1, log: true}": "log needs a low above 0 and no step",
    "ppo.clip: {low: 0.1, high: 1, log: 3}": "ppo.clip: log takes true or false, not 3",
    "ppo.clip: {low: 0, high: 1, step: 2}": "step is 2, it must be above 0 and at most high - low",
    "ppo.num_steps: {low: 8.5, high: 64.5}": "ppo.num_steps 8.5:",
    "steps: [100, 200]": "steps must be the same for all trials",
    "ppo.lam: [1]\nenv.id: [poc]": "unknown option 'ppo.lam'",
    "ppo.batch_size: [256]\nppo.num_minibatches: [2]": "set the same quantity: remove one of them",
    "ppo.ent_coef: [0]": "ppo.ent_coef is set on the command line as well: remove one of them",
    "ppo.gamma: [0.9, 0.99, 0.9]": "ppo.gamma: 0.9 is listed twice",
    "memory.name: [gru, gru]": "memory.name: gru is listed twice",
    "{}": "space space.yaml holds no options",
    "a: [": "config file",
}


@pytest.mark.parametrize("text", BAD_SPACES)
def test_a_bad_space_is_one_line(text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("space.yaml").write_text(text)
    assert cli.main(["tune", *OPTIONS, "-m", "ppo_gru", "--ppo.ent-coef", "0", "--space", "space.yaml"]) == 2
    error = capsys.readouterr().err
    assert BAD_SPACES[text] in error and error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["space.yaml"]


BAD = {
    "no environment": (["-m", "ppo"], "tune needs --env, the environment"),
    "two models": (["-e", "poc", "-m", "ppo", "ppo_gru"], "unexpected argument 'ppo_gru'"),
    "model": (["-e", "poc", "-m", "ppp"], "model 'ppp' is unknown"),
    "environment": (["-e", "Nowhere-v1", "-m", "ppo"], "Nowhere"),
    "trials": ([*OPTIONS, "--trials", "0"], "--trials is 0, at least 1 is needed"),
    "option": ([*OPTIONS, "--ppo.gama", "1"], "unknown option --ppo.gama"),
    "option of tune": ([*OPTIONS, "--trails", "3"], "unknown option --trails; did you mean --trials"),
    "seed": (
        [*OPTIONS, "--seed", "3"],
        "several seeds: --seeds N or --seeds A B, not --seed",
    ),
    "rollouts": (
        [*OPTIONS, "--rollouts", "3"],
        "are compared by steps: use --steps N",
    ),
    "no file": ([*OPTIONS, "--space", "nowhere.yaml"], "config file nowhere.yaml"),
    "no place": ([*OPTIONS, "--out", "taken"], "--out taken: "),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_one_line(case, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("taken").touch()
    arguments, message = BAD[case]
    assert cli.main(["tune", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_without_optuna_the_error_names_the_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert cli.main(["tune", *OPTIONS]) == 2
    assert "recollect tune needs Optuna: pip install 'recollect-rl[tune]'" in capsys.readouterr().err
    assert cli.main(["tune", "--help"]) == 0 and "--trials N" in capsys.readouterr().out


# The result -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    """The result of a study of twelve trials, with its files."""
    returns = dict(enumerate((50, 20, 60, 70, 10, 30, 40, 90, 20, 10, 80, 5)))
    search = tuned(tmp_path_factory.mktemp("tuned"), lambda trial, seed: returns[trial] + seed, 12)
    tune.write_results(search.result, ["recollect", "tune", *OPTIONS])
    return search.result


def test_the_best_trial_is_compared_with_the_preset_and_luck_is_named(result):
    assert result.best.number == 7 and result.best.score == pytest.approx(92)
    assert "trial 7: 92 (91 92 93), the preset 52 (51 52 53), over seeds 1 2 3" in result.verdict[0]
    assert "part of its lead is luck" in result.verdict[1]
    assert list(result.commands) == ["compare both over fresh seeds", "train it"]


def test_its_commands_allow_what_its_files_import(result):
    config = result.spec.build_config(())
    foreign = replace(config, env=replace(config.env, id="third:Hard-v0"))
    commands = replace(result, spec=replace(result.spec, build_config=lambda *_: foreign)).commands.values()
    assert len(commands) == 2 and all(command.endswith(" -e third:Hard-v0") for command in commands)


def test_its_files_make_the_same_runs(result):
    best = assemble(["--config", str(result.folder / "best.yaml")])
    spec = result.spec
    assert best == spec.build_config(to_flags(result.best.settings)) and best != spec.preset
    fresh = study.read_study(result.folder / "fresh.yaml")
    assert fresh.seeds == (4, 5, 6, 7, 8)
    assert [replace(config, seed=1) for config in fresh.configs()[:2]] == [spec.preset, best]
    data = json.loads((result.folder / "tune.json").read_text())
    assert list(data) == ["question", "trials", "best", "importance", "verdict", "commands"]
    assert data["best"] == 7 and len(data["trials"]) == 12 and data["question"]["steps"] == STEPS
    fields = ["number", "state", "score", "scores", "rungs", "settings", "params", "error"]
    assert list(data["trials"][0]) == fields


def test_where_the_preset_is_best_there_is_no_fresh_study(tmp_path):
    result = tuned(tmp_path, lambda trial, seed: 50 - trial, 2).result
    (result.folder / "fresh.yaml").write_text("of an earlier call")
    result.write()
    assert result.best is result.preset
    assert (result.folder / "best.yaml").exists() and not (result.folder / "fresh.yaml").exists()


def test_a_study_file_with_another_memory_makes_the_run_of_the_trial(tmp_path):
    chosen = {"critic.shared": True, "actor.memory.name": "gtrxl", "critic.memory.name": "gtrxl"}
    model = {"model": "ppo_trxl", **names_first(chosen)}
    (tmp_path / "fresh.yaml").write_text(
        yaml.safe_dump({"environments": ["poc"], "models": [model]}, sort_keys=False)
    )
    (fresh, *_) = study.read_study(tmp_path / "fresh.yaml").configs()
    trial = assemble(["--env.id", "poc", "--model", "ppo_trxl", "--seed", "1", *to_flags(chosen)])
    assert fresh.critic == trial.critic and fresh.actor == trial.actor and fresh.critic.shared


VISIT = """
const page = document.querySelector("iframe").contentWindow;
const all = (selector) => [...page.document.querySelectorAll(selector)];
const errors = [];
function visit() {
  const seen = { errors, wide: page.document.documentElement.scrollWidth };
  seen.lines = all("path.parallel").length;
  seen.scrolls = all("figure[data-kind=parallel] .plot.wide").length;
  const trials = all("[aria-label='All trials, the best first'] tbody tr");
  seen.state = Math.max(...trials.map((row) => row.children[1].clientWidth));
  seen.settings = Math.min(...trials.map((row) => row.lastChild.clientWidth));
  seen.figures = all("figure").map((figure) => figure.dataset.chart);
  const svg = all("figure[data-kind=parallel] svg[role=img]")[0];
  const key = (name) => svg.dispatchEvent(new page.KeyboardEvent("keydown", { key: name, bubbles: true }));
  key("End");
  seen.tip = all("figure[data-kind=parallel] .tip")[0].innerText;
  key("ArrowLeft");
  seen.here = all("path.here").length;
  key("Escape");
  seen.gone = all("figure[data-kind=parallel] .tip")[0].hidden;
  all("figure[data-kind=parallel] .legend button")[0].click();
  seen.fewer = all("path.parallel").length;
  document.querySelector("pre").textContent = JSON.stringify(seen);
}
document.querySelector("iframe").addEventListener("load", () => {
  page.addEventListener("error", (event) => errors.push(event.message));
  setTimeout(visit, 100);
});
"""


def test_the_page_shows_every_trial_on_a_small_phone(result, tmp_path):
    page = (result.folder / "tune.html").read_text()
    assert not re.search(r"(src|href)=\"(?!#|data:)", page), "it fetches something"
    seen = seen_by_a_browser(result.folder / "tune.html", VISIT, tmp_path)
    assert seen["errors"] == [] and seen["wide"] <= 360 and seen["lines"] == 12
    assert seen["scrolls"] == 1 and seen["state"] < 120 and seen["settings"] > 300
    assert seen["figures"] == ["scores", "history", "early", "importance", "trials"]
    assert seen["tip"].startswith("trial 7") and "score 92" in seen["tip"]
    assert seen["here"] == 1 and seen["gone"] and seen["fewer"] < 12


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1400])
def test_the_page_can_be_read_by_everyone(width, dark, result, tmp_path):
    assert audit(result.folder / "tune.html", tmp_path, width, dark=dark) == []


# Real runs ------------------------------------------------------------------------------------

REAL = [
    *("-e", "CartPole-v1", "-m", "ppo_stack", "--env.num-envs", "4", "--ppo.num-steps", "16"),
    *("--save-interval", "1", "--steps", "2560", "--episodes", "3", "--seeds", "2", "--trials", "2"),
]


def recollect(folder, *arguments):
    command = [sys.executable, "-m", "recollect", "tune", *REAL, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, cwd=folder, text=True, start_new_session=True, **pipes)


def lines(folder):
    return sum(steps_of(folder).values())


@pytest.mark.faults
def test_a_study_that_was_stopped_and_killed_resumes_to_the_same_end(tmp_path, monkeypatch, capsys):
    process = recollect(tmp_path)
    wait_for(lambda: lines(tmp_path) > 10)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 130 and "repeat the command to resume them" in out, out
    begun = lines(tmp_path)
    process = recollect(tmp_path)
    wait_for(lambda: lines(tmp_path) > begun + 20)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    monkeypatch.chdir(tmp_path)
    assert cli.main(["tune", *REAL]) == 0
    out = capsys.readouterr().out
    home = tmp_path / "tune" / "ppo_stack" / "CartPole-v1"
    data = json.loads((home / "tune.json").read_text())
    assert [trial["number"] for trial in data["trials"]] == [0, 1]
    assert {trial["state"] for trial in data["trials"]} <= {"finished", "stopped early"}
    assert data["trials"][0]["state"] == "finished" and "recollect train --config" in out
    config = resolved_config(assemble(["--config", str(home / "best.yaml")]))
    config = replace(config, seed=2) if data["best"] == 0 else config
    straight = run_quietly(config, tmp_path / "straight").folder
    assert_same_end(straight, home / f"s{config.seed}-{config_hash(config)[:8]}")


@pytest.mark.parametrize(
    ("low", "high"), [(0.999, 0.9999), (0.99, 0.999), (0.5, 1.0), (1e-5, 1e-3), (-2.0, 2.0)]
)
def test_rounding_leaves_a_hundred_values_of_a_range(low, high):
    drawn = [low + (high - low) * i / 1000 for i in range(1001)]
    values = {
        Range(low, high).suggest(SimpleNamespace(suggest_float=lambda *_, x=x, **__: x), "x") for x in drawn
    }
    assert len(values) > 90 and min(values) == low and max(values) == high


def test_ranges_that_differ_have_different_texts():
    """A journal tells another search by them. Those that were exact have the text of earlier versions."""
    assert str(Range(0.99901, 0.9999)) != str(Range(0.99904, 0.9999))
    assert str(Range(0.0001, 0.5)) == "1.0e-04 to 0.5"


def test_a_study_that_was_stopped_at_once_has_no_best_trial(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tune, "run_trials", lambda *_: None)
    cli.main(["tune", *OPTIONS, "-m", "ppo", "--out", "my searches"])
    out = capsys.readouterr().out
    assert "tune.html and tune.json are written" in out
    assert "optuna-dashboard 'my searches/ppo/CartPole-v1/journal.log'" in out  # as a shell reads it
    assert not list(tmp_path.rglob("best.yaml"))


def test_a_dry_run_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["tune", *REAL, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    assert "2 trials, 0 of them ended" in out and "ppo.learning_rate" in out and "about" in out


def test_a_dry_run_from_python_has_no_result(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(TuningDisplay, "plan", lambda *_: None)
    assert tune.tune("CartPole-v1", "ppo", trials=2, dry_run=True) == {}
    assert list(tmp_path.iterdir()) == []
    folder = tmp_path / "tune" / "ppo" / "CartPole-v1"
    folder.mkdir(parents=True)
    (folder / "tune.json").write_text('{"of": "an earlier search"}')
    assert tune.tune("CartPole-v1", "ppo", trials=2, dry_run=True) == {}
