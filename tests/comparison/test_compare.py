"""Many runs by one command: finished runs are skipped, and an interrupted run resumes to the same bits."""

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from benchmarks.report import evaluation, invent_run
from rich.console import Console

from recollect.common.errors import UsageError
from recollect.comparison import compare, jobs, local_executor, one_run, run_process, worker
from recollect.comparison.display import ComparisonDisplay, RunGroup, group_jobs
from recollect.comparison.jobs import Job, last_line, plan_jobs, read_evaluation
from recollect.comparison.random_baselines import baseline_folder
from recollect.comparison.run_request import ClusterRequest, RunRequest
from recollect.comparison.study import read_study
from recollect.config import calls
from recollect.config.assembly import from_dict
from recollect.config.command import parse
from recollect.config.config import RunConfig
from recollect.envs import EnvConfig
from recollect.memory.rnn import GruConfig
from recollect.reporting import runs
from recollect.reporting.runs import read_runs, task_config
from recollect.reporting.summary import summarise
from recollect.run.build import resolved_config
from recollect.run.evaluate import describe_task
from recollect.run.run_folder import Claim, locked
from recollect.run.weights import versions

from ..helpers import assert_same_end, show_in_a_notebook, wait_for

SMALL = ["-e", "CartPole-v1", "-m", "ppo", "ppo_stack", "--env.num-envs", "4", "--ppo.num-steps", "16"]
SHORT = [*SMALL, "--rollouts", "4", "--seeds", "2", "--episodes", "3", "--jobs", "2"]
# Long enough to be stopped inside, with a checkpoint at each of its rollouts.
LONG = [*SMALL, "--rollouts", "60", "--seeds", "1", "--episodes", "3", "--jobs", "2", "--save-interval", "1"]


def options(*arguments: str) -> compare.CompareOptions:
    return parse(compare.CompareOptions, arguments, "recollect compare")


def recollect(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "recollect", "compare", *arguments]
    return subprocess.Popen(
        command,
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def finish(folder: Path, *arguments: str) -> None:
    """The same command in this process."""
    with contextlib.chdir(folder):
        assert compare.run_compare(options(*arguments)) == 0


def train_here(out: Path, *arguments: str) -> None:
    """The runs of a comparison one after the other in this process: one of its own takes seconds to start."""
    study = compare.study_of(options(*arguments))
    for job in planned(out, *arguments):
        one_run.train_and_evaluate(job.config, job.folder, study.episodes)


def folders(out: Path) -> list[Path]:
    return sorted(path.parent for path in out.rglob("config.yaml"))


def lines(out: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in out.rglob("metrics.jsonl"))


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("compare")
    finish(folder, *SHORT)
    return folder


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Path:
    """The runs of the long comparison, never stopped."""
    folder = tmp_path_factory.mktemp("straight")
    train_here(folder / "runs", *LONG)
    return folder


def test_every_run_is_trained_and_evaluated(done):
    runs = folders(done / "runs")
    assert len(runs) == 4
    for folder in runs:
        assert json.loads((folder / "summary.json").read_text())["status"] == "finished"
        scores = json.loads((folder / "evaluation.json").read_text())
        assert scores["episodes"] == len(scores["returns"]) == 3
        assert scores["deterministic"]


def test_random_actions_are_evaluated_as_a_baseline(done):
    baseline = json.loads((done / "runs" / "random" / "CartPole-v1" / "evaluation.json").read_text())
    assert baseline["agent"] == "random" and baseline["episodes"] == 3


def test_finished_runs_are_skipped(done, monkeypatch, capsys):
    before = {path: path.stat().st_mtime_ns for path in (done / "runs").rglob("*")}
    monkeypatch.chdir(done)
    assert compare.run_compare(options(*SHORT)) == 0
    out = capsys.readouterr().out
    assert "2/2" in out and "random actions" in out
    assert {path: path.stat().st_mtime_ns for path in (done / "runs").rglob("*")} == before


def test_a_run_is_recognised_in_any_folder(done, tmp_path):
    moved = tmp_path / "moved"
    moved.mkdir()
    for i, folder in enumerate(folders(done / "runs")):
        (moved / f"run{i}").mkdir()
        for name in ("summary.json", "evaluation.json", "config.yaml", "metrics.jsonl"):
            (moved / f"run{i}" / name).write_bytes((folder / name).read_bytes())
    jobs = planned(moved, *SHORT[:-2])
    assert [job.state for job in jobs] == ["done"] * 4


def copied_runs(done: Path, tmp_path: Path) -> list[Path]:
    return folders(Path(shutil.copytree(done / "runs", tmp_path / "runs")))


@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "episodes.jsonl"])
def test_a_finished_run_with_a_damaged_file_is_named_before_anything_is_trained(name, done, tmp_path):
    file = copied_runs(done, tmp_path)[0] / name
    file.write_text(file.read_text().replace("1", "2", 1))
    with pytest.raises(UsageError, match=rf"{name} is not as it was written: restore it") as caught:
        planned(tmp_path / "runs", *SHORT[:-2])
    assert str(file) in str(caught.value) and "\n" not in str(caught.value)


