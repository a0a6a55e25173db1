"""Checks of one environment, for `recollect doctor ENV`."""

import copy
import time
import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from gymnasium.utils.env_checker import check_env, data_equivalence

from ..common.errors import EnvFailedError, UsageError
from ..config.presets import preset
from ..envs import Envs, make
from ..envs.gym import GymEnv

STEPS = 50  # of the check that an environment repeats
SECONDS = 1.0  # of the measurement of speed
SLOW = 500  # steps per second of one environment, below which processes pay off


class Finding(NamedTuple):
    """The result of one check; advice: what to do, empty if all is well."""

    name: str
    result: str
    advice: str = ""


def check_environment(env_id: str) -> Iterator[Finding]:
    """Spaces, tier, time limit, repetition, speed, copies and the rules of Gymnasium."""
    env = preset("ppo", env_id).env
    envs = make(replace(env, num_envs=1))
    adapter = envs.adapter
    try:
        yield Finding("environment", f"{env_id}, backend {adapter.backend}")
        yield Finding("observations", f"{adapter.observation_space}")
        yield Finding("actions", f"{adapter.action_space}")
        yield _tier(adapter.tier)
        yield _limit(adapter.time_limit)
        try:
            yield _repetition(envs)
            yield _speed(envs)
        except (UsageError, EnvFailedError) as error:
            yield Finding("steps", str(error), "correct the environment")
            return
        if isinstance(adapter, GymEnv) and adapter.local_envs:
            yield _copying(adapter.local_envs[0])
            yield _rules(adapter.local_envs[0])
    finally:
        adapter.close()


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
    for action in _actions(envs, STEPS):
        step = envs.step(action)
        obs = {name: x.copy() for name, x in step.obs.items()}
        rows.append((obs, *(np.array(x) for x in step[1:4])))
    return rows


def _actions(envs: Envs, count: int) -> Iterator[Any]:
    """Policy actions (N, K), the same in each call."""
    random, spec = np.random.default_rng(0), envs.action_spec
    shape = envs.num_envs, spec.width
    for _ in range(count):
        if spec.kind == "categorical":
            yield random.integers(0, spec.sizes, shape)
        else:
            yield random.uniform(-1, 1, shape).astype(np.float32)


def _speed(envs: Envs) -> Finding:
    envs.reset([123] * envs.num_envs)
    steps, end = 0, time.perf_counter() + SECONDS
    for action in _actions(envs, 10**6):
        envs.step(action)
        steps += 1
        if time.perf_counter() >= end:
            break
    rate = steps / SECONDS
    result = f"{rate:,.0f} steps/s of one environment"
    if rate >= SLOW:
        return Finding("speed", result)
    return Finding("speed", result, "use processes: --env.backend workers --num-envs 8, or as many as cores")


def _copying(env: Any) -> Finding:
    try:
        copy.deepcopy(env)
    except Exception as error:  # whatever the environment contains
        name = type(error).__name__
        return Finding("copying", f"no ({name}): in Python, pass a function that builds one, not an instance")
    return Finding("copying", "yes")


def _rules(env: Any) -> Finding:
    """What Gymnasium's checker says about an environment."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            check_env(env.unwrapped, skip_render_check=True)
        except Exception as error:  # assertions, mostly
            return Finding("rules of Gymnasium", f"broken: {_first_line(error)}", "correct the environment")
    texts = [_first_line(warning.message) for warning in caught]
    return Finding("rules of Gymnasium", "; ".join(dict.fromkeys(texts)) or "kept")


def _first_line(text: object) -> str:
    plain = str(text).replace("\x1b[33m", "").replace("\x1b[0m", "").removeprefix("WARN: ")
    return plain.splitlines()[0] if plain else type(text).__name__
