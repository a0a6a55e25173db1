"""Whether runs can be run on the machines of a cluster: asked of each before any run begins."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..common.errors import UsageError
from ..run.weights import version_mismatch, versions
from .run_process import unfit

PATIENCE = 8.0  # seconds that machines have to answer; one that is slower is asked again by its first run


def check(ray: Any, nodes: Sequence[Mapping[str, Any]], sign: Path) -> None:
    """Refuse machines on which runs would fail, or would not go on from where they were on another."""
    said = [*_each(ray, nodes, unfit, str(sign)), *_each(ray, nodes, versions)]
    complaints: dict[str, str] = {}
    for host, answer in said:
        if complaint := _complaint(host, answer):
            complaints.setdefault(host, complaint)
    if complaints:
        raise UsageError("; ".join(complaints.values()))
    processors = {x["cpu"]: host for host, x in said if x}
    if len(processors) > 1:
        kinds = " and ".join(f"{cpu} ({host})" for cpu, host in sorted(processors.items()))
        raise UsageError(
            f"machines compute with {kinds}, and a run cannot go from one to the other: start Ray and this "
            "with ATEN_CPU_CAPABILITY=avx2, or default, everywhere"
        )


def _complaint(host: str, answer: Any) -> str | None:
    """What is wrong with an answer."""
    if isinstance(answer, Exception):
        return f"{host} cannot run recollect: {str(answer).strip().splitlines()[-1]}"
    if isinstance(answer, dict):
        return version_mismatch(host, answer, versions())
    return str(answer) if answer else None


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
