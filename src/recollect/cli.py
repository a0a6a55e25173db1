"""The command line: parse, build, call. Heavy imports wait until a command needs them."""

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ._version import __version__
from .common.errors import UsageError, nearest

if TYPE_CHECKING:
    from .run.evaluate import Evaluation

HELP = f"""recollect {__version__}: PPO for agents that must remember

usage: recollect COMMAND ...

  train ENV            train an agent:            recollect train CartPole-v1
  eval RUN             play with a trained one:   recollect eval runs/ppo/CartPole-v1/s1-...
  resume RUN           go on after a stop, to the same result bit for bit
  export RUN FILE      its agent as one file, which eval, watch and probe take
  watch RUN            watch it act, with its memory: a page that plays, a film, a window
  probe RUN            does it use its memory, and does the task need one?
  compare              models x environments x seeds, with intervals
  tune                 search for settings of a model on an environment, over several seeds
  report RUNS          runs beside each other: a page with curves, scores and a verdict
  list WHAT            envs, presets, memories or agents
  bench ENV            where the time goes on this machine
  demo ENV             train for a minute, evaluate beside a random agent, draw both

  recollect COMMAND --help tells more. Exit codes: 0 finished, 1 fault, 2 usage or data,
  130 and 143 stopped by a signal.
"""

TRAIN = """Train an agent. Settings come from the preset of the model and the environment, then from
--config FILE.yaml, then from flags; hyphens and underscores are the same.

  recollect train ENV [-e ENV] [-m, --model PRESET] [--actor MEMORY] [--critic MEMORY]
      [--steps N | --rollouts N | -ne N | --num-epochs N] [--config FILE.yaml] [--cpu]

  recollect train LunarLander-v3 --seed 2 --steps 500000
  recollect train CartPole-v1 --actor stack --actor.frames 3 --ppo.gamma 0.98
  recollect train LunarLander-v3 --env.kwargs.continuous true
"""

EVAL = """Play episodes with a trained agent and report the return.

  recollect eval RUN       a run folder, a checkpoint or a saved agent
  recollect eval random -e ENV
"""

RESUME = """Go on with a run that was stopped. The result is what it would have been without the stop,
bit for bit, on the same machine with the same versions.

  recollect resume RUN
"""


WATCH = """Watch a trained agent act, with its memory: memory states, attention weights, and the influence of
each past step on the present action.

  recollect watch RUN                      a window where there is a screen, else a page that plays
  recollect watch RUN -o page.html         one file, which needs no network
  recollect watch RUN -o film.gif          also .mp4 and .webp
"""

PROBE = """Does an agent use its memory? Its episodes are played with the memory cleared, frozen, blurred and
swapped; the critic's is asked apart; and what the memory holds is read out by linear regression.

  recollect probe RUN                  a run folder, a checkpoint or a saved agent
  recollect probe RUN --control RUN    and does the task need one? The control is a run without a memory
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(HELP, end="")
        return 0
    if arguments[0] == "--version":
        print(__version__)
        return 0
    name, *rest = arguments
    try:
        if name not in COMMANDS:
            raise UsageError(f"unknown command {name!r}; {nearest(name, list(COMMANDS))}")
        return COMMANDS[name](rest)
    except UsageError as error:
        print(f"recollect: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:  # before a run began, or after it ended
        return 130
    except (RuntimeError, OSError) as error:
        print(f"recollect: {_plain(error)}", file=sys.stderr)
        return 1


def _plain(error: Exception) -> str:
    """What went wrong, and with which file."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    return f"{type(error).__name__}: {error}"


def train(arguments: list[str]) -> int:
    """recollect train"""
    from dataclasses import fields

    from .commands.options import TrainOptions
    from .config.presets import assemble
    from .run.run import start_run
    from .run.session import Destination

    flags = _positional_first(arguments, "--env.id")
    if not set(flags) & {"-h", "--help", "--env.id", "-e", "--env", "--config"}:
        raise UsageError("which environment? recollect train CartPole-v1")
    options = assemble(flags, "recollect train", TRAIN, lambda config: TrainOptions(config=config))
    where = Destination(**{f.name: getattr(options, f.name) for f in fields(Destination)})
    return _exit_code(start_run(options.config, where).summary["status"])


def resume(arguments: list[str]) -> int:
    """recollect resume"""
    from .commands.options import ResumeOptions
    from .config.config import apply, tokens
    from .run import api

    found = tokens(_positional_first(arguments, "--run"))
    found = [("--env" if name == "--env.id" else name, values) for name, values in found]
    options = apply(ResumeOptions(), found, "recollect resume", RESUME)
    if not options.run:
        raise UsageError("which run? recollect resume runs/MODEL/ENV/ID")
    trained = api.resume(
        options.run,
        env=options.env,
        imports=options.imports,
        ignore_versions=options.ignore_versions,
        quiet=options.quiet,
    )
    return _exit_code(trained.summary["status"])


