"""Names of actions and of the numbers of an observation, for the page of `recollect watch`."""

from collections.abc import Mapping, Sequence

import numpy as np

from ..common.errors import UsageError
from ..envs.spaces import ActionSpec, ObsSpec

SHOWN_APART = ("picture", "mask")  # kinds of leaves that are not among the numbers of the observation
ACTIONS, OBSERVATIONS = "actions", "observations"
_POLE = "cart position, cart velocity, pole angle, pole velocity"
_BODY = "x, y, x velocity, y velocity, angle, angular velocity, left leg contact, right leg contact"
_LINKS = "cos angle 1, sin angle 1, cos angle 2, sin angle 2, angular velocity 1, angular velocity 2"
# Gymnasium's documentation names these, its environments do not. By the beginning of the id: actions of one
# kind or another, of which the number decides, and observations.
_KNOWN = {
    "CartPole": (("push left, push right",), _POLE),
    "Acrobot": (("torque -1, no torque, torque +1",), _LINKS),
    "MountainCar": (("push left, no push, push right", "force"), "position, velocity"),
    "Pendulum": (("torque",), "cos angle, sin angle, angular velocity"),
    "LunarLander": (
        ("no engine, left engine, main engine, right engine", "main engine, side engines"),
        _BODY,
    ),
}


def name_actions(
    spec: ActionSpec, env: str, given: Mapping[str, Sequence[str]], offered: Mapping[str, Sequence[str]]
) -> list[str]:
    """A name for each choice of a single categorical component, else for each component.

    env    the id of the environment
    given  by the user (parse_labels)
    offered  by the environment (VecEnv.names)
    """
    choices = spec.kind == "categorical" and spec.width == 1
    count = spec.sizes[0] if choices else spec.width
    plain = [f"action {i + (spec.start[0] if choices else 0)}" for i in range(count)]
    known, _ = _known(env)
    return _choose(ACTIONS, plain, given, [offered.get(ACTIONS, ()), *known])


def name_observations(
    spec: ObsSpec, env: str, given: Mapping[str, Sequence[str]], offered: Mapping[str, Sequence[str]]
) -> list[str]:
    """A name for each number of the observation that is neither of a picture nor of an action mask."""
    plain = []
    for name, leaf in spec.leaves.items():
        if leaf.kind not in SHOWN_APART:
            width = int(np.prod(leaf.shape)) if leaf.shape else 1
            plain += [name] if width == 1 else [f"{name}[{i}]" for i in range(width)]
    _, known = _known(env)
    return _choose(OBSERVATIONS, plain, given, [offered.get(OBSERVATIONS, ()), known])


def parse_labels(labels: Sequence[str]) -> dict[str, list[str]]:
    """actions=left,right -> {"actions": ["left", "right"]}."""
    given = {}
    for text in labels:
        kind, equals, names = text.partition("=")
        if kind not in (ACTIONS, OBSERVATIONS) or not equals:
            raise UsageError(f"--labels {text}: write {ACTIONS}=NAME,NAME or {OBSERVATIONS}=NAME,NAME")
        given[kind] = [name.strip() for name in names.split(",")]
    return given


def _known(env: str) -> tuple[list[list[str]], list[str]]:
    """Lists of names of the actions, and names of the observations, of a task of Gymnasium; else none."""
    for prefix, (actions, observations) in _KNOWN.items():
        if env.startswith(prefix):
            return [names.split(", ") for names in actions], observations.split(", ")
    return [], []


def _choose(
    kind: str, plain: list[str], given: Mapping[str, Sequence[str]], others: Sequence[Sequence[str]]
) -> list[str]:
    """The given names, or the first of the others that are as many as needed, or plain ones."""
    if kind in given and len(given[kind]) != len(plain):
        raise UsageError(
            f"--labels {kind}=...: {len(given[kind])} names for {len(plain)} {kind} ({', '.join(plain[:8])})"
        )
    return list(next((x for x in (given.get(kind, ()), *others) if len(x) == len(plain)), plain))
