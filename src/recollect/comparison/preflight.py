"""Checks of a cluster before any run starts: storage, library versions and processors of each machine."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..common.errors import UsageError
from ..run.weights import version_mismatch, versions
from .run_process import storage_fault

ANSWER_SECONDS = 8.0  # for all machines; one that is slower is checked again by the first run it gets
T = TypeVar("T")


def check_machines(ray: Any, nodes: Sequence[Mapping[str, Any]], lock_folder: Path) -> None:
    """Refuse machines on which runs would fail, or could not resume bit for bit after another machine."""
    faults: dict[str, str] = {}  # the first of each host
    for host, fault in call_on_each(ray, nodes, storage_fault, str(lock_folder)):
        if fault is not None:
            faults.setdefault(host, _failed_call(host, fault) if isinstance(fault, Exception) else fault)
    processors: dict[str, str] = {}
    for host, installed in call_on_each(ray, nodes, versions):
        if isinstance(installed, Exception):
            faults.setdefault(host, _failed_call(host, installed))
            continue
        processors[installed["cpu"]] = host
        if mismatch := version_mismatch(host, installed, versions()):
            faults.setdefault(host, mismatch)
    if faults:
        raise UsageError("; ".join(faults.values()))
    if len(processors) > 1:
        kinds = " and ".join(f"{cpu} ({host})" for cpu, host in sorted(processors.items()))
        raise UsageError(
            f"the machines compute with {kinds}, which give different bits, so a run could not move from one "
            "to another: set ATEN_CPU_CAPABILITY=avx2, or default, wherever `ray start` and this command run"
        )


def _failed_call(host: str, error: Exception) -> str:
    return f"{host} cannot run recollect: {str(error).strip().splitlines()[-1]}"


def call_on_each(
    ray: Any, nodes: Sequence[Mapping[str, Any]], function: Callable[..., T], *arguments: Any
) -> list[tuple[str, T | Exception]]:
    """Call a function on every machine; for each that answers in time, its host name and the result, or the
    error that the call raised there.
    """
    affinity = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
    hosts = {}
    for node in nodes:
        strategy = affinity(node["NodeID"], soft=False)
        # No CPUs, so that a check does not wait for a run; soft=False: on this machine or not at all.
        remote = ray.remote(num_cpus=0, scheduling_strategy=strategy, max_retries=0)(function)
        hosts[remote.remote(*arguments)] = node["NodeManagerHostname"]
    answered, _ = ray.wait(list(hosts), num_returns=len(hosts), timeout=ANSWER_SECONDS)
    results: list[tuple[str, T | Exception]] = []
    for task in answered:
        try:
            results.append((hosts[task], ray.get(task)))
        except ray.exceptions.RayTaskError as error:
            results.append((hosts[task], error))
        except ray.exceptions.RayError:
            continue  # the machine has left, which the cluster had not noticed
    return results