def test_a_run_with_a_damaged_summary_is_named(done, tmp_path):
    folder = copied_runs(done, tmp_path)[0]
    text = (folder / "summary.json").read_text()
    (folder / "summary.json").write_text(text.replace('"iteration": 4', '"iteration": 5'))
    with pytest.raises(UsageError, match=r"summary\.json is not as it was written: restore it, or remove"):
        planned(tmp_path / "runs", *SHORT[:-2])


def test_a_run_with_the_evaluation_of_another_is_evaluated_again(done, tmp_path):
    one, other = copied_runs(done, tmp_path)[:2]
    shutil.copy(other / "evaluation.json", one)
    states = {job.folder: job.state for job in planned(tmp_path / "runs", *SHORT[:-2])}
    assert states[one] == "begun" and states[other] == "done"
    left = read_runs([tmp_path / "runs"]).left_out
    assert [item.reason for item in left if item.folder == one] == [
        "evaluation.json is of another run: remove it, and evaluate this one"
    ]


def test_a_model_with_another_memory_is_trained_in_the_folder_of_its_job(tmp_path):
    short = [
        "-e",
        "CartPole-v1",
        "-m",
        "ppo",
        "--env.num-envs",
        "4",
        "--ppo.num-steps",
        "16",
        "--rollouts",
        "1",
    ]
    (job,) = planned(tmp_path, *short, "--critic", "gru", "--seeds", "1", "--episodes", "2")
    one_run.train_and_evaluate(job.config, job.folder, 2)
    assert job.folder.parts[-3] == "ppo-critic_gru" and (job.folder / "evaluation.json").exists()


def planned(out: Path, *arguments: str) -> list[Job]:
    study = compare.study_of(options(*arguments))
    return plan_jobs(study.configs(resolved_config), out, study.episodes)


def test_more_episodes_need_a_new_evaluation_but_no_training(done, tmp_path):
    out = tmp_path / "runs"
    shutil.copytree(done / "runs", out)
    before = lines(out)
    arguments = [*SHORT[:-4], "--episodes", "4"]
    (job, *others) = planned(out, *arguments)
    assert [other.state for other in (job, *others)] == ["begun"] * 4
    one_run.train_and_evaluate(job.config, job.folder, 4)
    assert [other.state for other in planned(out, *arguments)] == ["done", *["begun"] * 3]
    assert lines(out) == before


@pytest.mark.thorough
def test_finished_runs_are_probed_without_training(tmp_path, monkeypatch, capsys):
    arguments = ["-e", "probe:recall", "-m", "ppo", "ppo_gru", "--env.num-envs", "4", "--ppo.num-steps", "16"]
    arguments += ["--rollouts", "2", "--seeds", "1", "--episodes", "10", "--jobs", "2"]
    monkeypatch.chdir(tmp_path)
    train_here(tmp_path / "runs", *arguments)
    before = lines(tmp_path)
    assert compare.run_compare(options(*arguments)) == 0
    assert "memory" not in capsys.readouterr().out
    assert compare.run_compare(options(*arguments, "--probe")) == 0
    out = capsys.readouterr().out
    assert "has no memory (1)" in " ".join(out.split()) and lines(tmp_path) == before
    for folder in folders(tmp_path / "runs"):
        results = json.loads((folder / "probe" / "probe.json").read_text())
        assert results["episodes"] == 10 and (folder / "probe" / "probe.html").is_file()
    # A probe over other episodes does not count; and once all runs are probed, nothing is written.
    job = probe_jobs(tmp_path / "runs", *arguments)[0]
    assert job.state == "done" and job.verdict
    path = job.folder / "probe" / "probe.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "episodes": 30}))
    assert probe_jobs(tmp_path / "runs", *arguments)[0].state == "begun"
    assert compare.run_compare(options(*arguments, "--probe")) == 0
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")}
    assert compare.run_compare(options(*arguments, "--probe")) == 0
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "runs").rglob("*")} == stamps


