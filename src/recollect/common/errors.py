"""The errors of the library. The command line prints each of them as one line."""

MOST_LISTED = 24  # known names in an error: all memories and encoders


class UsageError(ValueError):
    """An invalid option, name or file; exit code 2."""


class EnvDataError(UsageError):
    """An environment returned data that cannot be used for training; exit code 2."""


class NoHiddenError(UsageError):
    """An environment has no hidden variables, which a config asks for; exit code 2."""


class EnvFailedError(RuntimeError):
    """An environment raised an error, crashed or did not answer; exit code 1."""


class CheckpointError(UsageError):
    """A checkpoint that is damaged, incomplete or not one of recollect; exit code 2."""


class DisagreementError(RuntimeError):
    """Acting and learning, or two processes, computed different numbers; exit code 1."""


class LostError(RuntimeError):
    """Another process of the run ended or does not answer; exit code 1."""


class DivergedError(RuntimeError):
    """Training diverged: gradients are no longer finite; exit code 1."""


class OutOfMemoryError(RuntimeError):
    """The device of the networks is out of memory; exit code 1."""


def nearest(name: str, known: list[str]) -> str:
    """The end of an error about an unknown name: similar names, or the known ones."""
    # Late: only an error needs it.
    from difflib import get_close_matches

    spelled = {word.casefold(): word for word in known}
    close = get_close_matches(name.casefold(), spelled, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(spelled[word] for word in close)}?"
    return f"known: {', '.join(known[:MOST_LISTED])}{', ...' if len(known) > MOST_LISTED else ''}"


def install_hint(extra: str) -> str:
    """The tail of an error about a missing package: how to install the extra that has it."""
    return f"pip install 'recollect-rl[{extra}]', or in a clone pip install -e '.[{extra}]'"
