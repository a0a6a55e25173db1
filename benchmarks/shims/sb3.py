"""A run of Stable-Baselines3 or of sb3-contrib.

Settings: algorithm (module:Class), policy, env, num_envs, normalize, hyperparameters, budget (over
which schedules run), steps (instead of a target), seed, target, cap and threads (None: torch's choice);
mask, if observations are multiplied by one; and episodes, if the last weights are to be evaluated.
"""

import importlib
import json
import statistics
import sys
import tempfile
import time
from typing import Any

import numpy as np
import torch
from gymnasium.wrappers import TransformObservation
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecEnv, VecNormalize

from ..common import Result, result

EVALUATION_SEED = 1_000_000


class Watch(BaseCallback):
    """The clock, and the mean of the last 100 training episodes; it ends the run."""

    def __init__(self, target: float | None, cap: float) -> None:
        super().__init__()
        self.target, self.cap = target, cap
        self.started, self.seconds, self.mean = 0.0, 0.0, float("nan")

    def _on_training_start(self) -> None:
        self.started = time.perf_counter()

    def _on_step(self) -> bool:
        if self.n_calls % 32:
            return True
        self.seconds = time.perf_counter() - self.started
        recent = [episode["r"] for episode in self.model.ep_info_buffer]
        self.mean = statistics.mean(recent) if recent else float("nan")
        reached = self.target is not None and len(recent) == 100 and self.mean >= self.target
        return not reached and self.seconds < self.cap


def run(settings: dict[str, Any]) -> Result:
    """Train until the target, the cap or the number of steps."""
    target, cap, seed = (settings[key] for key in ("target", "cap", "seed"))
    module, _, name = settings["algorithm"].partition(":")
    algorithm = getattr(importlib.import_module(module), name)
    if settings["threads"]:
        torch.set_num_threads(settings["threads"])
    chosen = {key: _schedule(value) for key, value in settings["hyperparameters"].items()}
    if "policy_kwargs" in chosen:
        chosen["policy_kwargs"] = _policy(chosen["policy_kwargs"])
    watch = Watch(target, cap)
    with tempfile.TemporaryDirectory() as out:
        where = {"seed": seed, "device": "cpu", "tensorboard_log": out}
        model = algorithm(settings["policy"], _envs(settings), **where, **chosen)
        model.learn(settings["steps"] or settings["budget"], callback=watch)
    ended = time.perf_counter() - watch.started  # with the last update
    reached = None if target is None else watch.mean >= target
    seconds = watch.seconds if reached else ended if settings["steps"] else max(ended, cap)
    took = watch.seconds if reached else ended
    outcome = result(min(seconds, cap), model.num_timesteps, watch.mean, reached, took=took)
    if "episodes" in settings:
        outcome["score"] = _evaluate(model, settings)
    return outcome


def _evaluate(model: Any, settings: dict[str, Any]) -> float:
    """The mean return of deterministic episodes, on seeds that training did not use."""
    envs = _envs({**settings, "seed": EVALUATION_SEED + settings["seed"]})
    if isinstance(envs, VecNormalize):
        envs.obs_rms, envs.training, envs.norm_reward = model.get_env().obs_rms, False, False
    mean, _ = evaluate_policy(model, envs, settings["episodes"], deterministic=True)
    return float(mean)


def _envs(settings: dict[str, Any]) -> VecEnv:
    mask, wrapper = settings.get("mask"), {}
    if mask is not None:
        seen = np.asarray(mask, dtype=np.float32)
        kwargs = {"func": lambda obs: obs * seen, "observation_space": None}
        wrapper = {"wrapper_class": TransformObservation, "wrapper_kwargs": kwargs}
    envs = make_vec_env(settings["env"], n_envs=settings["num_envs"], seed=settings["seed"], **wrapper)
    return VecNormalize(envs, gamma=settings["hyperparameters"]["gamma"]) if settings["normalize"] else envs


def _schedule(value: Any) -> Any:
    """ "linear 0.1" as a function that falls to zero."""
    if isinstance(value, str):
        initial = float(value.split()[1])
        return lambda left: left * initial
    return value


def _policy(settings: dict[str, Any]) -> dict[str, Any]:
    """The activation is a class, by name so that it survives JSON."""
    return {k: getattr(torch.nn, v) if k == "activation_fn" else v for k, v in settings.items()}


if __name__ == "__main__":
    print(json.dumps(run(json.loads(sys.argv[1]))))
