"""The files of an earlier version that test_compat.py loads, evaluates and resumes.

    git worktree add ../old a23062d
    PYTHONPATH=../old/src python -m tests.compat

writes them into this folder. They show that later versions read what that version wrote, so no later version
may write them again. Where a format changes on purpose, files of the new version go beside them. So do what
had not been kept, written by a460bbd:

    python -m tests.compat later

A memory whose weights changed has an agent of the later version as well:

    python -m tests.compat renewed

lstm/unfinished    killed in its 8th rollout of 12; the last checkpoint is of the 6th
gtrxl/unfinished   stopped by SIGTERM in its 5th rollout of 12; shared critic, options other than the defaults
*/finished         the same run without an interruption
agents/            an exported agent of each memory
study.yaml         a study, and in study.json the hashes that the version gave to its runs; written by hand
expected.json      returns of evaluation episodes of the finished runs and of the agents
later/             agents of the other memories; the journal of a tuning study, and its result
later.json         returns of these agents, with packages and machine
renewed/           agents of memories that got other weights; those of before, in later/, are refused
renewed.json       as later.json
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from itertools import count
from pathlib import Path

from gymnasium.envs.classic_control.cartpole import CartPoleVectorEnv

import recollect
from recollect.tuning.tune import tune

HERE = Path(__file__).parent
SEED, EPISODES = 4, 5
ENVS, STEPS = 4, 64
BRANCHES = ("actor", "critic")
SMALL = {"env.num_envs": ENVS, "env.threads": 1, "ppo.num_steps": STEPS, "threads": 1}
XL = {"width": 6, "layers": 1, "heads": 2, "context": 6}
GPT2 = {"width": 6, "layers": 1, "heads": 2, "context": 6, "positions": 32, "tokens": "interleaved"}


def remember(actor, critic, **options):
    """Memories of actor and critic, with the same options where they are the same memory."""
    branches = BRANCHES if critic == actor else BRANCHES[:1]
    named = {"actor": actor, "critic": critic}
    return named | {f"{branch}.memory.{key}": x for branch in branches for key, x in options.items()}


def widths(layers):
    """Layers of 8 units, before the memory (hidden) or after it (head_hidden)."""
    return {f"{branch}.{layers}": (8,) for branch in BRANCHES}


LSTM = remember("lstm", "lstm", width=8) | {
    "ppo.learning_rate": 2e-3,
    "rollouts": 12,
    "save_interval": 3,
    "keep": 1,
    "val_check_interval": 4,
    "val_episodes": 2,
}
GTRXL = remember("gtrxl", "shared", **XL, positions="absolute", norm="post", gradient=4, gate_bias=1.0) | {
    "ppo.bptt": 16,
    "ppo.chunk_state": "refresh",
    "ppo.clip_value": 0.2,
    "ppo.learning_rate": 2e-3,
    "rollouts": 12,
    "save_interval": 3,
    "keep": 1,
    "val_check_interval": 0,
}
RUNS = {
    "lstm": ("CartPole-v1", "ppo_lstm", SMALL | widths("head_hidden") | LSTM),
    "gtrxl": ("CartPoleMasked", "ppo_gtrxl", SMALL | widths("head_hidden") | GTRXL),
}
# The signal that a run gets, and the time step of training at which it gets it.
SIGNALS = {"lstm": (signal.SIGKILL, 7 * STEPS + 30), "gtrxl": (signal.SIGTERM, 4 * STEPS + 30)}
AGENTS = {
    "mlp": ("CartPole-v1", remember("mlp", "mlp")),
    "stack": ("CartPoleMasked", remember("stack", "stack", frames=3)),
    "late_stack": ("CartPoleNoVel-v1", remember("late_stack", "late_stack", frames=2)),
    "gru": ("Pendulum-v1", remember("gru", "mlp", width=8, keep=0.5) | {"env.backend": "gymnasium"}),
    "lstm": ("poc", remember("lstm", "mlp", width=8, layers=2)),
    "mingru": ("CartPole-v1", remember("mingru", "mlp", width=8, layers=2)),
    "gpt2": ("CartPoleMasked", remember("gpt2", "mlp", **GPT2)),
    "trxl": ("probe:recall", remember("trxl", "mlp", **XL)),
    "gtrxl": ("CartPole-v1", remember("gtrxl", "shared", **XL)),
}
LATER = {
    name: ("CartPoleMasked", remember(name, "mlp", **options))
    for name, options in {
        "rnn": {"width": 8},
        "indrnn": {"width": 8},
        "lmu": {"width": 8, "order": 4, "theta": 16},
        "lru": {"width": 8, "units": 6},
        "ffm": {"width": 8},
        "mamba": {"width": 8},
        "linear_attention": {"width": 8},
        "deltanet": {"width": 8},
        "mlstm": {"width": 8},
        "slstm": {"width": 8},
        "shm": {"width": 8},
    }.items()
}
RENEWED = {"shm": LATER["shm"]}
TUNED = {"env": "probe:match", "trials": 3, "seeds": 1, "steps": 600, "jobs": 1, "quiet": True}


def train(env, model, options, out):
    """The folder of a run."""
    return recollect.train(env, model, seed=SEED, options=options, out=out, run_id="run", quiet=True).folder


def interrupted(name, out):
    """Train until this process sends a signal to itself."""
    number, last = SIGNALS[name]
    step, steps = CartPoleVectorEnv.step, count(1)

    def counted(self, action):
        # Validation has fewer environments.
        if self.num_envs == ENVS and next(steps) == last:
            os.kill(os.getpid(), number)
        return step(self, action)

    CartPoleVectorEnv.step = counted
    train(*RUNS[name], out)


def keep(folder, target):
    """Copy a run folder, without the name of the machine in that of the file of events."""
    shutil.copytree(folder, target)
    for path in target.glob("events.*"):
        path.rename(target / ".".join([*path.name.split(".")[:4], "host"]))


def make_runs(scratch):
    """Train every run twice: interrupted, and in one go."""
    for name in RUNS:
        shutil.rmtree(HERE / name, ignore_errors=True)
        command = [sys.executable, "-m", "tests.compat", name, str(scratch / "interrupted")]
        subprocess.run(command, check=False)
        (config,) = (scratch / "interrupted" / RUNS[name][1]).rglob("config.yaml")
        keep(config.parent, HERE / name / "unfinished")
        keep(train(*RUNS[name], scratch / "straight"), HERE / name / "finished")


def make_agents(scratch, agents, target):
    """Train and export an agent of each memory; the folder of the last run."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for name, (env, options) in agents.items():
        short = {"ppo.learning_rate": 1e-2, "rollouts": 12, "val_check_interval": 0}
        options = SMALL | widths("hidden") | options | short
        folder = train(env, "ppo", options, scratch / "agents" / name)
        words = ["export", str(folder), str(target / f"{name}.safetensors")]
        subprocess.run([sys.executable, "-m", "recollect", *words], check=True)
    return folder