def test_progress_in_a_notebook_is_one_table(done, monkeypatch, capsys):
    shown = show_in_a_notebook(monkeypatch)
    display = ComparisonDisplay(planned(done / "runs", *SHORT), 2, quiet=False)
    with display.live_table:
        display.show()
        display.jobs[0].state = "failed"
        display.show()  # too early to be drawn again
    assert len(shown) == 3 and capsys.readouterr().out == ""
    before, last = shown[0], shown[-1]
    assert before["text/plain"] == "" and "3 of 4 runs done" in last["text/plain"]
    # One line for each row, which does not wrap.
    assert last["text/html"].startswith('<pre style="white-space:pre">') and "ppo_stack" in last["text/html"]
    with ComparisonDisplay(display.jobs, 2, quiet=True).live_table:
        assert len(shown) == 3


def test_a_report_covers_only_the_runs_of_its_comparison(done, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(done / "runs", "runs")
    assert compare.run_compare(options(*SHORT, "-m", "ppo", "--report", "page")) == 0
    text = (tmp_path / "page" / "report.md").read_text()
    assert "runs/ppo_stack" not in text and "2 runs, 1 environment, 2 seeds" in text
    assert "recollect compare -e CartPole-v1" in text and "page/report.html" in capsys.readouterr().out
    assert json.loads((tmp_path / "page" / "report.json").read_text())


def test_without_metrics_there_is_no_report(tmp_path, capsys):
    jobs = planned(tmp_path, "-e", "poc", "-m", "ppo", "--seeds", "1")
    compare.write_run_report(jobs, SimpleNamespace(report_folder=tmp_path / "page"))
    assert "no report: no run has written metrics yet" in capsys.readouterr().err
    assert not (tmp_path / "page").exists()


def test_each_task_has_a_baseline_folder(tmp_path):
    plain = EnvConfig(id="LunarLander-v3")
    others = [
        replace(plain, time_limit=500),
        replace(plain, mask=(2,)),
        replace(plain, kwargs={"gravity": -9}),
    ]
    folders = [baseline_folder(tmp_path, env) for env in (plain, *others)]
    assert len(set(folders)) == 4 and folders[0] == tmp_path / "random" / "LunarLander-v3"
    assert baseline_folder(tmp_path, replace(plain, num_envs=7)) == folders[0]


def test_each_task_of_one_environment_has_a_baseline(tmp_path, capsys):
    """A time limit of 3 steps gives no baseline for episodes without a limit."""
    study = tmp_path / "study.yaml"
    study.write_text(
        "environments: [{env.id: CartPole-v1, env.time_limit: 3}, {env.id: CartPole-v1}]\nmodels: [ppo]\n"
    )
    flags = ["--seeds", "1", "--episodes", "5", "--rollouts", "1", "--env.num-envs", "2", "--quiet"]
    folders = ["--out", str(tmp_path / "runs"), "--report", str(tmp_path / "report")]
    train_here(tmp_path / "runs", str(study), *flags)
    assert compare.run_compare(options(str(study), *flags, *folders)) == 0
    scores = [
        line.split("random actions")[1].strip()
        for line in capsys.readouterr().out.splitlines()
        if "random actions" in line
    ]
    assert sorted(scores)[1:] == ["3"] and float(sorted(scores)[0]) > 8
    summary = summarise(runs.read_runs([tmp_path / "runs"]))
    assert summary.left_out == [] and len(summary.scales) == 2
    assert json.loads((tmp_path / "report" / "report.json").read_text())["left_out"] == []
    assert "2 runs, 2 environments, 1 seed" in (tmp_path / "report" / "report.md").read_text()
    baselines = [json.loads(path.read_text()) for path in (tmp_path / "runs" / "random").rglob("*.json")]
    assert {baseline["task"]["time_limit"] for baseline in baselines} == {3, None}


def test_a_baseline_of_another_task_is_not_read(tmp_path):
    """In any order of folders, each task has its own baseline, and a task without one has none."""
    for limit, mean in ((20, 9.0), (None, 22.0)):
        folder = tmp_path / "random" / str(limit)
        folder.mkdir(parents=True)
        task = {"kwargs": {}, "mask": [], "time_limit": limit}
        scores = {**evaluation("CartPole-v1", "random", mean, np.random.default_rng(0)), "task": task}
        (folder / "evaluation.json").write_text(json.dumps(scores | {"mean": mean}))
    for flags in ((), ("--env.time-limit", "20"), ("--env.time-limit", "30")):
        invent_run(tmp_path, lines=5, flags=flags)
    scales = {scale.env: (scale.low, scale.low_is) for scale in summarise(runs.read_runs([tmp_path])).scales}
    _, low_is = scales.pop("CartPole-v1, env.time_limit 30")
    assert low_is == "worst" and sorted(scales.values()) == [(9.0, "random"), (22.0, "random")]


@pytest.mark.parametrize(
    ("words", "on"), [((), False), (("--dry-run",), True), (("--dry-run", "false"), False)]
)
def test_a_switch_is_on_where_it_is_named(words, on):
    assert options("-e", "poc", "-m", "ppo", *words).dry_run is on


@pytest.mark.parametrize("switch", ["--probe", "--dry-run", "--quiet"])
def test_a_file_may_follow_a_switch(switch):
    assert options("-e", "poc", "-m", "ppo", switch, "study.yaml").file == Path("study.yaml")


def probe_jobs(out: Path, *arguments: str) -> list[Job]:
    """The jobs of a comparison with `--probe`."""
    study = compare.study_of(options(*arguments))
    return plan_jobs(study.configs(resolved_config), out, study.episodes, probes=True)


def test_verdicts_of_probes_are_counted():
    jobs = [Job(resolved_config(RunConfig()), Path("x"), verdict=verdict) for verdict in VERDICTS]
    assert RunGroup("env", "model", jobs).verdict == (
        "uses about 3 to 12 steps of memory (3), Only its critic has a memory (gru); its actor has none (1)"
    )


VERDICTS = (
    "It uses about 4 steps (4 to 8) of memory: without it the return falls from 200 to 42.",
    "Only its critic has a memory (gru); its actor has none.",
    "It uses about 12 steps (12 to 13) of memory: without it the return falls from 190 to 40.",
    "It uses about 3 steps (2 to more than 8) of memory: without it the return falls from 190 to 40.",
    "",
)


@pytest.mark.parametrize("seconds", [0.25, 0.28, 0.37, 0.43])
def test_a_run_that_is_stopped_while_it_imports_ends_at_once(seconds, tmp_path):
    """A KeyboardInterrupt would be swallowed by an extension, and the run continue with half of numpy."""
    executor = local_executor.LocalExecutor(2)
    env = EnvConfig(id="CartPole-v1", num_envs=4)
    config = RunConfig(env=env, steps=10_000_000, kernels="torch")
    jobs = plan_jobs([replace(resolved_config(config), seed=seed) for seed in (1, 2)], tmp_path, 10, False)
    for job in jobs:
        executor.start(job, 10)
    time.sleep(seconds)
    executor.stop()
    begun, ended = time.monotonic(), []
    while not executor.idle:
        ended += executor.ended()
        time.sleep(0.01)
    assert [fault for _, fault in ended] == [None, None] and time.monotonic() - begun < 3


@pytest.mark.thorough
def test_runs_stop_with_their_comparison_and_the_same_command_resumes_them(straight, tmp_path):
    """First by a signal, then because the comparison is killed."""
    process = recollect(tmp_path, *LONG)
    wait_for(lambda: lines(tmp_path) > 10)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130, out
    assert "repeat the command to resume them" in out
    for folder in folders(tmp_path / "runs"):
        assert json.loads((folder / "summary.json").read_text())["status"] == "SIGINT"
    before = lines(tmp_path)
    process = recollect(tmp_path, *LONG)
    wait_for(lambda: lines(tmp_path) > before + 10)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    finish(tmp_path, *LONG)  # at once, while its runs are still stopping
    same_ends(straight, tmp_path)


def same_ends(one: Path, other: Path) -> None:
    pairs = list(zip(folders(one / "runs"), folders(other / "runs"), strict=True))
    assert len(pairs) == 2
    for a, b in pairs:
        assert a.relative_to(one) == b.relative_to(other)
        assert_same_end(a, b)
        assert (
            json.loads((a / "evaluation.json").read_text())["returns"]
            == (json.loads((b / "evaluation.json").read_text())["returns"])
        )


def test_a_failed_run_is_named_and_the_others_continue(tmp_path):
    study = tmp_path / "study.yaml"
    study.write_text(
        "environments: [CartPole-v1]\n"
        "models: [ppo, {model: ppo_stack, env.normalize_reward: false, env.reward_scale: 1.0e+30}]\n"
        "seeds: 1\nepisodes: 3\n"
        "options: {env.num_envs: 4, ppo.num_steps: 16, rollouts: 4}\n"
    )
    process = recollect(tmp_path, "study.yaml")
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 1, out
    (failed,) = [line for line in out.splitlines() if line.startswith("failed: ")]
    assert "ppo_stack" in failed
    done = {path.relative_to(tmp_path).parts[1] for path in tmp_path.rglob("evaluation.json")}
    assert done == {"random", "ppo"}


UNFINISHED = "its run was finished: something in it called os._exit"


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (
            "signal.signal(signal.SIGINT, signal.SIG_DFL); os.kill(os.getpid(), signal.SIGINT)",
            None,
        ),  # before it was ready to save, or while evaluating
        ("os.kill(os.getpid(), signal.SIGTERM)", None),
        ("sys.exit(143)", None),
        (f"sys.exit({run_process.FINISHED})", None),
        ("print('bye', file=sys.stderr); os._exit(0)", f"the process ended with 0 before {UNFINISHED}"),
        ("sys.exit('no room')", "no room"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "the process ended with -9"),
    ],
)
def test_a_run_that_was_stopped_has_not_failed(end, message):
    command = [sys.executable, "-c", f"import os, signal, sys; {end}"]
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors)
        process.wait()
        assert run_process.failure(process, errors) == message