def evaluate(arguments: list[str]) -> int:
    """recollect eval"""
    from .commands.options import EvalOptions
    from .config.config import apply, tokens
    from .config.presets import preset
    from .run import api
    from .run.evaluate import evaluate as play
    from .run.film import render

    found = [(EVAL_NAMES.get(k, k), v) for k, v in tokens(_positional_first(arguments, "--run"))]
    options = apply(EvalOptions(), found, "recollect eval", EVAL)
    if not options.run:
        raise UsageError("which agent? recollect eval RUN, or recollect eval random -e ENV")
    agent, env = None, options.env
    if options.run != "random":
        trained = api.load(options.run, env=options.env, imports=options.imports)
        agent, config = trained.agent, trained.config.env
    elif env is None:
        raise UsageError("a random agent needs an environment: -e ID")
    else:
        config = preset("ppo", env).env
    if options.render:
        episodes = options.num_episodes if any(k == "--num-episodes" for k, _ in found) else 1
        returns = render(agent, config, options.render, episodes, options.seed, not options.sample)
        print(f"played {config.id}: return {', '.join(f'{x:.1f}' for x in returns)}")
        return 0
    show = _running_mean(options.running_rew_len) if options.running_rew_len else None
    args = agent, config, options.num_episodes, options.seed, not options.sample, options.run
    _print_evaluation(play(*args, on_episode=show), options.json)
    return 0


def export(arguments: list[str]) -> int:
    """recollect export"""
    from .commands.export import run_export

    return run_export(arguments)


def probe(arguments: list[str]) -> int:
    """recollect probe"""
    from .config.config import apply, tokens
    from .probing import run_probe
    from .probing.options import ProbeOptions

    found = [(PROBE_NAMES.get(k, k), v) for k, v in tokens(_positional_first(arguments, "--run"))]
    options = apply(ProbeOptions(), found, "recollect probe", PROBE)
    if not options.run:
        raise UsageError("which agent? recollect probe RUN")
    run_probe(options)
    return 0


def watch(arguments: list[str]) -> int:
    """recollect watch"""
    from .config.config import apply, tokens
    from .watching import run_watch
    from .watching.options import WatchOptions

    found = [(WATCH_NAMES.get(k, k), v) for k, v in tokens(_positional_first(arguments, "--run"))]
    options = apply(WatchOptions(), found, "recollect watch", WATCH)
    if not options.run:
        raise UsageError("which agent? recollect watch RUN")
    run_watch(options)
    return 0


def compare(arguments: list[str]) -> int:
    """recollect compare"""
    from .comparison.compare import run_compare

    return run_compare(arguments)


def tune(arguments: list[str]) -> int:
    """recollect tune"""
    from .tuning.tune import run_tune

    return run_tune(arguments)


def report(arguments: list[str]) -> int:
    """recollect report"""
    from .reporting.command import run_report

    return run_report(arguments)


def listing(arguments: list[str]) -> int:
    """recollect list"""
    from .commands import listing as listings

    what = arguments[0] if arguments else ""
    if what in ("-h", "--help", ""):
        print("usage: recollect list envs|presets|memories|agents")
        return 0 if what else 2
    if what not in listings.LISTS:
        raise UsageError(f"cannot list {what!r}; {nearest(what, list(listings.LISTS))}")
    listings.LISTS[what]()
    return 0


def bench(arguments: list[str]) -> int:
    """recollect bench"""
    from .run.bench import run_bench

    return run_bench(_positional_first(arguments, "--env.id"))


def demo(arguments: list[str]) -> int:
    """recollect demo"""
    from .commands.demo import run_demo

    return run_demo(_positional_first(arguments, "--env.id"))


# What flags of training mean to eval.
EVAL_NAMES = {
    "-f": "--run",
    "--file-path": "--run",
    "-m": "--run",
    "--model": "--run",
    "--env.id": "--env",
    "--rollouts": "--num-episodes",
}

PROBE_NAMES = {"-o": "--out"}
WATCH_NAMES = {"-o": "--out", "--env.id": "--env"}

COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": train,
    "eval": evaluate,
    "resume": resume,
    "export": export,
    "watch": watch,
    "probe": probe,
    "compare": compare,
    "tune": tune,
    "report": report,
    "list": listing,
    "bench": bench,
    "demo": demo,
}


def _positional_first(arguments: list[str], flag: str) -> list[str]:
    """The one positional argument, which comes first, as the flag it stands for."""
    if arguments and not arguments[0].startswith("-"):
        return [flag, *arguments]
    return arguments


def _exit_code(status: str) -> int:
    return {"finished": 0, "SIGINT": 130, "SIGTERM": 143}[status]


def _running_mean(window: int) -> Callable[[float], None]:
    recent: list[float] = []

    def on_episode(value: float) -> None:
        recent.append(value)
        mean = sum(recent[-window:]) / len(recent[-window:])
        print(f"episode {len(recent):>5}  return {value:>9.2f}  mean of last {window} {mean:>9.2f}")

    return on_episode


def _print_evaluation(result: "Evaluation", as_json: bool) -> None:
    if as_json:
        import json

        print(json.dumps(result.as_json()))
        return
    s: dict[str, Any] = result.summary()
    how = "deterministic" if result.deterministic else "sampling"
    how = "at random" if result.agent == "random" else how
    print(f"{result.agent} on {result.env}: {s['episodes']} episodes, {how}, seed {result.seed}")
    interval = "-" if s["low"] is None else f"{s['low']:.2f} to {s['high']:.2f}"
    print(f"  return  mean {s['mean']:.2f}   95 % interval {interval}")
    print(f"          std {s['std']:.2f}   interquartile mean {s['iqm']:.2f}   length {s['length']:.1f}")
    if s["success"] is not None:
        print(f"  success {s['success']:.1%}")


if __name__ == "__main__":
    sys.exit(main())
