"""`recollect demo ENV`: train for about a minute, evaluate beside a random agent, plot both."""

import importlib.util
import json
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from ..common.errors import UsageError, install_hint
from ..common.option_values import Setting, Settings
from ..config.assembly import configure
from ..config.config import RunConfig
from ..config.flags import last
from ..config.presets import names_of
from ..envs import EnvConfig
from ..run import film
from ..run.destination import Destination
from ..run.evaluate import Evaluation, evaluate
from ..run.run import Trained, start_run
from .train import destination

LANDER = "LunarLander-v3"
# Training steps that take at most about a minute on two cores, by task or suite.
STEPS = {
    "CartPole": 200_000,
    "CartPoleMasked": 200_000,
    "CartPoleNoVel": 100_000,
    "Acrobot": 500_000,
    "LunarLander": 500_000,
    "LunarLanderContinuous": 1_000_000,
    "BipedalWalker": 200_000,
    "CarRacing": 20_000,
    "HalfCheetah": 300_000,
    "Hopper": 300_000,
    "Walker2d": 300_000,
    "Ant": 200_000,
    "Pendulum": 300_000,
    "PendulumNoVel": 300_000,
    "MountainCarContinuous": 300_000,
    "MountainCarContinuousNoVel": 300_000,
    "poc": 100_000,
    "tmaze": 200_000,
    "minigrid": 400_000,
    "MemoryS17Random": 400_000,
    "popgym": 500_000,
    "memory_gym": 50_000,
    "meta": 300_000,
    "atari": 10_000,
    "CliffWalking": 500_000,
    "CliffWalkingSlippery": 500_000,
    "FrozenLake": 500_000,
    "FrozenLake8x8": 500_000,
    "Taxi": 500_000,
}
OTHER_STEPS = 100_000  # of other tasks
TRANSFORMERS, SLOWDOWN = {"gpt2", "trxl", "gtrxl"}, 5  # their training takes that many times as long
# Suites and suffixes of tasks that need a memory: there the model is ppo_gru.
MEMORY_SUITES = ("poc", "tmaze", "minigrid", "popgym", "memory_gym")
MEMORY_SUFFIXES = ("Masked", "NoVel")


@dataclass(frozen=True, kw_only=True)
class DemoOptions(Destination):
    """Train an agent for about a minute on two CPU cores, evaluate it beside a random agent over 100
    episodes each, plot both, and film one episode.

      recollect demo                      LunarLander-v3
      recollect demo CartPole-v1
      recollect demo poc -m ppo_lstm
      recollect demo Pendulum-v1 --steps 1e5
    """

    POSITIONAL: ClassVar = ("env.id",)

    settings: Settings


def run_demo(options: DemoOptions) -> int:
    """Check the requirements, train, evaluate beside a random agent, write a picture and a film."""
    config = run_config(options.settings)
    no_film = check_requirements(config.env)
    if no_film:
        print(f"no film: {no_film}")
    trained = start_run(config, destination(options))
    status = trained.summary["status"]
    if status != "finished":
        return 143 if status == "SIGTERM" else 130
    print("\nevaluating both agents over 100 episodes ...")
    agent, random = trained.evaluate(), evaluate(None, trained.config.env, name="random")
    for name, result in (("trained", agent), ("random", random)):
        print(f"  {name:<8} {format_scores(result)}")
    print(scope_note(trained.config, options.settings))
    picture = trained.folder / "curve.png"
    draw(trained, agent, random, picture)
    print(f"\nthe curve     {picture}")
    if not no_film:
        path = trained.folder / "episode.gif"
        film.render(trained.agent, trained.config.env, str(path), 1, 0)
        print(f"an episode    {path}")
    print(f"the run       {trained.folder}\nwatch it      recollect watch {trained.folder}")
    return 0


def run_config(settings: Settings) -> RunConfig:
    """The run, with an environment, a model and a budget where none is given."""
    names = {setting.name for setting in settings}
    if "config" in names:
        return configure(settings)
    env_id = last(settings, "env.id") or LANDER
    defaults = [Setting("env.id", env_id, "env.id"), Setting("model", default_model(env_id), "model")]
    config = configure([*defaults, *settings])
    return config if names & {"steps", "rollouts"} else replace(config, steps=default_steps(config))


