"""Mistakes a user can mend. The command line prints each as one line."""


class UsageError(ValueError):
    """A setting, a name or a file that does not fit; exit code 2."""


class EnvDataError(UsageError):
    """An environment gave what nothing can be learned from; exit code 2."""


class CheckpointError(UsageError):
    """A file that is not, or no longer, what was saved; exit code 2."""


class DisagreementError(RuntimeError):
    """Acting and learning computed different numbers: a defect of a memory; exit code 1."""


class LostError(RuntimeError):
    """One of the processes of a run has ended, or does not answer; exit code 1."""


class DivergedError(RuntimeError):
    """Learning no longer gives finite gradients; exit code 1."""


def nearest(name: str, known: list[str]) -> str:
    """The tail of an error about an unknown name: what may have been meant."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known: {', '.join(known[:12])}{', ...' if len(known) > 12 else ''}"
