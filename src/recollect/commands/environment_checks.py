"""Checks of one environment, for `recollect doctor ENV`."""

import copy
import gc
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, pairwise
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector.utils import CloudpickleWrapper

from ..common.errors import EnvFailedError, UsageError
from ..common.malloc import release_freed_memory
from ..config.presets import preset
from ..envs import ActionSpec, EnvConfig, Envs, Obs, Step, make, reports_mask
from ..envs.extended import ExtendedEnv
from ..envs.gym import GymEnv
from ..envs.random_actions import draw_allowed
from ..envs.spaces import ACTION_MASK
from ..envs.spaces_text import describe
from ..run.slow_steps import SLOW
from .gymnasium_checker import warnings_of_checker

STEPS = 50  # of the check that an environment repeats
SECONDS = 1.0  # of the measurement of speed
PLAY_STEPS = 10_000  # in which episodes should end
PLAY_SECONDS = 10.0  # in which fewer steps are played, if the environment is slow
SPAN_STEPS = 3_000  # between two measurements of memory
SPANS = 4  # in each of which memory must grow: what happens once, as a cache that fills, is no growth
GROWTH = 32 * 2**10  # bytes per 1,000 steps, below which allocators may be the cause
STATM = Path("/proc/self/statm")  # of Linux; resident memory is its second number, in pages
WORKER_SECONDS = 60.0  # for the first reset in a worker process


class Episode(NamedTuple):
    """The end of an episode."""

    length: int
    truncated: bool


class Finding(NamedTuple):
    """The result of one check; advice: what to do, empty if all is well."""

    name: str
    result: str
    advice: str = ""


def check_environment(env_id: str) -> Iterator[Finding]:
    """Spaces, tier, time limit, repetition, speed, truncation, memory, copies, worker processes and the rules
    of Gymnasium.
    """
    env = _with_masks(preset("ppo", env_id).env)
    envs = make(replace(env, num_envs=1))
    adapter = envs.adapter
    try:
        yield Finding("environment", f"{env_id}, backend {adapter.backend}")
        yield Finding("observations", describe(envs.obs_spec))
        yield Finding("actions", describe(envs.action_spec))
        yield _tier(adapter.tier)
        yield _limit(adapter.time_limit)
        try:
            yield _repetition(envs)
            rate = _rate(envs)
            yield _speed(rate)
            yield _truncation(envs, env)
            yield _memory_growth(envs, rate)
        except (UsageError, EnvFailedError) as error:
            yield Finding("steps", str(error), "correct the environment")
            return
        inner = adapter.inner if isinstance(adapter, ExtendedEnv) else adapter
        if isinstance(inner, GymEnv) and inner.local_envs:
            yield _copying(inner.local_envs[0])
            yield _picklability(inner, env)
            yield _rules(inner.local_envs[0], envs.action_spec if env.action_mask else None)
    finally:
        adapter.close()


def _with_masks(env: EnvConfig) -> EnvConfig:
    """The config with action masks, if the environment reports some: a forbidden action may be an error."""
    try:
        return replace(env, action_mask=reports_mask(env))
    except (UsageError, EnvFailedError):
        return env  # what fails here fails again in the checks, which report it


def _tier(tier: str) -> Finding:
    meaning = {
        "native": "its state is saved: a run resumes from any iteration",
        "barrier": "its state cannot be saved: a run resumes from a barrier, which resets all environments",
    }
    return Finding("tier", f"{tier}; {meaning[tier]}")


def _limit(limit: int | None) -> Finding:
    if limit is not None:
        return Finding("time limit", f"{limit:,} steps")
    return Finding(
        "time limit", "none", "set one with --env.time-limit, unless all episodes end on their own"
    )


def _repetition(envs: Envs) -> Finding:
    """Whether a reset from a seed and the same actions give the same steps twice."""
    first, second = (_trajectory(envs) for _ in range(2))
    if all(data_equivalence(one, other, exact=True) for one, other in zip(first, second, strict=True)):
        return Finding("repeats", f"yes, over {STEPS} steps from the same seed")
    step = next(
        t for t, pair in enumerate(zip(first, second, strict=True)) if not data_equivalence(*pair, exact=True)
    )
    return Finding("repeats", f"no, from step {step} on", "draw every random number from self.np_random")


