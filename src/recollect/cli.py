"""The command line: find the command, parse its options, run it. Nothing heavy is imported before that."""

import os
import signal
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module

from ._version import __version__
from .commands import COMMANDS
from .common.errors import UsageError, nearest
from .common.imports import without_collection
from .common.signals import Signals

PIPE_CLOSED = 141  # 128 + SIGPIPE, as programs in C end
HELP = f"""recollect {__version__}: PPO for agents that must remember

usage: recollect COMMAND ...

  train ENV            train an agent:                recollect train CartPole-v1
  eval RUN             evaluate a trained agent:      recollect eval runs/ppo/CartPole-v1/s1-...
  resume RUN           resume a stopped run; the result equals that without the stop, bit for bit
  export RUN FILE      write the agent of a run as one file, which eval, watch and probe accept
  push RUN OWNER/NAME  upload the agent of a run to the Hugging Face hub
  record RUN           write episodes of an agent as a file, to clone agents from
  clone DATA           train an agent by recorded episodes, or by a teacher
  watch RUN            show an agent and its memory state: a page, a film or a window
  probe RUN            test whether an agent uses its memory, and whether the task needs one
  compare              train models x environments x seeds, with confidence intervals
  tune                 search hyperparameters of a model on an environment, over several seeds
  report RUNS          compare runs: a page with learning curves, scores and a verdict
  list KIND            list envs, presets, memories, encoders or agents
  bench ENV            measure the time per phase of training on this machine
  demo ENV             train for a minute, evaluate beside a random agent, plot both
  doctor [ENV]         check this installation and an environment: the output belongs in a bug report
  completion SHELL     print a script that completes commands and options: bash or zsh

recollect COMMAND --help shows the options. Exit codes: 0 finished, 1 fault, 2 usage or data,
130 and 143 stopped by a signal.
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
    warnings.formatwarning = lambda message, *_: f"recollect: warning: {message}\n"
    try:
        with Signals(at_once=True):
            return run(*arguments)
    except UsageError as error:
        # It may quote a library that needs several lines.
        line = " ".join(part for text in str(error).splitlines() if (part := text.strip()))
        print(f"recollect: {line}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader has left, as in `recollect list envs | head -1`. Python flushes its output once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except KeyboardInterrupt as error:  # before a run began, after it ended, or in a command without one
        number = int(getattr(error, "number", signal.SIGINT))  # a StoppedError has that of its signal
        name = signal.Signals(number).name
        print(f"recollect: stopped by {name}; unfinished output is not written", file=sys.stderr)
        return 128 + number
    except OSError as error:
        problem = (
            f"{error.filename}: {error.strerror}" if error.filename else f"{type(error).__name__}: {error}"
        )
        print(f"recollect: {problem}", file=sys.stderr)
        return 1
    except MemoryError as error:
        print(f"recollect: not enough memory: {error or 'an allocation failed'}", file=sys.stderr)
        return 1
    except RuntimeError as error:
        print(f"recollect: {type(error).__name__}: {error}", file=sys.stderr)
        return 1


def run(name: str, *arguments: str) -> int:
    """Run the command of this name, or print its help."""
    if name not in COMMANDS:
        raise UsageError(f"unknown command {name!r}; {nearest(name, list(COMMANDS))}")
    from .config.command import HELP_FLAGS, help_of, parse

    command, prog = COMMANDS[name], f"recollect {name}"
    with without_collection():
        module = import_module(f".{command.module}", __package__)
    options = getattr(module, command.options)
    if HELP_FLAGS & set(arguments):
        print(help_of(options, arguments, prog), end="")
        return 0
    code: int | None = getattr(module, command.function)(parse(options, arguments, prog))
    return code or 0


if __name__ == "__main__":
    sys.exit(main())
