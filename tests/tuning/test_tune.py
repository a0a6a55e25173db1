"""Tuning: judged over several seeds, stopped and gone on with at will, and no trial that is no run."""

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
from recollect.config.config import config_hash
from recollect.config.presets import MODELS, assemble
from recollect.run.build import resolved_config
from recollect.tuning import result as outcome
from recollect.tuning import trials, tune
from recollect.tuning.search_space import differing, flags, meant, named_first, propose, settings, spelled
from recollect.tuning.space_file import space

from ..helpers import assert_same_end, run_quietly, seen_by_a_browser, wait_for

pytest.importorskip("optuna")

STEPS = 900
ASKED = ["-e", "CartPole-v1", "-m", "ppo", "--steps", str(STEPS), "--episodes", "3"]


class Puppets:
    """Machines whose runs only write down what they are told to: a ninth of the steps a look.

    says  (trial, seed) -> the return that a run has all the time, or a function that says it for so much of
          the steps; None: not known; "": it fails
    """

    def __init__(self, says, slots=2, patience=10**6):
        self.says, self.slots, self.patience = says, slots, patience
        self.running, self.asked, self.begun, self.most = [], [], {}, 0

    @property
    def free(self):
        return len(self.running) < self.slots

    @property
    def idle(self):
        return not self.running

    def start(self, job, episodes):
        assert job not in self.running, "it runs already"
        trial = config_hash(replace(job.config, seed=1))
        self.begun.setdefault(trial, len(self.begun))
        self.running.append(job)
        self.most = max(self.most, len(self.running))
        job.folder.mkdir(parents=True, exist_ok=True)
        self.write(job, "summary.json", {"status": "running", "logging": {}})

    def stop(self, job=None):
        self.asked += [one for one in self.running if job is None or one is job]

    def ended(self):
        over = []
        for job in list(self.running):
            trial = self.begun[config_hash(replace(job.config, seed=1))]
            told = self.says(trial, job.config.seed)
            at = (job.metrics.get("step") or 0) + STEPS // 9
            told = told(at / STEPS) if callable(told) else told
            line = {"iteration": 1, "step": at, "return": told, "time": 1.0}
            if any(job is one for one in self.asked) or told == "" or at >= STEPS:
                over.append((job, "no gradient" if told == "" else None))
            if at >= STEPS:
                self.write(
                    job, "evaluation.json", {"mean": told or 0, "success": None, "episodes": 3, "returns": []}
                )
            if told != "":
                with (job.folder / "metrics.jsonl").open("a") as file:
                    file.write(json.dumps(line) + "\n")
        self.running = [job for job in self.running if not any(job is one for one, _ in over)]
        self.asked = [job for job in self.asked if any(job is one for one in self.running)]
        return over

    @staticmethod
    def write(job, name, data):
        about = {"config_hash": config_hash(job.config)} if name == "summary.json" else {}
        (job.folder / name).write_text(json.dumps(data | about))


def tuned(folder, says, total, arguments=(), slots=2, looks=1000):
    """So many looks at a study whose runs are puppets: what the journal says, and the puppets."""
    options = tune.parse([*ASKED, "--out", str(folder), *arguments])
    options.folder.mkdir(parents=True, exist_ok=True)
    found = trials.load(options.folder, options.question)
    tuning = trials.Tuning(options.question, found, Puppets(says, slots), folder, total)
    for _ in range(looks):
        if tuning.over:
            break
        tuning.step()
    told = outcome.tried(found)
    kept = outcome.Outcome(options.question, options.folder, options.flags, told, outcome.importances(found))
    return SimpleNamespace(trials=told, machines=tuning.executor, outcome=kept, tuning=tuning)


def steps_of(folder):
    """How far every run came, by its folder."""
    return {path.parent: path.read_text().count("\n") for path in folder.rglob("metrics.jsonl")}


# Judging --------------------------------------------------------------------------------------


def test_a_trial_is_judged_by_several_seeds_and_not_by_its_luckiest(tmp_path):
    # By the mean of its seeds, 58, the second would go on, and by the best of them twice.
    returns = {0: (50, 50, 50), 1: (95, 40, 40), 2: (52, 51, 55)}
    found = tuned(tmp_path, lambda trial, seed: returns[trial][seed - 1], 3)
    assert [trial.state for trial in found.trials] == ["finished", "stopped early", "finished"]
    assert found.trials[1].rungs == {1: pytest.approx(iqm([95, 40, 40]))} and iqm([95, 40, 40]) < 50
    assert found.trials[2].score == pytest.approx(iqm([52, 51, 55]))
    assert found.trials[2].scores == [52, 51, 55] and set(found.trials[2].rungs) == {1, 3}


