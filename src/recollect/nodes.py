"""Whether runs can be run on the machines of a cluster: asked of each before any run begins."""

import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import UsageError
from .folder import is_locked
from .weights import versions

PATIENCE = 12.0  # seconds that machines have to answer; one that is slower is asked again by its first run


def unfit(sign: str, wanted: Mapping[str, str]) -> str | None:
    """On whichever machine: why runs cannot be run there, or None.

    sign    a folder beside those of runs, locked by whoever asks for them
    wanted  the versions of whoever asks
    """
    here, out = socket.gethostname(), Path(sign).parent
    if not Path(sign).exists():
        return f"{here} does not see {out}: run folders must lie where every machine sees them"
    try:
        if not is_locked(Path(sign)):
            return f"{here} does not see locks of other machines on {out}: they keep two from writing one run"
    except OSError as error:
        return f"{here} cannot use {out}: {error}"
    found = versions()
    unlike = [
        f"{name} {found[name]} (not {wanted[name]})"
        for name in found
        if name != "cpu" and found[name] != wanted.get(name)
    ]
    return f"{here} has {', '.join(unlike)}: the same versions are needed everywhere" if unlike else None


def check(ray: Any, nodes: Sequence[Mapping[str, Any]], sign: Path) -> None:
    """Refuse machines on which runs would fail, or would not go on from where they were on another."""
    said = _each(ray, nodes, unfit, str(sign), versions())
    complaints = [f"{host} cannot run recollect: {_last(x)}" if _failed(x) else x for host, x in said]
    if any(complaints):
        raise UsageError("; ".join(filter(None, complaints)))
    processors = {x["cpu"]: host for host, x in _each(ray, nodes, versions) if not _failed(x)}
    if len(processors) > 1:
        unlike = " and ".join(f"{cpu} ({host})" for cpu, host in sorted(processors.items()))
        raise UsageError(
            f"machines compute with {unlike}, and a run cannot go from one to the other: start Ray and this "
            "with ATEN_CPU_CAPABILITY=avx2, or default, everywhere"
        )


def _each(
    ray: Any, nodes: Sequence[Mapping[str, Any]], ask: Callable[..., Any], *arguments: Any
) -> list[tuple[str, Any]]:
    """What each machine that answers in time says to a question, or the error that it answers with."""
    place = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    asked = {}
    for node in nodes:
        there = {"num_cpus": 0, "scheduling_strategy": place(node["NodeID"], soft=False), "max_retries": 0}
        asked[ray.remote(**there)(ask).remote(*arguments)] = node["NodeManagerHostname"]
    answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=PATIENCE)
    said = []
    for task in answered:
        try:
            said.append((asked[task], ray.get(task)))
        except ray.exceptions.RayTaskError as error:
            said.append((asked[task], error))
        except ray.exceptions.RayError:
            continue  # it is no longer there, which the cluster had not noticed
    return said


def _failed(answer: object) -> bool:
    return isinstance(answer, Exception)


def _last(error: object) -> str:
    return str(error).strip().splitlines()[-1]