@pytest.mark.parametrize("refusals", [0, 2])
def test_runs_of_a_nice_comparison_are_nice(refusals, monkeypatch):
    """Linux shares a processor between sessions first, and each run is one. It may refuse for a moment."""
    monkeypatch.setattr(run_process.os, "nice", lambda _: 7)
    write, asked = Path.write_text, []

    def write_later(path, text):
        asked.append(path)
        if len(asked) <= refusals:
            raise BlockingIOError
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", write_later)
    with subprocess.Popen(["sleep", "20"], start_new_session=True) as process:
        try:
            session = Path(f"/proc/{process.pid}/autogroup")
            if not session.exists() or not session.read_text():
                pytest.skip("this system does not divide the processor between sessions")
            run_process.keep_niceness(process.pid)
            assert session.read_text().endswith(" nice 7\n") and len(asked) == 1 + refusals
        finally:
            process.kill()


def test_where_there_are_no_sessions_to_divide_between_nothing_happens(monkeypatch):
    monkeypatch.setattr(run_process.os, "nice", lambda _: 7)
    run_process.keep_niceness(2**22)  # no process has this id
    monkeypatch.delattr(run_process.os, "nice")
    run_process.keep_niceness(os.getpid())


def test_one_run_is_stopped_and_none_is_signalled_twice():
    executor, signalled = local_executor.LocalExecutor(2), []
    jobs = [Job(resolved_config(RunConfig()), Path(name)) for name in "ab"]
    processes = [SimpleNamespace(pid=i, send_signal=lambda _, i=i: signalled.append(i)) for i in (1, 2)]
    executor._running = [(job, process, None) for job, process in zip(jobs, processes, strict=True)]
    executor.stop(jobs[1])
    executor.stop(jobs[1])
    assert signalled == [2]
    executor.stop()
    assert signalled == [2, 1]