def test_nothing_is_judged_before_all_seeds_are_there_and_little_is_run_after(tmp_path):
    found = tuned(tmp_path, lambda trial, seed: 50 - trial, 4, slots=2)
    runs = Counter(steps_of(tmp_path).values())
    assert found.machines.most == 2
    # Three seeds of the preset to the end; nine runs of three trials to a ninth, and what a look is late.
    assert runs[9] == 3 and sum(runs.values()) == 12 and max(set(runs) - {9}) <= 4 and min(runs) >= 1


def test_the_preset_is_never_stopped(tmp_path):
    found = tuned(tmp_path, lambda trial, seed: 100 * trial, 4, slots=6)
    assert found.trials[0].state == "finished" and found.trials[0].score == 0


def test_what_is_not_known_is_not_judged(tmp_path):
    found = tuned(tmp_path, lambda trial, seed: 50 if trial == 0 else (None, 1, 2)[seed - 1], 2)
    assert found.trials[1].rungs == {} and found.trials[1].state == "finished"


def test_returns_are_compared_with_those_of_other_trials_after_as_many_steps(tmp_path):
    late = {0: lambda share: 90 if share > 0.3 else None, 1: 50}
    found = tuned(tmp_path, lambda trial, seed: late[trial], 2)
    assert found.trials[0].rungs == pytest.approx({3: 90})
    assert found.trials[1].rungs == pytest.approx({1: 50, 3: 50}) and found.trials[1].state == "stopped early"


def test_the_best_third_go_on(tmp_path):
    rng = random.Random(3)
    returns = {trial: rng.random() for trial in range(20)}
    found = tuned(tmp_path, lambda trial, seed: returns[trial], 20)
    states = Counter(trial.state for trial in found.trials)
    assert states["finished"] <= 8 and states["stopped early"] >= 12
    assert found.outcome.best.score == pytest.approx(max(returns.values()))
    assert sum(found.outcome.importance.values()) == pytest.approx(1)


def test_what_only_the_preset_lacks_matters_as_much_as_it_does(tmp_path):
    (tmp_path / "space.yaml").write_text("ppo.critic_learning_rate: {low: 1.0e-4, high: 1.0e-2, log: true}")
    asked = ["--space", str(tmp_path / "space.yaml")]
    found = tuned(tmp_path, lambda trial, seed: trial, 12, asked)
    assert "ppo.critic_learning_rate" in found.outcome.importance


def test_a_run_that_fails_ends_its_trial_and_that_of_the_preset_all(tmp_path):
    found = tuned(tmp_path / "a", lambda trial, seed: "" if (trial, seed) == (1, 2) else 5, 3)
    assert [(t.state, t.error) for t in found.trials][:2] == [("finished", ""), ("failed", "no gradient")]
    assert found.trials[2].state == "finished"
    with pytest.raises(UsageError, match="the preset fails, and all is measured against it: no gradient"):
        tuned(tmp_path / "b", lambda trial, seed: "", 3)
    assert tuned(tmp_path / "b", lambda trial, seed: 5, 1).trials[0].state == "finished"


# Going on -------------------------------------------------------------------------------------


@pytest.mark.parametrize("looks", [1, 9, 14])
def test_what_was_begun_is_finished_and_nothing_twice(looks, tmp_path):
    def says(trial, seed):
        return 50 + trial

    before = tuned(tmp_path, says, 6, looks=looks)
    journal = before.outcome.folder / trials.JOURNAL
    journal.write_bytes(journal.read_bytes() + b'{"op_code": 5, "work')  # what a full disk leaves
    after = tuned(tmp_path, says, 6)
    assert [trial.number for trial in after.trials] == list(range(6))
    assert all(trial.state in ("finished", "stopped early") for trial in after.trials)
    for one, other in zip(before.trials, after.trials, strict=False):
        assert one.params == {name: other.params[name] for name in one.params}
        assert one.score in (None, other.score)
    assert max(steps_of(tmp_path).values()) <= 9, "a step was done twice"
    assert tuned(tmp_path, says, 6).machines.begun == {}


