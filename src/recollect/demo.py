"""`recollect demo`: from nothing to a trained lander, a comparison and a picture."""

import json
from dataclasses import dataclass
from pathlib import Path

from .config import apply, tokens
from .errors import UsageError
from .evaluate import Evaluation, evaluate
from .film import render
from .presets import preset
from .run import Trained, start
from .session import Destination

ABOUT = """Train an agent in under a minute, play beside a random one, and draw the curve."""


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """The demonstration."""

    out: Path = Path("runs")
    """The folder of all runs."""
    steps: int = 500_000
    """How long to train."""
    seed: int = 1
    """Of the run."""


def run_demo(arguments: list[str]) -> int:
    """Train on LunarLander, evaluate beside a random agent, leave a picture and a film."""
    options = apply(DemoOptions(), tokens(arguments), "recollect demo", ABOUT)
    config = preset("ppo", "LunarLander-v3")
    config = apply(config, tokens(["--steps", str(options.steps), "--seed", str(options.seed)]), "", "")
    trained = start(config, Destination(out=Path(options.out)))
    if trained.summary["status"] != "finished":
        return 130
    print("\nplaying 100 episodes each ...")
    mine = trained.evaluate()
    random = evaluate(None, trained.config.env, name="random")
    for name, result in (("trained", mine), ("random", random)):
        s = result.summary()
        print(f"  {name:<8} mean return {s['mean']:8.1f}   95 % interval {s['low']:.1f} to {s['high']:.1f}")
    picture, film = trained.folder / "curve.png", trained.folder / "landing.gif"
    draw_curve(trained, mine, random, picture)
    try:
        render(trained.agent, trained.config.env, str(film), 1, 0)
    except UsageError as error:
        print(f"no film: {error}")
        film = trained.folder
    print(f"\nthe curve     {picture}\na landing     {film}\nthe run       {trained.folder}")
    print(f"watch it      recollect watch {trained.folder}")
    return 0


def draw_curve(trained: Trained, mine: Evaluation, random: Evaluation, path: Path) -> None:
    """Return over steps, with both evaluations beside it."""
    try:
        import matplotlib
    except ImportError as error:
        raise UsageError("the picture needs matplotlib: pip install 'recollect[plot]'") from error
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    lines = (trained.folder / "metrics.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row["return"] is not None]
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9, 3.6), width_ratios=(3, 1), sharey=True, layout="constrained"
    )
    left.plot([r["step"] for r in rows], [r["return"] for r in rows], color="#2563eb", linewidth=1.8)
    left.axhline(random.mean, color="#9ca3af", linestyle="--", linewidth=1)
    left.annotate(
        "random",
        (1, random.mean),
        xycoords=("axes fraction", "data"),
        xytext=(-4, 4),
        textcoords="offset points",
        ha="right",
        color="#6b7280",
    )
    left.set(
        xlabel="steps",
        ylabel="return (mean of 100 episodes)",
        title=f"{trained.config.env.id}, while learning",
    )
    left.xaxis.set_major_formatter(lambda x, _: f"{x / 1000:.0f}k")
    right.boxplot(
        [random.returns, mine.returns],
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
