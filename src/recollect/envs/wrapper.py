"""An adapter around another one."""

from abc import ABC
from typing import Any

from .base import EnvState, VecEnv
from .opponents import Opponents
from .spaces import Array


class EnvWrapper(VecEnv, ABC):
    """An adapter that changes some of another one. All that it does not define is that of the inner adapter:
    without that, a method which a wrapper forgets would silently be the default of VecEnv.
    """

    def __init__(self, inner: VecEnv) -> None:
        self.inner = inner
        self.num_envs, self.backend, self.tier = inner.num_envs, inner.backend, inner.tier
        self.observation_space, self.action_space = inner.observation_space, inner.action_space
        self.time_limit, self.note, self.fps = inner.time_limit, inner.note, inner.fps
        self.agents, self.seats = inner.agents, inner.seats

    def play_against(self, opponents: Opponents) -> None:
        self.inner.play_against(opponents)

    def action_mask(self) -> Any:
        return self.inner.action_mask()

    def reports_mask(self) -> bool:
        return self.inner.reports_mask()

    def waiting(self) -> Array | None:
        return self.inner.waiting()

    def hidden(self) -> dict[str, Array]:
        return self.inner.hidden()

    def new_episode(self) -> Array | None:
        return self.inner.new_episode()

    def names(self) -> dict[str, list[str]]:
        return self.inner.names()

    def check_seed(self, seed: int) -> None:
        self.inner.check_seed(seed)

    @property
    def restarts(self) -> int:
        return self.inner.restarts

    def render(self) -> Array | None:
        return self.inner.render()

    def get_state(self) -> EnvState:
        return self.inner.get_state()

    def set_state(self, state: EnvState) -> None:
        self.inner.set_state(state)

    def close(self) -> None:
        self.inner.close()