def test_a_broken_folder_is_named(done, tmp_path):
    (job, *_) = planned(tmp_path, *SHORT[:-2])
    job.folder.mkdir(parents=True)
    (job.folder / "metrics.jsonl").touch()
    with pytest.raises(UsageError, match=r"is broken: its summary\.json cannot be read; remove the folder"):
        planned(tmp_path, *SHORT[:-2])


def test_a_run_that_another_process_has_started_since_is_not_broken(done, tmp_path, monkeypatch):
    (job, *_) = planned(tmp_path, *SHORT[:-2])
    now = jobs.existing_runs
    monkeypatch.setattr(jobs, "existing_runs", lambda out: {} if out == tmp_path else now(out))
    shutil.copytree(folders(done / "runs")[0], job.folder)
    assert planned(tmp_path, *SHORT[:-2])[0].state == "done"


def test_a_run_that_was_killed_before_its_first_summary_is_started_again(done, tmp_path):
    (job, *_) = planned(tmp_path, *SHORT[:-2])
    (job.folder / "checkpoints").mkdir(parents=True)
    (job.folder / "config.yaml").write_text("model: [")
    assert planned(tmp_path, *SHORT[:-2])[0].state == "new"
    assert one_run.train_and_evaluate(job.config, job.folder, 3) == "finished"
    assert_same_end(folders(done / "runs")[0], job.folder)