def test_more_trials_are_other_trials(tmp_path):
    tuned(tmp_path, lambda trial, seed: 5, 4)
    found = tuned(tmp_path, lambda trial, seed: 5, 8).trials
    rates = [trial.params["ppo.learning_rate"] for trial in found]
    assert len(found) == len(set(rates)) == 8 and found[0].settings == {}


def test_trials_that_are_alike_share_their_runs(tmp_path):
    narrow, preset = tmp_path / "space.yaml", tune.parse(ASKED).question
    now = settings(preset.preset)
    only = {name: [spelled(now[meant(name, now)[0]])] for name in preset.space}
    narrow.write_text(yaml.safe_dump(only))
    found = tuned(tmp_path, lambda trial, seed: 5, 3, ["--space", str(narrow)], slots=9)
    assert [trial.state for trial in found.trials] == ["finished"] * 3
    assert len(steps_of(tmp_path)) == 3 and found.outcome.best.number == 0


def test_another_question_is_refused(tmp_path):
    tuned(tmp_path, lambda trial, seed: 5, 1)
    for flags_, said in (
        (["--steps", "1800"], r"holds another study \(steps 900, now 1800\): ask the same, or give another"),
        (["--seeds", "4"], r"seeds 1 2 3, now 1 2 3 4"),
        (["--ppo.gamma", "0.5"], r"ppo.gamma 0.99, now 0.5; space of ppo.gamma 0.95, 0.98, .*, now None"),
    ):
        with pytest.raises(UsageError, match=said):
            tuned(tmp_path, lambda trial, seed: 5, 1, flags_)


# The space ------------------------------------------------------------------------------------

TASKS = ("CartPole-v1", "LunarLander-v3", "minigrid:MiniGrid-MemoryS9-v0", "popgym:RepeatPreviousEasy")


def base_of(model, env):
    return cache(lambda words: assemble(["--env.id", env, "--model", model, *words], "", ""))


def drawn(seed):
    rng = random.Random(seed)
    return lambda name, of: rng.choice(of.ends)


def whole(config):
    """Sizes that go together, and memories that can be built."""
    remembers = {config.actor.memory.name, config.critic.memory.name} != {"mlp"}
    config.ppo.chunks_per_minibatch(config.env.num_envs, config.ppo.chunk_length(remembers))
    for branch in (config.actor, config.critic):
        branch.memory.build(8, 2)


@pytest.mark.parametrize("model", MODELS)
def test_every_choice_is_a_whole_run_and_what_differs_says_all_of_it(model):
    for seed, env in enumerate(TASKS[: 2 if model == "trpo" else 4]):  # no trpo for minigrid
        base = base_of(model, env)
        usual = space(base, None, [])
        for i in range(4):
            config = base(flags(propose(drawn(100 * seed + i), usual, base)))
            whole(config)
            assert base(flags(differing(config, base(())))) == config


@pytest.mark.parametrize("model", ["ppo", "ppo_gru", "ppo_gpt_shared", "ppo_trxl"])
def test_memories_of_every_kind_are_tried_where_they_are_asked_for(model, tmp_path):
    file = tmp_path / "space.yaml"
    file.write_text(
        "memory.name: [gru, gpt2, stack, mlp, gtrxl]\nmemory.width: [24, 40, 64]\ncritic.frames: [3]"
    )
    for env in TASKS[1:2]:
        base = base_of(model, env)
        asked = space(base, file, [])
        assert asked["memory.name"].values == ("gru", "gpt2", "stack", "mlp", "gtrxl")
        kinds = set()
        for i in range(6):
            config = base(flags(propose(drawn(i), asked, base)))
            whole(config)
            kinds.add(config.actor.memory.name)
            assert base(flags(differing(config, base(())))) == config
        assert len(kinds) > 2


def test_what_a_flag_sets_is_not_tuned_and_a_file_goes_over_the_default(tmp_path):
    file = tmp_path / "space.yaml"
    file.write_text(
        "ppo.ent-coef: {low: 0, high: 1}\nppo.learning-rate: {low: 1e-4, high: 1e-2, log: true}\n"
    )
    asked = space(base_of("ppo_gru", "CartPole-v1"), file, ["ppo.gamma", "actor.width"])
    assert "ppo.gamma" not in asked and "memory.width" not in asked and "memory.layers" in asked
    assert str(asked["ppo.learning_rate"]) == "1.0e-04 to 0.01 on a log scale"
    assert not asked["ppo.ent_coef"].whole and asked["ppo.ent_coef"].holds(0.2)