def default_model(env_id: str) -> str:
    """ppo, or ppo_gru where the task is known to need a memory."""
    suite, _, name = env_id.rpartition(":")
    task = name.partition("-")[0]
    needs_memory = suite in MEMORY_SUITES or task in MEMORY_SUITES or task.endswith(MEMORY_SUFFIXES)
    return "ppo_gru" if needs_memory else "ppo"


def default_steps(config: RunConfig) -> int:
    """Training steps that take at most about a minute on two cores."""
    steps = next((STEPS[name] for name in names_of(config.env.id) if name in STEPS), OTHER_STEPS)
    transformers = {config.actor.memory.name, config.critic.memory.name} & TRANSFORMERS
    return steps // SLOWDOWN if transformers else steps


def check_requirements(env: EnvConfig) -> str:
    """Raise if a package is missing, before minutes of training; the reason why there is no film, or ""."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(f"the picture of the demo needs matplotlib: {install_hint('plot')}")
    with film.no_display():
        envs = film.make_single_env(env)
        try:
            reason = film.unrenderable_reason(envs)
        finally:
            envs.adapter.close()
    if not reason and importlib.util.find_spec("PIL") is None:
        raise UsageError(f"the film of the demo needs Pillow: {install_hint('video')}")
    return reason


def format_scores(result: Evaluation) -> str:
    """The mean return, its confidence interval over the episodes, and the success rate if reported."""
    s = result.summary()
    success = "" if s["success"] is None else f"   success {s['success']:.0%}"
    equal = f"all {s['episodes']} returns are equal"
    interval = equal if s["low"] is None else f"95 % interval {s['low']:.1f} to {s['high']:.1f}"
    return f"mean return {s['mean']:8.1f}   {interval}{success}"


def scope_note(config: RunConfig, settings: Settings) -> str:
    """The scope of the figures, and the command for more seeds with the options of the demo."""
    budget = f"--steps {config.steps}" if config.rollouts is None else f"--rollouts {config.rollouts}"
    named = {"env.id", "model", "seed", "steps", "rollouts"}
    others = [word for one in settings if one.name not in named for word in (one.label, *one.value)]
    return (
        f"One seed ({config.seed}): the intervals are over its episodes, and other seeds differ:\n"
        f"  {shlex.join(['recollect', 'compare', '-e', config.env.id, '-m', config.model, *others])} "
        f"--seeds 5 {budget}"
    )


# The figure -----------------------------------------------------------------------------------


def draw(trained: Trained, agent: Evaluation, random: Evaluation, path: Path) -> None:
    """Return over training steps, with both evaluations beside it."""
    import matplotlib

    # Before pyplot, which would otherwise choose a backend that may need a screen.
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9, 3.6), width_ratios=(3, 1), sharey=True, layout="constrained"
    )
    _draw_training(left, trained, random.mean)
    right.boxplot(
        [random.returns, agent.returns],
        tick_labels=["random", "trained"],
        widths=0.55,
        medianprops={"color": "#dc2626"},
        flierprops={"markersize": 2.5, "markeredgecolor": "#9ca3af"},
    )
    right.set_title("100 episodes each")
    for axes in (left, right):
        axes.grid(axis="y", color="#e5e7eb", linewidth=0.8)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _draw_training(axes: Any, trained: Trained, random: float) -> None:
    """The learning curve above the mean return of a random agent."""
    lines = (trained.folder / "metrics.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row["return"] is not None]
    axes.plot([r["step"] for r in rows], [r["return"] for r in rows], color="#2563eb", linewidth=1.8)
    if not rows:
        axes.text(
            0.5, 0.6, "fewer than 100 episodes ended in training", ha="center", transform=axes.transAxes
        )
    axes.set_xlim(0, trained.summary["step"])
    axes.axhline(random, color="#9ca3af", linestyle="--", linewidth=1)
    axes.annotate(
        "random",
        (1, random),
        xycoords=("axes fraction", "data"),
        xytext=(-4, 4),
        textcoords="offset points",
        ha="right",
        color="#6b7280",
    )
    config = trained.config
    axes.set(
        xlabel="training steps",
        ylabel="return (mean of 100 episodes)",
        title=f"{config.env.id}, {config.model}, one seed ({config.seed})",
    )
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:g}k")