def _trajectory(envs: Envs) -> list[Any]:
    obs = {name: x.copy() for name, x in envs.reset([123] * envs.num_envs).items()}
    rows: list[Any] = [obs]
    for step in _play_steps(envs, obs, STEPS):
        obs = {name: x.copy() for name, x in step.obs.items()}
        rows.append((obs, *(np.array(x) for x in step[1:4])))
    return rows


def _play_steps(envs: Envs, obs: Obs, count: int) -> Iterator[Step]:
    """Steps from an observation on, with random actions that are the same in each call."""
    random, spec = np.random.default_rng(0), envs.action_spec
    shape = envs.num_envs, spec.width
    for _ in range(count):
        if ACTION_MASK in obs:
            action = draw_allowed(spec, obs[ACTION_MASK], random)
        elif spec.kind == "categorical":
            action = random.integers(0, spec.sizes, shape)
        else:
            action = random.uniform(-1, 1, shape).astype(np.float32)
        step = envs.step(action)
        yield step
        obs = step.obs


def _rate(envs: Envs) -> float:
    """Steps per second."""
    obs = envs.reset([123] * envs.num_envs)
    steps, end = 0, time.perf_counter() + SECONDS
    for _ in _play_steps(envs, obs, 10**6):
        steps += 1
        if time.perf_counter() >= end:
            break
    return steps / SECONDS


def _speed(rate: float) -> Finding:
    result = f"{rate:,.0f} steps/s of one environment"
    if rate >= SLOW:
        return Finding("speed", result)
    return Finding("speed", result, "use processes: --env.backend workers --num-envs 8, or as many as cores")


def _truncation(envs: Envs, env: EnvConfig) -> Finding:
    """Whether the episodes that reach the time limit are truncated, and whether episodes end without one."""
    limit = envs.adapter.time_limit
    episodes, steps = _play(envs)
    longest = max((episode.length for episode in episodes), default=0)
    if limit is None:
        return _ends_without_limit(episodes, steps, longest)
    if longest > limit:
        return Finding(
            "truncation",
            f"an episode of {longest:,} steps, beyond its limit of {limit:,}",
            "correct the wrapper or environment that has to end it",
        )
    if longest == limit:
        finding = _ends_at_limit(limit, episodes)
        # Of the tasks of recollect it is known that the task ends there.
        return finding._replace(advice="") if envs.adapter.backend == "own" else finding
    result = f"none of {len(episodes):,} random episodes in {steps:,} steps reached {limit:,} steps"
    return _with_shorter_limit(env, episodes, result)


def _play(envs: Envs) -> tuple[list[Episode], int]:
    """The episodes of the first environment in some steps with random actions, and the number of steps."""
    obs = envs.reset([123] * envs.num_envs)
    episodes: list[Episode] = []
    length, steps, over = 0, 0, False  # over: the present row is one in which no action is taken
    end = time.perf_counter() + PLAY_SECONDS
    for step in _play_steps(envs, obs, PLAY_STEPS):
        steps += 1
        length = 0 if over else length + 1
        over = bool(step.terminated[0] or step.truncated[0])
        if over:
            episodes.append(Episode(length, bool(step.truncated[0])))
        over |= step.waiting is not None and bool(step.waiting[0])
        if time.perf_counter() >= end:
            break
    return episodes, steps


def _ends_without_limit(episodes: list[Episode], steps: int, longest: int) -> Finding:
    if not episodes:
        return Finding(
            "truncation",
            f"no limit, and no episode ended within {steps:,} steps",
            "set a limit with --env.time-limit, as 1000, or training sees no end of an episode",
        )
    terminated = sum(not episode.truncated for episode in episodes)
    share = f"{terminated:,} of {len(episodes):,} episodes in {steps:,} steps terminated"
    return Finding("truncation", f"no limit; {share}, after {longest:,} steps at most")


def _ends_at_limit(limit: int, episodes: list[Episode]) -> Finding:
    if any(episode.truncated for episode in episodes if episode.length == limit):
        return Finding("truncation", f"an episode that reaches {limit:,} steps is truncated")
    return Finding(
        "truncation",
        f"all episodes that reach {limit:,} steps terminate",
        "if the limit ends them and not the task, return truncated=True and terminated=False there: a value "
        "then stands for the rest of the episode",
    )


