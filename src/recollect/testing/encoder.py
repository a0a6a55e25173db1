"""The rules of the contract of encoders, checked on random observations of several spaces.

Shapes.  T steps, B environments.
"""

import copy
from collections.abc import Callable

import gymnasium as gym
import numpy as np
import torch
from torch import Tensor

from ..common.errors import UsageError
from ..encoder import Encoder, EncoderConfig
from ..envs.spaces import Leaf, ObsSpec, read_spaces
from .compare import close, contents, distance, require, require_fields, same

STEPS, BATCH = 4, 3
_PICTURE = gym.spaces.Box(0, 255, (40, 36, 3), np.uint8)
_VECTOR = gym.spaces.Box(-1.0, 1.0, (5,))
_CATEGORIES = gym.spaces.MultiDiscrete([3, 4])
SPACES: dict[str, gym.Space] = {
    "a vector": _VECTOR,
    "categories": _CATEGORIES,
    "a picture": _PICTURE,
    "a Dict of all three": gym.spaces.Dict(camera=_PICTURE, speed=_VECTOR, inventory=_CATEGORIES),
}


class EncoderSubject:
    """An encoder under test, in float64, with random observations for it."""

    def __init__(self, config: EncoderConfig, obs: ObsSpec) -> None:
        require(
            isinstance(config, EncoderConfig),
            "build",
            f"{config!r:.80} is no EncoderConfig",
            "give an instance of a config, as check_encoder(MyConfig())",
        )
        require_fields(config)
        self.spec = obs
        self.build: Callable[[], Encoder] = lambda: config.build(obs)
        encoder = self.build()
        require(
            isinstance(encoder, Encoder),
            "build",
            f"build returns a {type(encoder).__name__}",
            "return a subclass of recollect.encoder.Encoder",
        )
        require(
            hasattr(encoder, "out_dim"),
            "build",
            "the encoder has no out_dim",
            "set self.out_dim in __init__ to the width of the features",
        )
        self.encoder = encoder.double().eval()

    def observations(self, steps: int = STEPS, batch: int = BATCH) -> dict[str, Tensor]:
        """Random leaves (T, B, ...)."""
        return {name: random_leaf(leaf, steps, batch) for name, leaf in self.spec.leaves.items()}

    @torch.no_grad()
    def run(self, obs: dict[str, Tensor]) -> Tensor:
        """Features (T, B, out_dim), without gradients."""
        features: Tensor = self.encoder(obs, torch.float64)
        return features


def spec_of(space: gym.Space) -> ObsSpec:
    """The leaves of an observation space."""
    return read_spaces(space, gym.spaces.Discrete(2))[0]


def random_leaf(leaf: Leaf, length: int, num_envs: int) -> Tensor:
    """A random leaf (T, N, ...), in float64 where it has real numbers."""
    if leaf.kind == "picture":
        return torch.randint(256, (length, num_envs, *leaf.shape), dtype=torch.uint8)
    if leaf.kind == "discrete":
        return torch.stack([torch.randint(n, (length, num_envs)) for n in leaf.sizes], -1)
    if leaf.kind == "mask":
        # One choice of each component is allowed at least.
        hot = [
            torch.rand(length, num_envs, n).argmax(-1, keepdim=True) == torch.arange(n) for n in leaf.sizes
        ]
        return (torch.rand(length, num_envs, *leaf.shape) < 0.5) | torch.cat(hot, -1)
    x = torch.randn(length, num_envs, *leaf.shape, dtype=torch.float64)
    return (x > 0).double() if leaf.kind == "binary" else x


# The rules ------------------------------------------------------------------------------------


def check_shapes(subject: EncoderSubject) -> None:
    """Features are (T, B, out_dim) of the dtype that is asked for."""
    # Axes of size 1 show a squeeze or a broadcast too many.
    for steps, batch in ((STEPS, BATCH), (STEPS, 1), (1, BATCH), (1, 1)):
        features = subject.run(subject.observations(steps, batch))
        is_tensor = isinstance(features, Tensor)
        require(
            is_tensor and bool(features.isfinite().all()),
            "shapes",
            f"forward returns {'numbers that are not finite' if is_tensor else repr(features)[:80]}",
            "return one tensor of finite features",
        )
        wanted = steps, batch, subject.encoder.out_dim
        require(
            tuple(features.shape) == wanted,
            "shapes",
            f"features have shape {tuple(features.shape)}; (T, B, out_dim) is {wanted}",
            "return out_dim numbers for each step of each environment",
        )
    # In float32 too, in which agents are trained: what is always float64 is right in float64.
    for dtype in (torch.float64, torch.float32):
        with torch.no_grad():
            features = copy.deepcopy(subject.encoder).to(dtype)(subject.observations(), dtype)
        require(
            features.dtype == dtype,
            "dtype",
            f"features are {features.dtype}, not the dtype of the call, {dtype}",
            "convert bytes and indices by x.to(dtype), and create new tensors with that dtype",
        )