def returns(paths):
    """The returns of evaluation episodes of agents."""
    return {str(path.relative_to(HERE)): recollect.load(path).evaluate(EPISODES).returns for path in paths}


def facts(folder):
    """Packages and machine of a run: with the same ones a run of the same code is equal bit for bit."""
    summary = json.loads((folder / "summary.json").read_text())
    return {**summary["versions"], "recollect": None, "processor": summary["processor"]}


def make_all():
    """Write all files of the first set."""
    with tempfile.TemporaryDirectory() as folder:
        make_runs(Path(folder))
        make_agents(Path(folder), AGENTS, HERE / "agents")
    expected = returns(sorted([*HERE.glob("*/finished"), *HERE.glob("agents/*")]))
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


def make_later():
    """Write all files of the second set."""
    make_set("later", LATER)
    with tempfile.TemporaryDirectory() as scratch:
        tune(**TUNED, out=str(Path(scratch) / "tuned"))
        for name in ("journal.log", "tune.json"):
            (path,) = (Path(scratch) / "tuned").rglob(name)
            shutil.copy(path, HERE / "later" / name)


def make_set(name, agents):
    """Write a folder of agents, and beside it their returns, with packages and machine."""
    with tempfile.TemporaryDirectory() as scratch:
        run = make_agents(Path(scratch), agents, HERE / name)
        expected = {"facts": facts(run), "returns": returns(sorted(HERE.glob(f"{name}/*.safetensors")))}
    (HERE / f"{name}.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            make_all()
        case ["later"]:
            make_later()
        case ["renewed"]:
            make_set("renewed", RENEWED)
        case [name, out]:
            interrupted(name, out)