@pytest.mark.parametrize("given", [[], ["ppo.batch_size"]])
def test_what_a_minibatch_holds_is_tuned_in_one_unit(given, tmp_path):
    file = tmp_path / "space.yaml"
    file.write_text("ppo.gamma: [0.9]" if given else "ppo.batch_size: [256, 512]")
    base = base_of("ppo_gru", "CartPole-v1")
    asked = space(base, file, given)
    assert "ppo.num_minibatches" not in asked
    chosen = propose(lambda _, dimension: dimension.ends[-1], asked, base)
    assert base(flags(chosen)).ppo.batch_size == (None if given else 512)


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
    "ppo.num_steps: {low: 0, high: 64}": "ppo.num_steps 0: ppo: ppo.num_steps is 0, at least 2 is needed",
    "ppo.num_steps: [a]": "ppo.num_steps a:",
    "ppo.bptt: [-3]": "ppo.bptt -3:",
    "memory.width: [8]\nactor.memory.width: [16]": "memory.width and actor.memory.width both choose",
    "ppo.clip: {low: 0, high: 1, log: true}": "true needs a low above 0 and no step",
    "ppo.clip: {low: 0, high: 1, step: 2}": "step is 2, it must be above 0 and at most high - low",
    "ppo.num_steps: {low: 8.5, high: 64.5}": "ppo.num_steps 8.5:",
    "steps: [100, 200]": "steps is the same for all trials",
    "ppo.lam: [1]\nenv.id: [poc]": "unknown option 'ppo.lam'",
    "ppo.batch_size: [256]\nppo.num_minibatches: [2]": "say the same in two units: take one of them away",
    "ppo.ent_coef: [0]": "ppo.ent_coef is set by a flag as well: take one of them away",
    "a: [": "config file",
}