def check_purity(subject: EncoderSubject) -> None:
    """A call changes neither the module nor its arguments, and the same arguments give the same result."""
    obs, before = subject.observations(), contents(subject.encoder)
    kept = {name: x.clone() for name, x in obs.items()}
    features = subject.run(obs)
    after = contents(subject.encoder)
    changed = sorted(k for k in before.keys() | after.keys() if not same(before.get(k), after.get(k)))
    require(
        not changed,
        "pure",
        f"a call changes {', '.join(changed)} of the module",
        "store nothing in self: running statistics of observations are those of normalize_obs",
    )
    require(
        all(torch.equal(obs[name], x) for name, x in kept.items()),
        "pure",
        "a call modifies its observations",
        "compute new tensors: the rollout stores the ones that are passed",
    )
    subject.run(subject.observations())
    require(
        torch.equal(subject.run(kept), features),
        "pure",
        "the same observations give different features after another call",
        "features may depend on weights and observations only, not on random numbers or earlier calls",
    )


def check_independence(subject: EncoderSubject) -> None:
    """Each step is encoded on its own, in acting as in training."""
    obs = subject.observations()
    together = subject.run(obs)
    for t in range(STEPS):
        for b in range(BATCH):
            alone = subject.run({name: x[t : t + 1, b : b + 1] for name, x in obs.items()})
            require(
                close(together[t : t + 1, b : b + 1], alone),
                "steps",
                f"features of one observation differ by {distance(together[t, b], alone[0, 0]):.2g} with "
                "others in the same call",
                "no operation may mix steps or environments: no batch norm, and views with the axes in order",
            )


def check_weights(subject: EncoderSubject) -> None:
    """Initial weights are those of the seed, and gradients reach all of them."""
    twice = []
    for _ in range(2):
        torch.manual_seed(0)
        twice.append(subject.build().state_dict())
    require(
        all(torch.equal(x, twice[1][name]) for name, x in twice[0].items()),
        "seed",
        "two encoders with the same seed of torch begin with different weights",
        "draw initial weights from torch's global generator",
    )
    # Enough different observations that every unit of a relu is above 0 for one of them.
    features: Tensor = subject.encoder(subject.observations(16, 16), torch.float64)
    if list(subject.encoder.parameters()):
        (features * torch.randn_like(features)).sum().backward()
    unused = [
        name
        for name, p in subject.encoder.named_parameters()
        if p.requires_grad and (p.grad is None or not p.grad.any())
    ]
    require(
        not unused,
        "gradient",
        f"no gradient reaches {', '.join(unused)}",
        "use each parameter in forward, without detach, or set requires_grad_(False) on those that stay",
    )


RULES = (check_shapes, check_purity, check_independence, check_weights)


def check_encoder(config: EncoderConfig, space: gym.Space | None = None) -> None:
    """Check the contract on the encoder that `config` builds, in float64; print which spaces passed.

    space  observation space; None: a vector, categories, a picture, and a Dict of all three, without those
           that `build` refuses with a UsageError
    """
    passed, refused = [], []
    for name, candidate in (SPACES if space is None else {str(space): space}).items():
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            try:
                subject = EncoderSubject(config, spec_of(candidate))
            except UsageError as error:
                refused.append(f"{name}: {error}")
                continue
            for rule in RULES:
                rule(subject)
        passed.append(name)
    require(
        bool(passed),
        "spaces",
        f"build refuses every space ({'; '.join(refused)})",
        "pass the observation space of your environment: check_encoder(config, env.observation_space)",
    )
    note = f"; refused: {'; '.join(refused)}" if refused else ""
    print(
        f"{type(config).__name__}: all {len(RULES)} rules of the contract hold for {', '.join(passed)}{note}"
    )
