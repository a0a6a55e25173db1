"""What surrounds a run: its folder, the process that it is in, and weights that are of no use."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import warnings
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

import recollect
from recollect import cli
from recollect.agent.player import Player
from recollect.common.errors import EnvFailedError, UsageError
from recollect.run import checkpoint, film
from recollect.run.destination import Destination
from recollect.run.run import start_run
from recollect.run.teaching import record_episodes

from ..envs.test_misbehaving import Counter, FailsToReset
from ..helpers import run_quietly, small_config


class Moves(Counter):
    """Changes the working folder, as some simulators do."""

    def __init__(self, folder):
        os.chdir(folder)


class Unseeded(Counter):
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.draw = float(np.random.default_rng().uniform())
        return self.look(), {}


def test_no_worker_process_outlives_a_run_that_is_refused_fails_or_is_finished(tmp_path):
    before = set(multiprocessing.active_children())
    config = small_config("callable-Counter", "workers", rollouts=2)

    def train(factory=Counter, run_id="run"):
        return start_run(config, Destination(out=tmp_path, run_id=run_id, quiet=True), factory)

    trained = train()
    with pytest.raises(UsageError, match="exists, and nothing is overwritten"):
        train()
    with pytest.raises(EnvFailedError, match="no licence"):
        train(FailsToReset, "failed")
    recollect.resume(trained.folder, env=Counter, quiet=True)  # it is finished
    assert set(multiprocessing.active_children()) == before


def test_an_environment_that_changes_the_working_folder_moves_no_file(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)

    def env():
        return Moves(tmp_path / "elsewhere")

    options = {"env.num_envs": 2, "ppo.num_steps": 16, "ppo.num_minibatches": 2, "rollouts": 2, "steps": None}
    trained = recollect.train(env, options=options, out="runs", run_id="a", quiet=True)
    assert (tmp_path / "runs" / "ppo" / "callable-env" / "a" / "summary.json").exists()
    assert list((tmp_path / "elsewhere").iterdir()) == [] and trained.episodes() is not None


@pytest.mark.parametrize(
    ("command", "file"),
    [
        ("record RUN --episodes 2 -o", "a.npz"),
        ("watch RUN --episodes 1 --shown 1 -o", "a.html"),
        ("eval RUN -ne 1 --render", "a.gif"),
        ("clone --teacher RUN --steps 100 --env.num-envs 2 --env.backend gymnasium -o", "a.safetensors"),
    ],
)
def test_a_file_is_where_the_user_was(command, file, tmp_path, monkeypatch):
    trained = run_quietly(small_config("LunarLander-v3", rollouts=1), tmp_path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    built = gymnasium.make

    def make(*arguments, **options):
        os.chdir(tmp_path / "elsewhere")  # as some simulators do
        return built(*arguments, **options)

    monkeypatch.setattr(gymnasium, "make", make)
    words = [str(trained.folder) if word == "RUN" else word for word in command.split()]
    assert cli.main([*words, file, "-e", "LunarLander-v3"]) == 0
    assert Path.cwd().name == "elsewhere"  # the control
    assert (tmp_path / file).exists() and list((tmp_path / "elsewhere").iterdir()) == []


def test_an_agent_in_a_callable_gets_no_arguments_of_its_training_and_the_name_of_the_callable(tmp_path):
    config = small_config("LunarLander-v3", rollouts=1)
    trained = run_quietly(replace(config, env=replace(config.env, kwargs={"gravity": -9.0})), tmp_path)

    def moon():
        return gymnasium.make("LunarLander-v3")

    evaluation = recollect.load(trained.folder, env=moon).evaluate(2)
    assert "moon" in evaluation.env and evaluation.task["kwargs"] == {}


def test_an_environment_that_does_not_repeat_is_found_at_the_start(tmp_path):
    with pytest.warns(UserWarning, match="Unseeded does not repeat from its seed, so this run"):
        run_quietly(small_config("unseeded", rollouts=1), tmp_path, factory=Unseeded)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run_quietly(small_config("counter", rollouts=1), tmp_path, factory=Counter)


def test_weights_that_are_not_finite_are_named_when_they_are_loaded(tmp_path):
    folder = run_quietly(small_config(rollouts=1), tmp_path).folder
    path = folder / "checkpoints" / "last.safetensors"
    tensors, meta = checkpoint.read(path)
    name = next(name for name in tensors if name.startswith("agent.actor"))
    checkpoint.write(path, tensors | {name: tensors[name] * torch.nan}, meta)
    with pytest.warns(UserWarning, match=r"last\.safetensors: some weights are not finite"):
        recollect.load(folder)


def test_training_leaves_the_threads_of_torch_as_they_were(tmp_path):
    torch.set_num_threads(2)
    try:
        trained = run_quietly(small_config(rollouts=1), tmp_path)
        assert torch.get_num_threads() == 2
        trained.evaluate(2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_episodes_are_played_with_one_thread_of_torch_which_are_then_as_before(tmp_path, monkeypatch):
    trained, threads = run_quietly(small_config(rollouts=1), tmp_path), set()
    act = Player.act

    def counted(*args):
        threads.add(torch.get_num_threads())
        return act(*args)

    monkeypatch.setattr(Player, "act", counted)
    monkeypatch.setattr(film, "_render", lambda envs, env: np.zeros((8, 8, 3), np.uint8))
    uses = {
        "evaluate": lambda: trained.evaluate(2),
        "record": lambda: record_episodes(trained, 2),
        "render": lambda: film.render(trained.agent, trained.config.env, str(tmp_path / "x.gif"), 1, 0),
        "probe": lambda: recollect.probe(trained, 10),
        "watch": lambda: recollect.watch(trained, tmp_path / "x.html", episodes=1),
    }
    for name, use in uses.items():
        threads.clear()
        torch.set_num_threads(2)
        try:
            use()
            assert (name, threads, torch.get_num_threads()) == (name, {1}, 2)
        finally:
            torch.set_num_threads(1)


def test_a_second_thread_that_trains_is_refused(tmp_path):
    errors: list[BaseException] = []

    def other():
        try:
            run_quietly(small_config(rollouts=1), tmp_path, "b")
        except UsageError as error:
            errors.append(error)

    def during(update):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()

    run_quietly(small_config(rollouts=1), tmp_path, "a", on_rollout=during)
    assert "another thread of this process trains" in str(errors[0])
    other()  # and afterwards it may
    assert len(errors) == 1


@pytest.mark.parametrize("backend", ["gymnasium", "workers"])
def test_a_run_in_another_thread_than_the_main_one_works(backend, tmp_path):
    config = small_config("CartPole-v1", backend, rollouts=2, barrier=1)
    thread = threading.Thread(target=lambda: run_quietly(config, tmp_path))
    thread.start()
    thread.join()
    assert (tmp_path / "ppo" / "CartPole-v1" / "run" / "checkpoints" / "last.safetensors").exists()


@pytest.mark.thorough
def test_a_run_whose_reader_leaves_goes_to_its_end(tmp_path):
    out = ["--out", str(tmp_path), "--run-id", "a", "--env.num-envs", "2", "--ppo.num-steps", "16"]
    command = [sys.executable, "-m", "recollect", "train", "CartPole-v1", "--rollouts", "300", *out]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        run.stdout.readline()
        run.stdout.close()
        error = run.stderr.read().decode()
        assert run.wait(60) == 0 and error == ""
    summary = (tmp_path / "ppo" / "CartPole-v1" / "a" / "summary.json").read_text()
    assert '"status": "finished"' in summary


def test_a_listing_whose_reader_leaves_ends_as_programs_do():
    reader, writer = os.pipe()
    os.close(reader)  # it left before the first line
    command = [sys.executable, "-m", "recollect", "list", "envs"]
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True)
    os.close(writer)
    # No traceback; 141 by us, 1 by rich.
    assert result.returncode in (141, 1) and result.stderr == ""


def test_a_log_on_a_full_disk_ends_no_run(tmp_path):
    out = ["--out", str(tmp_path), "--run-id", "a", "--env.num-envs", "2", "--ppo.num-steps", "16"]
    command = [sys.executable, "-m", "recollect", "train", "CartPole-v1", "--rollouts", "20", *out]
    with open("/dev/full", "w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    summary = (tmp_path / "ppo" / "CartPole-v1" / "a" / "summary.json").read_text()
    assert '"status": "finished"' in summary


# One line for each ---------------------------------------------------------------------------------


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
LINES = {
    "threads": (["train", "CartPole-v1", "--threads", "100000"], "threads is 100000, at most 1024"),
    "EnvPool threads": (
        ["train", "CartPole-v1", "--env.threads", "100000"],
        "env.threads is 100000, at most 1024",
    ),
    "negative threads": (["train", "CartPole-v1", "--env.threads", "-1"], "env.threads is -1"),
    "seeds": (["compare", "-e", "poc", "-m", "ppo", "--seeds", "99999999999"], "at most 10,000"),
    "a misspelled branch": (["train", "CartPole-v1", "--actr.memory.name", "gru"], "unknown option --actr"),
    "Atari": (["train", "ALE/Pong-v5"], "take atari:Pong, which has the usual preprocessing; pip install"),
    "POPGym's own id": (["train", "popgym-RepeatFirstEasy-v0"], "use popgym:RepeatFirstEasy"),
    "a callable": (
        ["train", "callable-TimeLimit"],
        "in Python, or an id as -e my_module:MyEnv-v0",
    ),
    "negative seed": (["eval", "random", "-e", "poc", "--seed", "-1"], "--seed is -1, at least 0"),
    "run id": (["train", "poc", "--run-id", ".."], "--run-id '..' is not the name of one folder"),
    "address": (["train", "poc", "--out", "s3://x/y"], "runs need locks"),
    "huge": (["train", "poc", "--actor.hidden", "100000000000"], "recollect: "),
}


@pytest.mark.parametrize("name", LINES)
def test_bad_input_is_one_line(name, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for imported in ("popgym-RepeatFirstEasy-v0", "ALE/Pong-v5"):
        monkeypatch.delitem(gymnasium.registry, imported, raising=False)
    command, message = LINES[name]
    assert cli.main(command) in (1, 2)
    error = capsys.readouterr().err
    assert message in error and error.startswith("recollect: ") and error.count("\n") == 1


FILES = {
    "alias bomb": (BOMB, "its aliases expand to"),
    "an alias of itself": ("a: &a [*a]\n", "contains itself by an alias"),
    "deep": ("a: " + "[" * 3000 + "\n", "config file"),
    "a misspelled branch": ("actr: {memory: {name: gru}}\nenv: {id: poc}\n", "unknown option"),
    "misspelled with dots": ("actr.memory.name: gru\nenv.id: poc\n", "unknown option"),
    "an impossible date": ("a: 2001-99-99\nenv.id: poc\n", "config file"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_bad_config_file_is_one_line(name, capsys, tmp_path):
    text, message = FILES[name]
    file = tmp_path / "x.yaml"
    file.write_text(text)
    assert cli.main(["train", "--config", str(file)]) == 2
    error = capsys.readouterr().err
    assert message in error and error.startswith("recollect: ") and error.count("\n") == 1


# A stranger's file imports nothing -----------------------------------------------------------------


@pytest.fixture
def stranger(tmp_path, monkeypatch):
    """A module that must not be imported unless it is named."""
    (tmp_path / "stranger_module.py").write_text(
        "import gymnasium, pathlib\n"
        f"pathlib.Path({str(tmp_path / 'touched')!r}).touch()\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "from recollect.memory.rnn import GruConfig as Base\n"
        "class Config(Base): pass\n"
        "gymnasium.register('Strange-v0', CartPoleEnv, max_episode_steps=20)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("stranger_module", None)
    gymnasium.registry.pop("Strange-v0", None)


ENV, MEMORY = "stranger_module:Strange-v0", "stranger_module:Config"
FOREIGN = {
    "train": (["train", "--config"], f"env.id: {ENV}\n"),
    "train with a memory": (["train", "--config"], f"env.id: CartPole-v1\nactor.memory.name: {MEMORY}\n"),
    "compare": (["compare"], f"environments: [{ENV}]\nmodels: [ppo]\n"),
    "compare with a memory": (
        ["compare"],
        f"environments: [CartPole-v1]\nmodels: [{{model: ppo, actor: '{MEMORY}'}}]\n",
    ),
    "tune": (
        ["tune", "-e", "CartPole-v1", "-m", "ppo", "--steps", "100", "--dry-run", "--space"],
        f"memory.name: ['{MEMORY}']\n",
    ),
    "tune with an encoder": (
        ["tune", "-e", "CartPole-v1", "-m", "ppo", "--steps", "100", "--dry-run", "--space"],
        f"actor.encoder.name: ['{MEMORY}']\n",
    ),
    "train with an encoder": (["train", "--config"], f"rollouts: 1\ncritic.encoder.name: '{MEMORY}'\n"),
    "compare with an encoder": (
        ["compare"],
        f"environments: [CartPole-v1]\nmodels: [{{model: ppo, actor.encoder: '{MEMORY}'}}]\n",
    ),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_file_imports_no_module_that_the_user_did_not_name(name, stranger, capsys):
    command, text = FOREIGN[name]
    file = stranger / "file.yaml"
    file.write_text(text)
    code = cli.main([*command, str(file)])
    error = capsys.readouterr().err
    assert code == 2 and "which imports a module: allow it with" in error, error
    assert not (stranger / "touched").exists() and "stranger_module" not in sys.modules


@pytest.mark.parametrize("place", ["models: [{model: ppo, config: %s, imports: %s}]", "options"])
def test_a_study_allows_nothing_to_the_config_that_it_names(place, stranger, capsys):
    config, study = stranger / "config.yaml", stranger / "study.yaml"
    config.write_text(f"actor.encoder.name: {MEMORY}\n")
    models = "models: [{model: ppo, config: %s}]\noptions: {import: %s}" if place == "options" else place
    text = f"environments: [CartPole-v1]\n{models % (config, MEMORY)}\n"
    study.write_text(text)
    assert cli.main(["compare", str(study), "--dry-run"]) == 2
    assert "only the command line allows a module to be imported" in capsys.readouterr().err
    assert not (stranger / "touched").exists()


@pytest.mark.parametrize("flag", ["--actor.memory.name", "-e"])
def test_a_value_of_a_space_file_sets_no_other_option(flag, stranger, capsys):
    space = stranger / "space.yaml"
    space.write_text(f"hidden: ['64 {flag} {MEMORY}']\n")
    command = ["tune", "-e", "CartPole-v1", "-m", "ppo", "--steps", "100", "--dry-run", "--space", str(space)]
    assert cli.main(command) == 2
    error = capsys.readouterr().err
    assert f"a value has no words that begin with a hyphen, as {flag}" in error and error.count("\n") == 1
    assert not (stranger / "touched").exists()


def test_a_file_imports_what_the_user_names(stranger, capsys):
    file = stranger / "file.yaml"
    file.write_text(f"env.id: {ENV}\nactor.memory.name: {MEMORY}\nrollouts: 1\n")
    out = ["--out", str(stranger / "runs"), "--quiet"]
    assert cli.main(["train", "--config", str(file), "--imports", ENV, MEMORY, *out]) == 0
    assert (stranger / "touched").exists()
    study = stranger / "study.yaml"
    study.write_text(f"environments: [{ENV}]\nmodels: [ppo]\nseeds: 1\noptions: {{rollouts: 1}}\n")
    assert cli.main(["compare", str(study), "--imports", ENV, "--dry-run", *out]) == 0


@pytest.fixture
def foreign(stranger):
    """An agent with a memory of the module, and one without, in its environment; the module is forgotten."""
    options = {"env.num_envs": 4, "ppo.num_steps": 16, "ppo.num_minibatches": 2, "rollouts": 1}
    memories = {"strange": MEMORY, "plain": "mlp"}
    for name, memory in memories.items():
        out = {"out": stranger / "runs", "run_id": name, "quiet": True}
        recollect.train(ENV, options=options | {"actor": memory}, **out)
    sys.modules.pop("stranger_module")
    gymnasium.registry.pop("Strange-v0")
    (stranger / "touched").unlink()
    return [str(next((stranger / "runs").glob(f"*/*/{name}"))) for name in memories]


@pytest.mark.parametrize("command", ["clone", "watch"])
def test_another_agent_imports_the_environment_of_the_command_and_no_memory_that_is_not_named(
    command, foreign, stranger, capsys
):
    strange, plain = foreign
    commands = {
        "clone": ["clone", "--teacher", strange, "-e", ENV, "-m", "ppo", "--steps", "200", "-o"],
        "watch": ["watch", plain, "--beside", strange, "-e", ENV, "--episodes", "1", "-o"],
    }
    words = [*commands[command], str(stranger / ("page.html" if command == "watch" else "a.safetensors"))]
    assert cli.main(words) == 2
    assert f"{MEMORY}, which imports a module: allow it with --imports" in capsys.readouterr().err
    assert cli.main([*words, "--imports", MEMORY]) == 0
    assert (stranger / "touched").exists()


def test_the_command_that_a_stopped_run_names_resumes_it(stranger, monkeypatch, capsys):
    monkeypatch.chdir(stranger)

    def train(on_rollout=None):
        options = {"actor": MEMORY, "env.num_envs": 4, "ppo.num_steps": 16, "ppo.num_minibatches": 2}
        recollect.train(ENV, options=options | {"rollouts": 3}, run_id="a", on_rollout=on_rollout)

    train(lambda update: os.kill(os.getpid(), signal.SIGINT))
    stopped = capsys.readouterr().out.splitlines()[-1]
    flags = f"-e {ENV} --imports {MEMORY}"
    assert stopped.startswith("stopped by SIGINT; recollect resume runs/") and stopped.endswith(flags)
    with pytest.raises(UsageError, match=rf"exists, .*: recollect resume runs/\S* {flags}, or another"):
        train()
    assert cli.main(stopped.split("; recollect ")[1].split()) == 0
    assert "steps in" in capsys.readouterr().out
