"""The command line as a user meets it: in a process of its own where that matters, else in this one."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from recollect import cli
from recollect.common.errors import UsageError, install_hint
from recollect.config.assembly import assemble
from recollect.learn import ppo
from recollect.learn.learner import Learner
from recollect.memory.rnn import GruConfig
from recollect.run import bench
from recollect.run.film import write_film

from ..helpers import metrics_of, run_quietly, small_config

RECOLLECT = [sys.executable, "-m", "recollect.cli"]


def recollect(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*RECOLLECT, *arguments], capture_output=True, text=True, cwd=cwd, check=False)


def seconds(*command: str) -> float:
    """The quicker of two runs: what it costs, not what the neighbours cost."""
    times = []
    for _ in range(2):
        start = time.perf_counter()
        subprocess.run(command, capture_output=True, check=False)
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return run_quietly(small_config(), tmp_path_factory.mktemp("cli")).folder


@pytest.mark.timing
def test_help_and_typing_errors_do_not_wait_for_torch() -> None:
    assert seconds(*RECOLLECT, "--help") < 0.5
    assert seconds(*RECOLLECT, "trian") < 0.5
    # This needs it, and little more.
    least = seconds(sys.executable, "-c", "import torch")
    assert seconds(*RECOLLECT, "train", "CartPole-v1", "--ppo.gama", "1") < least + 1.0


def test_help_names_every_command_and_every_field(capsys) -> None:
    text = recollect("--help").stdout
    assert all(f"  {name} " in text for name in cli.COMMANDS)
    assert cli.main(["train", "--help-all"]) == 0
    text = capsys.readouterr().out
    for flag in ("--ppo.gamma", "--env.num-envs", "--actor.hidden", "--seed", "--run-id", "--wandb-project"):
        assert flag in text


BAD_INPUT = {
    "budget": (["resume", "x", "--steps", "9"], "train its agent further: recollect train ENV --init RUN"),
    "command": (["trian"], "unknown command 'trian'; did you mean train?"),
    "environment": (["train", "CartPol-v1"], "CartPol-v1 is unknown; did you mean CartPole-v1"),
    "module": (
        ["train", "no_such_module:Env-v0"],
        "module no_such_module does not import: No module named 'no_such_module'; install it, or put its "
        "folder on PYTHONPATH",
    ),
    "module of a part": (
        ["train", "poc", "--actor.encoder", "no_such_module:Config"],
        "encoder no_such_module:Config: module no_such_module does not import: No module named "
        "'no_such_module'; install it, or put its folder on PYTHONPATH",
    ),
    "model for an environment": (["train", "ppo_gru"], "ppo_gru is a model, not an environment; rec"),
    "model": (["train", "CartPole-v1", "-m", "ppoo"], "model 'ppoo' is unknown; did you mean ppo"),
    "memory": (["train", "CartPole-v1", "--actor", "stck"], "memory 'stck' is unknown; did you mean stack"),
    "field": (
        ["train", "CartPole-v1", "--ppo.gama", "1"],
        "unknown option --ppo.gama; did you mean --ppo.gamma",
    ),
    "value": (
        ["train", "CartPole-v1", "--ppo.gamma", "x"],
        "--ppo.gamma takes a number, not 'x'",
    ),
    "range": (["train", "CartPole-v1", "--ppo.gamma", "2"], "ppo.gamma is 2.0, it must lie in [0, 1]"),
    "choice": (
        ["train", "CartPole-v1", "--env.backend", "x"],
        "--env.backend takes auto, gymnasium, workers, envpool or own, not 'x'",
    ),
    "sizes": (
        ["train", "CartPole-v1", "--ppo.bptt", "7"],
        "ppo.bptt is 7, and must divide ppo.num_steps, 32",
    ),
    "chunks below 0": (
        ["train", "CartPole-v1", "--ppo.bptt", "-1"],
        "ppo.bptt is -1; give the steps of a chunk as a number, or episode (or 0)",
    ),
    "chunks by a wrong name": (
        ["train", "CartPole-v1", "--ppo.bptt", "epsiode"],
        "--ppo.bptt takes a whole number, episode or none, not 'epsiode'; did you mean episode?",
    ),
    "config file": (["train", "--config", "nowhere.yaml"], "config file nowhere.yaml"),
    "kwargs": (["train", "Acrobot-v1", "--env.kwargs.x", "1"], "unexpected keyword argument 'x'"),
    "mask": (
        ["train", "CartPole-v1", "--env.mask", "9"],
        "env.mask [9] does not fit an observation of 4 entries",
    ),
    "run": (["eval", "nowhere"], "nowhere does not exist"),
    "no run": (["resume"], "resume needs RUN, a run folder"),
    "not a run": (["resume", "."], ". is not a run: it has no config.yaml"),
    "random where": (["eval", "random"], "a random agent needs an environment"),
    "list": (
        ["list", "env"],
        "KIND takes envs, presets, memories, encoders or agents, not 'env'; did you mean envs?",
    ),
    "film": (
        ["eval", "random", "-e", "CartPole-v1", "--render", "x.avi"],
        "a file that ends in .mp4, .gif,",
    ),
    "film and numbers": (
        ["eval", "random", "-e", "CartPole-v1", "--render", "x.gif", "--json"],
        "--json and --render exclude each other",
    ),
    "numbers and running mean": (
        ["eval", "random", "-e", "CartPole-v1", "--json", "--running-rew-len", "5"],
        "--json and --running-rew-len exclude each other",
    ),
    "film and running mean": (
        ["eval", "random", "-e", "CartPole-v1", "--render", "x.gif", "--running-rew-len", "5"],
        "--running-rew-len and --render exclude each other",
    ),
    "no environment": (
        ["train", "--steps", "9"],
        "train needs an environment, as in: recollect train",
    ),
    "environment behind an option": (
        ["train", "--actor", "gru", "--actor.width", "32", "CartPole-v1"],
        "32 CartPole-v1 was read as the value of --actor.width: name the environment before",
    ),
    "no environment to clone for": (["clone", "x.npz"], "clone needs an environment, as in: recollect clone"),
    "no picture": (
        ["eval", "random", "-e", "probe:match", "--render", "x.gif"],
        "probe:match cannot be rendered: it has no rgb_array render mode",
    ),
    "threads": (["train", "CartPole-v1", "--threads", "0"], "threads is 0, at least 1 is needed"),
    "width": (
        ["train", "CartPole-v1", "--actor", "gru", "--actor.width", "0"],
        "gru.width is 0, at least 1 is needed",
    ),
    "shared actor": (["train", "CartPole-v1", "--actor", "shared"], "memory 'shared' is unknown"),
    "burn-in": (
        ["train", "CartPole-v1", "--ppo.burn-in", "4"],
        "ppo.burn_in is 4 with ppo.chunk_state stored: burn-in needs at least 1 step, the others 0",
    ),
    "no steps": (["train", "CartPole-v1", "--steps", "-5"], "steps is -5, at least 1 is needed"),
    "no rollouts": (["compare", "-e", "poc", "-m", "ppo", "--rollouts", "0"], "rollouts is 0, at least 1"),
    "no validation": (["train", "poc", "--val-episodes", "0"], "val_episodes is 0, at least 1 is needed"),
    "decay": (["train", "poc", "--ppo.weight-decay", "-1"], "ppo.weight_decay is -1.0, it must not be below"),
    "kwargs twice": (
        ["train", "poc", "--env.kwargs.size", "3", "4"],
        "--env.kwargs.size takes true or false, a whole number, a number, text or none, not '3 4'",
    ),
    "unknown of two": (["train", "poc", "--ppo.gama", "3", "4"], "unknown option --ppo.gama"),
    "no memory": (["train", "poc", "--actor", ":x"], "memory :x: module  does not import"),
    "no episodes": (["eval", "random", "-e", "poc", "-ne", "0"], "--episodes is 0, at least 1"),
    "film of nothing": (
        ["eval", "random", "-e", "poc", "--render", "x.gif", "-ne", "-1"],
        "--episodes is -1, at least 1 is needed",
    ),
    "mean of nothing": (
        ["eval", "random", "-e", "poc", "--running-rew-len", "-5"],
        "--running-rew-len is -5, at least 1 is needed",
    ),
    "two environments": (
        ["train", "ppo_gru", "-e", "CartPole-v1"],
        "ENV is ppo_gru, and -e is CartPole-v1: give one of them; a model is named by --model",
    ),
    "an environment without a value": (["train", "CartPole-v1", "-e"], "-e"),
    "stray word": (["record", "a", "b"], "unexpected argument 'b': this command takes RUN, and options"),
}


@pytest.mark.parametrize(("arguments", "message"), BAD_INPUT.values(), ids=BAD_INPUT)
def test_bad_input_gets_one_line(arguments, message, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("recollect: ") and error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "flags", "wanted"),
    [
        ("rollouts: 7", "--steps 900", (900, None)),
        ("steps: 5\nrollouts: null", "--rollouts 3", (None, 3)),
        ("steps: 5\nrollouts: 7", "", (5, 7)),
        ("rollouts: 7", "--steps 900 --rollouts 2", (900, 2)),
        ("rollouts: 7", "--steps none", (None, 7)),
        ("rollouts: 7", "--num-epochs 8", (None, 8)),
    ],
)
def test_a_budget_of_flags_takes_the_place_of_the_files(tmp_path, text, flags, wanted) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(f"env: {{id: Acrobot-v1}}\n{text}\n")
    config = assemble(["--config", str(file), *flags.split()])
    assert (config.steps, config.rollouts) == wanted


def test_a_size_of_minibatches_takes_the_place_of_a_files_number_of_them(tmp_path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("env: {id: Acrobot-v1}\nppo: {num_minibatches: 8}\n")
    config = assemble(["--config", str(file), "--ppo.batch-size", "64"])
    assert (config.ppo.num_minibatches, config.ppo.batch_size) == (None, 64)


def test_file_below_flags_and_all_spellings(tmp_path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "env: {id: Acrobot-v1, num_envs: 5, kwargs: {render_mode: null}}\n"
        "actor: {memory: {name: stack, frames: 2}, hidden: []}\n"
        "ppo: {gamma: 0.9, gae_lambda: 0.8}\nrollouts: 7\n"
    )
    config = assemble(
        ["--config", str(file), "--ppo.gae_lambda=0.7", "--actor.hidden", "8", "9", "--actor.frames", "3"]
    )
    assert config.env.id == "Acrobot-v1" and config.env.num_envs == 5
    assert config.env.kwargs == {"render_mode": None}
    assert (config.ppo.gamma, config.ppo.gae_lambda) == (0.9, 0.7)
    assert config.actor.hidden == (8, 9) and config.actor.memory.frames == 3
    assert (config.steps, config.rollouts) == (None, 7)
    seed_style = assemble(["-e", "Acrobot-v1", "--model-name", "ppo", "-ne", "4", "--cpu"])
    assert seed_style.rollouts == 4 and seed_style.device == "cpu"
    assert assemble(["--num_epochs", "3"]).rollouts == 3
    assert assemble(["--ppo.batch-size", "128"]).ppo.num_minibatches is None
    kwargs = assemble(["-e", "LunarLander-v3", "--env.kwargs.continuous", "true"]).env.kwargs
    assert kwargs == {"continuous": True}
    with pytest.raises(UsageError, match="unexpected argument 'ppo_stack'"):
        assemble(["--model", "ppo", "ppo_stack"])


def test_a_shared_critic_is_named_and_named_away() -> None:
    def critic(*flags: str):
        return assemble(["-e", "CartPole-v1", *flags]).critic

    assert critic("--critic", "shared").shared and not critic().shared
    again = critic("--critic", "shared", "--critic", "gru", "--critic.width", "5")
    assert not again.shared and again.memory == GruConfig(width=5)
    assert critic("--critic", "gru", "--critic", "shared").shared
    assert critic("-m", "ppo_lstm", "--critic=shared").shared
    assert critic("--critic.shared", "True").shared


@pytest.mark.parametrize("flags", [["-m", "ppo_gru"], ["--actor", "stack"], []])
def test_a_config_with_a_shared_critic_is_read_as_it_was(flags, tmp_path) -> None:
    from recollect.config.assembly import from_dict
    from recollect.config.data import read_yaml, to_dict, write_yaml

    flags = [*flags, "--critic", "shared", "--critic.head-hidden", "7", "--actor.reset", "False"]
    config = assemble(["-e", "CartPole-v1", *flags])
    assert config.critic.shared and not config.actor.shared and not config.actor.reset
    write_yaml(config, tmp_path / "c.yaml")
    assert from_dict(read_yaml(tmp_path / "c.yaml")) == config
    # As a checkpoint keeps it: keys in the order of the alphabet.
    assert from_dict(json.loads(json.dumps(to_dict(config), sort_keys=True))) == config
    file = ["--config", str(tmp_path / "c.yaml")]
    assert assemble(file) == config
    undone = assemble([*file, "--critic", config.critic.memory.name]).critic
    assert not undone.shared and undone.head_hidden == (7,)


def test_a_file_says_the_same_in_any_order(tmp_path) -> None:
    file = tmp_path / "c.yaml"
    for text in (
        "critic: {shared: true, memory: {name: gru, width: 9}}",
        "critic: {memory: {width: 9, name: gru}, shared: true}",
    ):
        file.write_text(f"env: {{id: CartPole-v1}}\n{text}\n")
        critic = assemble(["--config", str(file)]).critic
        assert critic.shared and critic.memory == GruConfig(width=9), text


def test_a_saved_config_is_read_as_it_was(run) -> None:
    from recollect.config.assembly import from_dict
    from recollect.config.data import read_yaml

    config = from_dict(read_yaml(run / "config.yaml"))
    again = assemble(["--config", str(run / "config.yaml")])
    assert config == again
    assert config.env.backend == "gymnasium" and config.barrier == 0 and config.threads == 1


def test_train_eval_and_list(tmp_path, monkeypatch, capsys) -> None:
    def output(*arguments: str) -> str:
        assert cli.main([*arguments]) == 0
        return capsys.readouterr().out

    result = recollect(
        "train", "CartPole-v1", "--steps", "3000", "--env.num-envs", "8", "--run-id", "a", "--seed", "7",
        "--threads", "1", cwd=tmp_path,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    assert "saved in runs/ppo/CartPole-v1/a" in result.stdout
    folder = "runs/ppo/CartPole-v1/a"
    assert metrics_of(tmp_path / folder)[-1]["step"] >= 3000
    monkeypatch.chdir(tmp_path)
    data = json.loads(output("eval", folder, "-ne", "7", "--json"))
    assert data["episodes"] == 7 == len(data["returns"])
    assert data["low"] <= data["mean"] <= data["high"]
    same = output("eval", "-f", f"{folder}/checkpoints/best.safetensors", "-ne", "3", "--sample")
    assert "3 episodes, sampling" in same
    assert "mean of last 2" in output("eval", folder, "-ne", "3", "--running-rew-len", "2")
    assert folder in output("list", "agents").replace("\n", "")
    for kind in ("envs", "presets", "memories"):
        assert output("list", kind)
    assert cli.main(["train", "CartPole-v1", "--run-id", "a"]) == 2
    assert "nothing is overwritten" in capsys.readouterr().err


# Commands whose last option takes an output folder.
INTO_FOLDERS = (
    "train CartPole-v1 --steps 1000 --out",
    "demo CartPole-v1 --steps 1000 --out",
    "compare -e CartPole-v1 -m ppo --steps 1000 --out",
    "compare -e CartPole-v1 -m ppo --steps 1000 --seeds 1 --report",
    "tune -e CartPole-v1 -m ppo --steps 1000 --out",
    "report RUN -o",
    "probe RUN -o",
)
# Commands whose last option takes an output file.
INTO_FILES = (
    "export RUN",
    "record RUN -o",
    "clone --teacher RUN -e CartPole-v1 --steps 1000 -o",
    "watch RUN -o",
    "eval RUN --render",
)


def refusal(command: str, run: Path, path: str, capsys) -> str:
    """The one line by which a command refuses an output path; it has written nothing."""
    before = sorted(Path().rglob("*"))
    words = [str(run) if word == "RUN" else word for word in command.split()]
    assert cli.main([*words, path]) == 2
    error: str = capsys.readouterr().err
    assert error.startswith("recollect: ") and error.count("\n") == 1
    assert sorted(Path().rglob("*")) == before
    return error


@pytest.mark.parametrize("path", ["README.md", "README.md/below"])
@pytest.mark.parametrize("command", INTO_FOLDERS)
def test_a_file_is_no_output_folder(command, path, run, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("README.md").touch()
    error = refusal(command, run, path, capsys)
    assert f"{path}: " in error and "README.md is a file, and a folder is needed" in error


@pytest.mark.parametrize("command", INTO_FOLDERS)
def test_a_folder_without_permission_is_named(command, run, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("theirs").mkdir()
    # The user of a test may be the superuser, who has every permission.
    monkeypatch.setattr(os, "access", lambda path, mode: "theirs" not in str(path))
    error = refusal(command, run, "theirs/new", capsys)
    assert "theirs/new: no permission to write into " in error


@pytest.mark.parametrize("command", INTO_FILES)
def test_a_folder_is_no_output_file(command, run, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    name = "folder.gif" if "--render" in command else "folder.html" if "watch" in command else "folder"
    Path(name).mkdir()
    error = refusal(command, run, name, capsys)
    assert f"{name} is a folder" in error or f"{name} cannot be written: Is a directory" in error


@pytest.mark.parametrize("command", INTO_FILES[3:])
def test_films_and_pages_make_their_folder_unless_it_is_a_file(
    command, run, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("README.md").touch()
    error = refusal(command, run, "README.md/x.gif", capsys)
    assert "README.md/x.gif: README.md is a file, and a folder is needed" in error


@pytest.mark.parametrize("command", INTO_FILES[:3])
def test_the_folder_of_an_output_file_is_there_and_writable(
    command, run, tmp_path, monkeypatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "nowhere is not a folder: create it" in refusal(command, run, "nowhere/agent", capsys)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "no permission to write into ." in refusal(command, run, "agent", capsys)


@pytest.mark.parametrize("suffix", ["gif", "mp4"])
def test_a_film_of_what_the_agent_does(run, tmp_path, suffix) -> None:
    pytest.importorskip("imageio_ffmpeg" if suffix == "mp4" else "PIL")
    film = tmp_path / f"film.{suffix}"
    assert cli.main(["eval", str(run), "--render", str(film)]) == 0
    head = film.read_bytes()[:12]
    assert head.startswith(b"GIF89a") if suffix == "gif" else b"ftyp" in head


@pytest.mark.parametrize("suffix", ["gif", "webp", "mp4"])
def test_a_film_is_written_without_holding_its_frames(tmp_path, suffix) -> None:
    """A thousand frames of LunarLander are 720 MB."""
    pytest.importorskip("imageio_ffmpeg" if suffix == "mp4" else "PIL")
    frames = (np.full((100, 500, 3), shade, dtype=np.uint8) for shade in range(100))  # 15 MB
    tracemalloc.start()
    try:
        write_film(tmp_path / f"film.{suffix}", frames, 25)
        assert tracemalloc.get_traced_memory()[1] < 3e6
    finally:
        tracemalloc.stop()
    assert (tmp_path / f"film.{suffix}").stat().st_size > 0


@pytest.mark.thorough
def test_a_film_says_nothing_of_screens(tmp_path) -> None:
    pytest.importorskip("PIL")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("SDL_", "XDG_"))}
    command = [*RECOLLECT, "eval", "random", "-e", "CartPole-v1", "--render", "film.gif", "-ne", "1"]
    process = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=clean, check=True)
    assert not process.stderr


@pytest.mark.thorough
def test_a_film_of_drawn_actions(run, tmp_path, capsys) -> None:
    pytest.importorskip("PIL")

    def output(*flags):
        assert cli.main(["eval", str(run), "--render", str(tmp_path / "film.gif"), "-ne", "4", *flags]) == 0
        return capsys.readouterr().out

    assert output("--sample") == output("--sample") != output()


def test_a_signal_saves_and_resume_goes_on(tmp_path, capsys) -> None:
    """Ctrl-C of the run that `train` began, SIGTERM of the one that `resume` began."""
    pipes = {"cwd": tmp_path, "stdout": subprocess.PIPE, "text": True}
    arguments = ("train", "CartPole-v1", "--steps", "20_000_000", "--run-id", "a", "--threads", "1")
    process = subprocess.Popen([*RECOLLECT, *arguments], **pipes)
    folder = tmp_path / "runs" / "ppo" / "CartPole-v1" / "a"
    _wait_for(lambda: (folder / "metrics.jsonl").exists() and len(metrics_of(folder)) > 2)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "stopped by SIGINT; recollect resume runs/ppo/CartPole-v1/a" in output
    steps = metrics_of(folder)[-1]["step"]
    again = subprocess.Popen([*RECOLLECT, "resume", str(folder)], **pipes)
    _wait_for(lambda: metrics_of(folder)[-1]["step"] > steps)
    assert cli.main(["resume", str(folder)]) == 2
    assert "in use by another process" in capsys.readouterr().err
    again.send_signal(signal.SIGTERM)
    output, _ = again.communicate(timeout=20)
    assert again.returncode == 143 and f"at step {int(steps):,}" in output and "stopped by SIGTERM" in output


def test_a_reason_of_several_lines_is_printed_as_one(monkeypatch, capsys) -> None:
    def refuse(*_: str) -> int:
        raise UsageError("EnvPool cannot build X: wrong arguments:\n    1. these\n\nGiven: those; try others")

    monkeypatch.setattr(cli, "run", refuse)
    assert cli.main(["train"]) == 2
    printed = capsys.readouterr().err
    assert (
        printed == "recollect: EnvPool cannot build X: wrong arguments: 1. these Given: those; try others\n"
    )


def test_ctrl_c_outside_of_a_run_leaves_no_traceback(monkeypatch, capsys) -> None:
    def interrupted(options: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("recollect.run.bench.run_bench", interrupted)
    assert cli.main(["bench", "CartPole-v1"]) == 130
    assert capsys.readouterr() == (
        "",
        "recollect: stopped by SIGINT; unfinished output is not written\n",
    )


def test_a_second_signal_ends_at_once(tmp_path) -> None:
    script = (
        "import os, signal, time\nfrom recollect.common.signals import Signals\n"
        "with Signals():\n    os.kill(os.getpid(), signal.SIGTERM)\n    print('noted', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n    print('not reached', flush=True)\n"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 143 and result.stdout == "noted\n"


def test_signal_handlers_of_others_come_back(tmp_path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    run_quietly(small_config(rollouts=1), tmp_path)
    assert signal.getsignal(signal.SIGTERM) is before


def _wait_for(condition, limit: float = 30.0) -> None:
    end = time.monotonic() + limit
    while time.monotonic() < end:
        try:
            if condition():
                return
        except (ValueError, OSError):  # a line is being written
            pass
        time.sleep(0.05)
    raise AssertionError("waited in vain")


def test_the_display_is_lines_without_a_terminal_and_a_panel_on_one(tmp_path) -> None:
    import io

    from rich.console import Console

    from recollect.run.display import PanelDisplay

    stream = io.StringIO()
    screen = PanelDisplay("a run", Console(file=stream, force_terminal=True, width=100))
    row = dict.fromkeys(
        ("policy_loss", "value_loss", "entropy", "kl", "explained_variance", "length"), 0.5
    ) | {"step": 1000, "sps": 5e4, "episodes": 120, "time": 3.0}
    for i in range(12):
        screen.show({**row, "return": float(i)}, 0.5 + i / 24)
    screen._next = 0.0
    screen.show({**row, "return": 20.0}, 1.0)
    screen.close()
    text = stream.getvalue()
    assert "a run" in text and "100%" in text and "50,000" in text and "↑" in text and "█" in text
    # A long title takes the room of the bar, not of the time left.
    stream = io.StringIO()
    title = "ppo_gru-critic_shared  minigrid:MiniGrid-MemoryS9-v0  seed 1"
    screen = PanelDisplay(title, Console(file=stream, force_terminal=True, width=80))
    screen.show({**row, "return": 1.0}, 0.5)
    screen.close()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())
    assert re.search(rf"{title}.*50%  left 3s", plain)


@pytest.mark.parametrize("refresh", [False, True])
@pytest.mark.parametrize("amp", [None, "bf16"])
def test_an_estimate_computes_as_a_run_would(refresh, amp, monkeypatch) -> None:
    seen = set()
    learn, refreshed = bench.learn, ppo.refreshed

    def learns(learner: Learner, *rest: object) -> object:
        seen.add("bf16" if learner.agent.bf16 else None)
        return learn(learner, *rest)

    def refreshes(*arguments: object) -> object:
        seen.add("refreshed")
        return refreshed(*arguments)

    monkeypatch.setattr(bench, "learn", learns)
    monkeypatch.setattr(ppo, "refreshed", refreshes)
    config = small_config(amp=amp, kernels="torch")
    state = "refresh" if refresh else "stored"
    config = replace(config, ppo=replace(config.ppo, chunk_state=state))
    assert bench.estimate_seconds(config, 0.01) > 0
    assert seen == {amp, *(["refreshed"] if refresh else [])}


def test_bench_says_that_its_figures_are_of_one_run(monkeypatch, capsys) -> None:
    monkeypatch.setattr("recollect.run.bench.SECONDS", 0.1)
    assert cli.main(["bench", "CartPole-v1", "--seed", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "one run of 0.1 s, seed 3: medians over its rollouts; other runs differ"


def test_every_extra_that_errors_name_exists() -> None:
    """And nothing words the installation of an extra by itself."""
    root = Path(__file__).parents[2]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    sources = {path: path.read_text() for path in (root / "src").rglob("*.py")}
    names = [name for text in sources.values() for name in re.findall(r"install_hint\('(\w+)'\)", text)]
    assert len(names) > 10 and set(names) <= set(extras)
    assert [path.name for path, text in sources.items() if "pip install -e" in text] == ["errors.py"]
    assert install_hint("fast") == "pip install 'recollect-rl[fast]', or in a clone pip install -e '.[fast]'"