@pytest.mark.thorough
def test_a_run_that_another_process_stops_is_resumed(straight, tmp_path):
    process = recollect(tmp_path, *LONG)
    wait_for(lambda: lines(tmp_path) > 10)
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        os.kill(int(child), signal.SIGTERM)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    same_ends(straight, tmp_path)


def test_a_dry_run_writes_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert compare.run_compare(options(*SHORT, "--dry-run")) == 0
    assert list(tmp_path.iterdir()) == []
    out = capsys.readouterr().out
    assert "about" in out and "with 2 runs at a time" in out
    assert "4 rollouts" in out


def test_a_terminal_shows_which_model_a_dry_run_is_timing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("recollect.comparison.display.estimate_seconds", lambda config: 3.0)
    shown = compare.execute(options("-e", "poc", "-m", "ppo", "ppo_gru", "--dry-run")).display
    shown.live_table.console = Console(force_terminal=True, file=io.StringIO(), width=100)
    shown.plan()
    text = shown.live_table.console.file.getvalue()
    assert "timing poc, ppo_gru (2 of 2)" in text and "3s" in text


def test_a_dry_run_from_python_returns_the_planned_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    call = {"seeds": 2, "options": {"rollouts": 4}, "dry_run": True}
    rows = compare.compare("CartPole-v1", "ppo", **call, quiet=True)
    assert [(row["model"], row["seed"], row["state"], row["return"]) for row in rows] == [
        ("ppo", 1, "new", None),
        ("ppo", 2, "new", None),
    ]
    assert capsys.readouterr().out == ""
    monkeypatch.setattr(ComparisonDisplay, "plan", lambda _: print("the plan"))
    assert compare.compare("CartPole-v1", "ppo", **call) == rows
    assert capsys.readouterr().out == "the plan\n" and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--jobs", "0"], "--jobs is 0, at least 1 is needed"),
        (["--jobs", "many"], "--jobs takes a whole number, not 'many'"),
        (["--out", "a", "b"], "config file b"),
        (["--out", "s3://bucket/runs"], "s3://bucket/runs: runs need locks, appends and renames"),
        (["--out", "memory://runs"], "which memory:// does not offer; mount the storage"),
        (["--out", "file://host/runs"], "give that path or file:///PATH"),
        (["--probe", "--episodes", "9"], "--probe needs at least 10 episodes, not 9"),
        (["nowhere.yaml"], "config file nowhere.yaml"),
        (["-e", "poc", "-m", "ppo", "ppo", "--seeds", "3"], "ppo on poc, seed 1, is listed twice"),
        ([*SHORT, "--seed", "7"], "--seeds N or --seeds A B, not --seed"),
    ],
)
def test_bad_options_are_refused_by_name(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        compare.run_compare(options(*arguments))


def test_a_folder_may_be_a_file_url():
    assert options(*SHORT, "--out", "file:///shared/my runs").folder == Path("/shared/my runs")
    assert options(*SHORT, "--out", "shared/runs").folder == Path("shared/runs")


# The display --------------------------------------------------------------------------------


def test_groups_are_labelled_by_the_settings_that_differ(tmp_path):
    study = tmp_path / "study.yaml"
    study.write_text(
        "environments: [CartPole-v1]\nmodels: [ppo, {model: ppo, ppo.gamma: 0.5}, ppo_gru]\nseeds: 3\n"
    )
    configs = read_study(study).configs(resolved_config)
    groups = [(group.label, len(group.jobs)) for group in group_jobs(plan_jobs(configs, tmp_path, 5))]
    assert sorted(groups) == [("ppo, ppo.gamma 0.5", 3), ("ppo, ppo.gamma 0.99", 3), ("ppo_gru", 3)]


def test_the_time_left_is_extrapolated_from_the_runs_so_far(tmp_path):
    jobs = planned(tmp_path, *SMALL, "--rollouts", "10", "--seeds", "2")
    display = ComparisonDisplay(jobs, 2, quiet=True)
    assert display.seconds_left() is None
    jobs[0].state = "running"
    jobs[0].metrics = {"iteration": 5, "step": 320, "time": 10.0, "return": None}
    # Half of one run took 10 s; 3.5 runs are left, two at a time.
    assert display.seconds_left() == pytest.approx(3.5 * 20 / 2)
    jobs[1].state = "failed"
    assert display.seconds_left() == pytest.approx(2.5 * 20 / 2)


@pytest.mark.parametrize("success", [True, False])
def test_the_interval_of_a_share_stays_within_0_and_1(tmp_path, capsys, success):
    jobs = planned(tmp_path, "-e", "CartPole-v1", "-m", "ppo", "--seeds", "4")
    for job, score in zip(jobs, (0.7, 0.9, 1.0, 1.0), strict=True):
        job.state, job.evaluation = "done", {"mean": score, "success": score if success else None}
    display = ComparisonDisplay(jobs, 2, quiet=True)
    display.results({display.groups[0].env: {"mean": 0.4, "success": None}})
    assert ("to 1 " in capsys.readouterr().out) == success


def test_scores_on_one_task_are_all_of_one_kind(tmp_path, capsys):
    jobs = planned(tmp_path, "-e", "CartPole-v1", "-m", "ppo", "ppo_gru", "--seeds", "2")
    for job, mean in zip(jobs, (31.0, 33.0, 33.0, 35.0), strict=True):
        job.state, job.evaluation = "done", {"mean": mean, "success": 0.5}
    display = ComparisonDisplay(jobs, 2, quiet=True)
    env = display.groups[0].env
    display.results({env: {"mean": 20.0, "success": None}})
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows[0][-1] == "-" and [row[3] for row in rows[1:3]] == ["0.5", "0.5"]
    jobs[0].evaluation["success"] = None  # some of its episodes report nothing
    display.results({env: {"mean": 20.0, "success": 0.1}})
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows[0][-1] == "20" and [row[3] for row in rows[1:3]] == ["32", "34"]


def test_a_baseline_with_action_masks_is_another(tmp_path):
    plain, masked = (EnvConfig(id="CartPole-v1", action_mask=mask) for mask in (False, True))
    assert baseline_folder(tmp_path, plain) != baseline_folder(tmp_path, masked)
    game = EnvConfig(id="CartPole-v1", self_play=2)
    assert baseline_folder(tmp_path, game) != baseline_folder(tmp_path, masked)
    assert describe_task(masked)["action_mask"] and "action_mask" not in describe_task(plain)


def test_options_of_python_win_whatever_their_name():
    given = {"actor": GruConfig(width=8), "lr": 0.5}
    words = calls.arguments([], {"environments": "CartPole-v1", "models": "ppo", "seeds": 1}, given)
    parsed = parse(compare.CompareOptions, words, "recollect compare", given)
    (config,) = compare.study_of(parsed).configs(resolved_config)
    assert config.actor.memory == GruConfig(width=8) and config.ppo.learning_rate == 0.5


def test_a_game_against_past_selves_is_another_task_than_the_team_of_its_agents(tmp_path):
    team, few, many = (EnvConfig(id="pettingzoo:x", self_play=versions) for versions in (0, 2, 9))
    assert baseline_folder(tmp_path, team) != baseline_folder(tmp_path, few)
    assert baseline_folder(tmp_path, few) == baseline_folder(tmp_path, many)
    names = [
        task_config({"env.id": "pettingzoo:x", "env.self_play": one.self_play}) for one in (team, few, many)
    ]
    assert names[0] == {"env.id": "pettingzoo:x"} and names[0] != names[1] == names[2]


def test_equal_scores_get_a_bound(tmp_path, capsys):
    jobs = planned(tmp_path, "-e", "CartPole-v1", "-m", "ppo", "--seeds", "5")
    display = ComparisonDisplay(jobs, 2, quiet=True)
    baselines = {display.groups[0].env: {"mean": 22.0, "success": None}}
    for job, score in zip(jobs, (500.0, 500.0, 500.0, 500.0, 400.0), strict=True):
        job.state, job.evaluation = "done", {"mean": score, "success": None}
    display.results(baselines)
    assert "are equal" not in capsys.readouterr().out
    jobs[-1].evaluation = {"mean": 500.0, "success": None}
    display.results(baselines)
    bound = "all 5 seeds are equal; with 95 % confidence, at most 45% of further seeds differ"
    assert f"CartPole-v1, ppo: {bound}" in capsys.readouterr().out


def test_the_last_complete_line_is_read(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert last_line(path) is None
    one, two = {"iteration": 1, "step": 9}, {"iteration": 2, "step": 18}
    path.write_text(f'{json.dumps(one)}\n{json.dumps(two)}\n{{"ste')
    assert last_line(path) == two
    for damaged in ('{"step"', '{"x": 1}\n', "[]\n", '{"iteration": "a", "step": 2}\n'):
        path.write_text(damaged)
        assert last_line(path) is None


@pytest.mark.parametrize(
    "change", [{"success": "all"}, {"mean": None}, {"returns": 3}, {"episodes": []}, {"success": ...}]
)
def test_a_damaged_evaluation_is_repeated(change, tmp_path):
    whole = {"mean": 1.0, "episodes": 2, "returns": [1.0, 1.0], "success": None}
    (tmp_path / "evaluation.json").write_text(json.dumps(whole))
    assert read_evaluation(tmp_path) == whole
    damaged = {key: value for key, value in {**whole, **change}.items() if value is not ...}
    (tmp_path / "evaluation.json").write_text(json.dumps(damaged))
    assert read_evaluation(tmp_path) is None


@pytest.mark.thorough
def test_a_run_stops_when_another_process_claims_it(straight, tmp_path):
    """As on a machine that lost its network but not its storage."""
    (job, _) = planned(tmp_path / "runs", *LONG[:-4], *LONG[-2:])
    lock_folder = tmp_path / "lock"
    lock_folder.mkdir()
    request = replace(job.request(3), cluster=ClusterRequest("task", lock_folder, versions()))
    with locked(lock_folder):
        first, errors = run_process.start_process(request)
        wait_for(lambda: lines(tmp_path) > 5)
        # A fast machine would end the run before the second process has claimed it.
        first.send_signal(signal.SIGSTOP)
        claimed = Claim.read(job.folder)
        second, more = run_process.start_process(request)
        wait_for(lambda: Claim.read(job.folder) != claimed)
        time.sleep(worker.CLAIM_SECONDS)
        first.send_signal(signal.SIGCONT)
        assert first.wait(60) == 143 and second.wait(60) == run_process.FINISHED
    assert run_process.failure(first, errors) is None and run_process.failure(second, more) is None
    assert_same_end(folders(straight / "runs")[0], job.folder)


def test_a_claim_of_another_comparison_counts_only_when_this_one_is_gone(tmp_path):
    claim, same, other = Claim.new("task"), Claim.new("task"), Claim.new("other")
    with locked(tmp_path):
        assert not any(worker.is_replaced(claim, newest, tmp_path) for newest in (None, claim, other))
        assert worker.is_replaced(claim, same, tmp_path)
    assert worker.is_replaced(claim, other, tmp_path)
    assert worker.is_replaced(claim, other, tmp_path / "gone")


def test_a_locked_run_is_waited_for_and_then_named(done):
    (job, *_) = planned(done / "runs", *SHORT[:-2])
    with locked(job.folder), pytest.raises(UsageError, match="is in use by another process"):
        one_run.train_and_evaluate(job.config, job.folder, 3, lock_seconds=0.3)


# The message to a worker ------------------------------------------------------------------------

REQUEST = RunRequest({"seed": 1, "env": {"id": "off"}}, Path("/runs/a"), 7, True)
CLUSTER = ClusterRequest("task", Path("/runs/.seen-1"), {"numpy": "2"})


@pytest.mark.parametrize("request_", [REQUEST, replace(REQUEST, probe=False, cluster=CLUSTER)])
def test_a_request_is_the_same_after_json(request_):
    line = request_.to_json()
    assert "\n" not in line and RunRequest.from_json(line) == request_


def test_a_request_is_made_of_a_job():
    job = Job(resolved_config(RunConfig()), Path("runs/x"), probes=True)
    request = RunRequest.from_json(job.request(7).to_json())
    assert request == job.request(7) and (request.episodes, request.probe, request.cluster) == (7, True, None)
    assert from_dict(dict(request.config), [job.config.env.id]) == job.config


BAD_REQUESTS = {
    "": "run request: Expecting value",
    "[1]": r"run request: expected an object with the keys config, folder, .*, got \[1\]",
    '{"config": {}}': "run request: expected an object with the keys",
    REQUEST.to_json().replace("7", "true"): "run request: episodes must be int, not True",
    REQUEST.to_json().replace('"/runs/a"', "null"): "run request: folder must be str, not None",
    REQUEST.to_json().replace("null", '{"task": "1"}'): "with the keys task, lock_folder, versions, got",
}


@pytest.mark.parametrize("line", BAD_REQUESTS)
def test_a_bad_request_is_refused(line):
    with pytest.raises(UsageError, match=BAD_REQUESTS[line]):
        RunRequest.from_json(line)


def test_a_worker_reports_a_bad_request(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("{}\n"))
    monkeypatch.setattr(worker, "stop_with_stdin", lambda: None)
    assert worker.main() == 1 and "run request: expected an object" in capsys.readouterr().err
