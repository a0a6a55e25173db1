"""How close agents of trials come to the best possible adaptation.

    python -m benchmarks.trials RUN... [--episodes N]

RUN  run folders of meta:Bandit or meta:Grid; all of one task

Prints the mean return of the trials of each run (--episodes, 10,000 of them by default), and what is known:

- meta:Bandit: the Bayes-optimal return, which dynamic programming gives exactly, that of Thompson sampling
  by simulation, and that of random arms. The Gittins index is optimal for a discounted bandit that
  never ends; for one that ends, dynamic programming is the optimum that it approximates.
- meta:Grid: the return of an agent that enters a new cell with each step until it finds the goal, and then
  takes a shortest path in every later episode.
"""

import argparse
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import mean

import numpy as np

import recollect
from recollect.common.errors import UsageError
from recollect.config.config import RunConfig

Counts = tuple[tuple[int, int], ...]


def optimal_bandit(arms: int, pulls: int) -> float:
    """The largest expected number of rewards in so many pulls, if chances are uniform."""

    @cache
    def value(counts: Counts, left: int) -> float:
        """Of the pulls that are left after so many rewards and failures of each arm, in sorted order."""
        if not left:
            return 0.0
        best = 0.0
        for i, (wins, losses) in enumerate(counts):
            if i and counts[i] == counts[i - 1]:
                continue  # of arms that are alike, one is enough
            chance = (wins + 1) / (wins + losses + 2)
            after_win = tuple(sorted((*counts[:i], (wins + 1, losses), *counts[i + 1 :])))
            after_loss = tuple(sorted((*counts[:i], (wins, losses + 1), *counts[i + 1 :])))
            ahead = chance * (1 + value(after_win, left - 1)) + (1 - chance) * value(after_loss, left - 1)
            best = max(best, ahead)
        return best

    return value(((0, 0),) * arms, pulls)


def thompson_bandit(arms: int, pulls: int, trials: int = 200_000, seed: int = 0) -> float:
    """The mean number of rewards of Thompson sampling with a uniform prior."""
    random = np.random.default_rng(seed)
    chances, rows = random.random((trials, arms)), np.arange(trials)
    wins, losses, total = np.ones((trials, arms)), np.ones((trials, arms)), 0.0
    for _ in range(pulls):
        arm = random.beta(wins, losses).argmax(1)
        won = random.random(trials) < chances[rows, arm]
        wins[rows, arm] += won
        losses[rows, arm] += ~won
        total += won.mean()
    return float(total)


def optimal_grid(side: int, episodes: int) -> float:
    """The largest expected return of a trial on a grid with an odd side."""
    # A path from the middle that visits each cell once (a spiral) enters a new cell with every step. No path
    # is faster, so the goal is found after 1 to side^2 - 1 steps, each equally likely.
    cells = side**2 - 1
    exploring = 1 - 0.01 * ((cells + 1) / 2 - 1)
    middle = side // 2
    distances = [abs(x - middle) + abs(y - middle) for x in range(side) for y in range(side)]
    exploiting = 1 - 0.01 * (sum(distances) / cells - 1)
    return exploring + (episodes - 1) * exploiting


def references(config: RunConfig) -> dict[str, float]:
    """What is known of a task: name and return."""
    env = config.env
    if env.id == "meta:Bandit":
        arms = int(env.kwargs.get("arms", 5) or 0)
        return {
            "Bayes-optimal": optimal_bandit(arms, env.trial),
            "Thompson sampling": thompson_bandit(arms, env.trial),
            "random arms": env.trial / 2,
        }
    if env.id == "meta:Grid":
        return {"optimal": optimal_grid(int(env.kwargs.get("side", 5) or 0), env.trial)}
    raise UsageError(f"the best return in {env.id} is not known; give runs of meta:Bandit or meta:Grid")


def report(runs: Sequence[Path], episodes: int) -> str:
    """A line for each run and each reference."""
    agents = [recollect.load(run) for run in runs]
    known = references(agents[0].config)
    best = next(iter(known.values()))
    lines = [f"{agents[0].config.env.id}, {agents[0].config.env.trial} episodes a trial"]
    scores = []
    for agent in agents:
        played = agent.evaluate(episodes)
        scores.append(played.mean)
        by_episode = " ".join(f"{x:.3f}" for x in np.mean(played.by_episode, axis=0))
        lines.append(f"seed {agent.config.seed:<4} {played.mean:>8.3f}   by episode {by_episode}")
    lines.append(f"mean      {mean(scores):>8.3f}   {mean(scores) / best:.1%} of the optimum")
    return "\n".join([*lines, *(f"{value:>18.3f}   {name}" for name, value in known.items())])


def main() -> None:
    """Evaluate and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trials", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--episodes", type=int, default=10_000)
    options = parser.parse_args()
    print(report(options.runs, options.episodes))


if __name__ == "__main__":
    main()