def _with_shorter_limit(env: EnvConfig, episodes: list[Episode], result: str) -> Finding:
    """The same steps with a limit that the shortest episode reaches."""
    limit = min((episode.length for episode in episodes), default=PLAY_STEPS) - 1
    if limit < 1 or not episodes:
        return Finding("truncation", result)
    try:
        envs = make(replace(env, num_envs=1, time_limit=limit))
    except UsageError as error:
        return Finding("truncation", f"{result}, and no other limit can be set: {error}")
    try:
        shortened, _ = _play(envs)
    finally:
        envs.adapter.close()
    if any(episode == Episode(limit, True) for episode in shortened):
        return Finding("truncation", f"{result}; with a limit of {limit:,} steps an episode is truncated")
    return Finding(
        "truncation",
        f"{result}; with a limit of {limit:,} steps an episode goes on, or terminates there",
        "correct the wrapper or environment that has to end it: time limits have no effect",
    )


def _memory_growth(envs: Envs, rate: float) -> Finding:
    """Whether this process grows in each of several spans of steps, after a first one."""
    if not STATM.exists():
        return Finding("memory growth", "not measured: this system has no /proc")
    span = max(1, min(SPAN_STEPS, int(rate * PLAY_SECONDS / (SPANS + 1))))
    sizes = []
    played = _play_steps(envs, envs.reset([123] * envs.num_envs), span * (SPANS + 1))
    for _ in range(SPANS + 1):
        for _ in islice(played, span):
            pass
        # Cycles that wait for a collection are no growth, and growth inside of freed memory is one.
        gc.collect()
        release_freed_memory()
        sizes.append(_resident())
    growths = [(after - before) * 1000 / span for before, after in pairwise(sizes)]
    if min(growths) < max(GROWTH, GROWTH * 1000 / span):  # of few steps, the same noise is more per step
        return Finding("memory growth", f"none in {span * SPANS:,} steps")
    growth = median(growths)
    return Finding(
        "memory growth",
        f"{growth / 1e6:.2f} MB per 1,000 steps",
        f"{growth / 1e5:,.1f} GB in 10 million steps: look for a list, a cache or a buffer that keeps data "
        "of past steps or episodes",
    )


def _resident() -> int:
    """Bytes of memory that this process has."""
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _copying(env: Any) -> Finding:
    try:
        copy.deepcopy(env)
    except Exception as error:  # whatever the environment contains
        name = type(error).__name__
        return Finding("copying", f"no ({name}): in Python, pass a function that builds one, not an instance")
    return Finding("copying", "yes")


def _picklability(adapter: GymEnv, env: EnvConfig) -> Finding:
    """Whether the function that builds the environment can be sent to a worker process, and works there."""
    try:
        ForkingPickler.dumps(CloudpickleWrapper(adapter.factory))  # as multiprocessing sends it
    except Exception as error:  # whatever the function contains
        return Finding(
            "picklability",
            f"no ({type(error).__name__}: {_first_line(error)})",
            "create in the constructor what cannot be pickled: worker processes that are not forked (macOS, "
            "Windows, Python 3.14) get the environment as bytes",
        )
    options: dict[str, Any] = {"backend": "workers", "step_timeout": WORKER_SECONDS, "on_error": "stop"}
    try:
        workers = make(replace(env, num_envs=1, **options))
        try:
            next(_play_steps(workers, workers.reset([123]), 1))
        finally:
            workers.adapter.close()
    except (UsageError, EnvFailedError) as error:
        advice = "correct it, or take --env.backend gymnasium, in which all environments share one process"
        return Finding("picklability", f"not in a worker process: {_first_line(error)}", advice)
    return Finding("picklability", "yes, and a worker process can step it")


def _rules(env: Any, masked: ActionSpec | None) -> Finding:
    """What Gymnasium's checker says about an environment, with its actions if it reports action masks."""
    try:
        texts = map(_first_line, warnings_of_checker(env.unwrapped, masked))
    except Exception as error:  # assertions, mostly
        return Finding("rules of Gymnasium", f"broken: {_first_line(error)}", "correct the environment")
    return Finding("rules of Gymnasium", "; ".join(dict.fromkeys(texts)) or "kept")


def _first_line(text: object) -> str:
    plain = str(text).replace("\x1b[33m", "").replace("\x1b[0m", "").removeprefix("WARN: ")
    return plain.splitlines()[0] if plain else type(text).__name__