@pytest.mark.parametrize("text", BAD_SPACES)
def test_a_bad_space_is_one_line(text, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("space.yaml").write_text(text)
    assert cli.main(["tune", *ASKED, "-m", "ppo_gru", "--ppo.ent-coef", "0", "--space", "space.yaml"]) == 2
    error = capsys.readouterr().err
    assert BAD_SPACES[text] in error and error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["space.yaml"]


BAD = {
    "no environment": (["-m", "ppo"], "recollect tune takes one -e ENV, not 0"),
    "two models": (["-e", "poc", "-m", "ppo", "ppo_gru"], "recollect tune takes one -m MODEL, not 2"),
    "model": (["-e", "poc", "-m", "ppp"], "model 'ppp' is unknown"),
    "environment": (["-e", "Nowhere-v1", "-m", "ppo"], "Nowhere"),
    "trials": ([*ASKED, "--trials", "0"], "--trials takes a number above 0, not '0'"),
    "option": ([*ASKED, "--ppo.gama", "1"], "unknown option --ppo.gama"),
    "seed": (
        [*ASKED, "--seed", "3"],
        "several seeds: --seeds N or --seeds A B, not --seed",
    ),
    "rollouts": ([*ASKED, "--rollouts", "3"], "trials are compared after as many steps"),
    "no file": ([*ASKED, "--space", "nowhere.yaml"], "config file nowhere.yaml"),
    "no place": ([*ASKED, "--out", "taken"], "--out taken: "),
}


@pytest.mark.parametrize("case", BAD)
def test_mistakes_are_one_line(case, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("taken").touch()
    arguments, message = BAD[case]
    assert cli.main(["tune", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_without_optuna_it_is_said_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert cli.main(["tune", *ASKED]) == 2
    assert "recollect tune needs Optuna: pip install 'recollect[tune]'" in capsys.readouterr().err
    assert cli.main(["tune", "--help"]) == 0 and "--trials N" in capsys.readouterr().out


# What comes out -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """A study of twelve trials, with its files."""
    returns = dict(enumerate((50, 20, 60, 70, 10, 30, 40, 90, 20, 10, 80, 5)))
    made = tuned(tmp_path_factory.mktemp("tuned"), lambda trial, seed: returns[trial] + seed, 12)
    tune.written(made.outcome, ["recollect", "tune", *ASKED])
    return made.outcome


def test_the_best_is_said_beside_the_preset_with_a_warning(found):
    assert found.best.number == 7 and found.best.score == pytest.approx(92)
    assert "trial 7: 92 (91 92 93), the preset 52 (51 52 53), over seeds 1 2 3" in found.verdict[0]
    assert "luck is part of its lead" in found.verdict[1]
    assert list(found.commands) == ["compare both over fresh seeds", "train it"]


def test_its_files_make_the_same_runs(found):
    best = assemble(["--config", str(found.folder / "best.yaml")], "", "")
    assert best == found.question.base(flags(found.best.settings)) and best != found.question.preset
    fresh = study.read([], found.folder / "fresh.yaml")
    assert fresh.seeds == (4, 5, 6, 7, 8)
    assert [replace(config, seed=1) for config in fresh.configs()[:2]] == [found.question.preset, best]
    data = json.loads((found.folder / "tune.json").read_text())
    assert data["best"] == 7 and len(data["trials"]) == 12


def test_where_the_preset_is_best_there_is_nothing_to_compare_it_with(tmp_path):
    found = tuned(tmp_path, lambda trial, seed: 50 - trial, 2).outcome
    (found.folder / "fresh.yaml").write_text("of an earlier call")
    found.write()
    assert found.best is found.preset
    assert (found.folder / "best.yaml").exists() and not (found.folder / "fresh.yaml").exists()


def test_a_file_with_another_memory_makes_the_run_that_was_tried(tmp_path):
    chosen = {"critic.shared": True, "actor.memory.name": "gtrxl", "critic.memory.name": "gtrxl"}
    model = {"model": "ppo_trxl", **named_first(chosen)}
    (tmp_path / "fresh.yaml").write_text(
        yaml.safe_dump({"environments": ["poc"], "models": [model]}, sort_keys=False)
    )
    (fresh, *_) = study.read([], tmp_path / "fresh.yaml").configs()
    tried = assemble(["--env.id", "poc", "--model", "ppo_trxl", "--seed", "1", *flags(chosen)], "", "")
    assert fresh.critic == tried.critic and fresh.actor == tried.actor and fresh.critic.shared


VISIT = """
const page = document.querySelector("iframe").contentWindow;
const all = (what) => [...page.document.querySelectorAll(what)];
const errors = [];
function visit() {
  const seen = { errors, wide: page.document.documentElement.scrollWidth };
  seen.lines = all("path.parallel").length;
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


def test_the_page_shows_every_trial_on_a_small_phone(found, tmp_path):
    page = (found.folder / "tune.html").read_text()
    assert not re.search(r"(src|href)=\"(?!#|data:)", page), "it fetches something"
    seen = seen_by_a_browser(found.folder / "tune.html", VISIT, tmp_path)
    assert seen["errors"] == [] and seen["wide"] <= 360 and seen["lines"] == 12
    assert seen["figures"] == ["scores", "history", "early", "importance", "trials"]
    assert seen["tip"].startswith("trial 7") and "score 92" in seen["tip"]
    assert seen["here"] == 1 and seen["gone"] and seen["fewer"] < 12


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


def test_stopped_and_killed_it_goes_on_to_the_same_end(tmp_path):
    process = recollect(tmp_path)
    wait_for(lambda: lines(tmp_path) > 10)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 130 and "the same command goes on" in out, out
    begun = lines(tmp_path)
    process = recollect(tmp_path)
    wait_for(lambda: lines(tmp_path) > begun + 20)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    process = recollect(tmp_path)
    out, _ = process.communicate(timeout=100)
    assert process.returncode == 0, out
    home = tmp_path / "tune" / "ppo_stack" / "CartPole-v1"
    data = json.loads((home / "tune.json").read_text())
    assert [trial["number"] for trial in data["trials"]] == [0, 1]
    assert {trial["state"] for trial in data["trials"]} <= {"finished", "stopped early"}
    assert data["trials"][0]["state"] == "finished" and "recollect train --config" in out
    config = resolved_config(assemble(["--config", str(home / "best.yaml")], "", ""))
    config = replace(config, seed=2) if data["best"] == 0 else config
    straight = run_quietly(config, tmp_path / "straight").folder
    assert_same_end(straight, home / f"s{config.seed}-{config_hash(config)[:8]}")


def test_what_was_stopped_at_once_names_no_best(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tune, "run", lambda *_: None)
    cli.main(["tune", *ASKED, "-m", "ppo"])
    assert "tune.html and tune.json are written" in capsys.readouterr().out
    assert not list(tmp_path.rglob("best.yaml"))


def test_a_dry_run_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["tune", *REAL, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    assert "2 trials, 0 of them over" in out and "ppo.learning_rate" in out and "about" in out
