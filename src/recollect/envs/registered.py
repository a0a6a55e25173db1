"""The environments that Gymnasium or a third-party package has registered, by id."""

import gymnasium as gym

from ..common.errors import UsageError, install_hint, nearest
from ..common.named import import_named
from .suites import envpool

OLD_LANDER, NEW_LANDER = "LunarLander-v2", "LunarLander-v3"


def find_spec(env_id: str) -> tuple[str, gym.envs.registration.EnvSpec]:
    """The name and spec under which an id is registered; imports the module before the colon."""
    module, _, name = env_id.rpartition(":")
    if module:
        import_named(module, f"environment {env_id}")
    name = NEW_LANDER if name == OLD_LANDER else name
    spec = gym.registry.get(name)
    if spec is None:
        raise UsageError(f"environment {env_id} is unknown; {_advice(name, module)}")
    return name, spec


def _advice(name: str, module: str) -> str:
    """What to do about an id that nothing has registered, not even the module before it."""
    if name.startswith("callable-"):
        return (
            "the run was trained with a function or an object of Python, which no file contains: give it "
            "again with env=... in Python, or an id as -e my_module:MyEnv-v0"
        )
    if envpool.has(name):
        return (
            f"EnvPool has {name}, but not with these options: keyword arguments need --env.backend envpool, "
            "and are those of EnvPool"
        )
    if name.startswith("ALE/"):
        game = name.removeprefix("ALE/").partition("-")[0]
        return (
            f"take atari:{game}, which has the usual preprocessing; {install_hint('atari')}. "
            f"ale_py:{name} is the game with its whole pictures"
        )
    if name.startswith("popgym-"):
        return f"use popgym:{name.removeprefix('popgym-').removesuffix('-v0')}"
    # Ids in a namespace, as phys2d/CartPole-v1, need further packages: no suggestions for an id without.
    known = sorted(key for key in gym.registry if "/" in name or "/" not in key)
    return (
        nearest(f"{module}:{name}", [f"{module}:{key}" for key in known]) if module else nearest(name, known)
    )
