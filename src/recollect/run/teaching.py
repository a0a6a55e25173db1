"""Record the episodes of an agent, and train an agent by recorded episodes or by a teacher."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from ..agent.agent import Agent
from ..common import rng
from ..common.errors import NoHiddenError, UsageError
from ..common.threads import one_thread, threads
from ..config.config import RunConfig
from ..envs import Array, Envs, Step, VecEnv, make_for_evaluation
from ..envs.spaces import ACTION_MASK, HIDDEN
from ..envs.spaces_text import describe
from ..learn import clone
from ..learn.learner import Learner, begin
from ..learn.ppo import train
from ..learn.rollout import Rollout
from ..learn.settings import Plan
from .build import build, training_mode
from .dataset import Dataset, check_spaces, columns_of, first_row_of, rows_of
from .evaluate import MAX_ENVS, as_actor_sees
from .evaluate import check_spaces as check_env
from .playing import play_episodes
from .recording import copied, outcome_of, row_kinds
from .run import Trained
from .weights import versions

OnEpoch = Callable[[dict[str, Any]], None]


# Record ---------------------------------------------------------------------------------------


class Tape(VecEnv):
    """Environments whose observations, actions and outcomes are kept."""

    tier: Literal["native", "barrier"] = "barrier"

    def __init__(self, envs: Envs) -> None:
        self.inside, self.spec = envs.adapter, envs.obs_spec
        self.num_envs, self.backend = envs.num_envs, envs.adapter.backend
        self.observation_space = envs.adapter.observation_space
        self.action_space = envs.adapter.action_space
        self.agents = envs.agents
        self.obs: list[dict[str, Array]] = []
        self.actions: list[Array] = []
        self.steps: list[Step] = []

    def waiting(self) -> Array | None:
        return self.inside.waiting()

    def reset(self, seeds: list[int]) -> Any:
        obs = self.inside.reset(seeds)
        self.waits_first = copied(self.inside.waiting())
        self._keep(obs)
        return obs

    def step(self, action: Array) -> Step:
        step = self.inside.step(action)
        self.actions.append(np.array(action))
        self.steps.append(outcome_of(step, self.inside.waiting()))
        self._keep(step.obs)
        return step

    def _keep(self, obs: Any) -> None:
        self.obs.append({name: x.copy() for name, x in self.spec.split(obs).items()})


@one_thread()
def record_episodes(trained: Trained, episodes: int, seed: int = 0, deterministic: bool = True) -> Dataset:
    """Play episodes, and return them as they are recorded in a file."""
    num = min(episodes, MAX_ENVS)
    envs = _make_for_recording(trained, num)
    try:
        check_env(trained.agent, envs, trained.config.env.id)
        tape = Tape(envs)
        player = trained.agent.player(envs.num_envs, deterministic, seed)
        seeds = rng.env_seeds(seed, rng.Purpose.RECORD, 0, envs.num_envs)
        play_episodes(envs.around(tape), player, episodes, seeds)
    finally:
        envs.adapter.close()
    about = {"env": trained.config.env.id, "agent": str(trained.folder), "seed": seed}
    about |= {"deterministic": deterministic, "versions": versions()}
    agents = envs.num_envs // num
    share = [episodes // num + (j // agents < episodes % num) for j in range(envs.num_envs)]
    return _dataset(tape, share, (envs.obs_spec, envs.action_spec), about)


def _make_for_recording(trained: Trained, num: int) -> Envs:
    """Environments with hidden variables, also those that only the critic sees: a clone may need them.

    Where another environment has none, they are left out unless the actor needs them.
    """
    env = replace(trained.config.env, num_envs=num)
    try:
        return make_for_evaluation(env, trained.factory)
    except NoHiddenError:
        return make_for_evaluation(as_actor_sees(env, trained.agent), trained.factory)


def _dataset(tape: Tape, share: list[int], spaces: Any, about: dict[str, Any]) -> Dataset:
    """The first episodes of each environment, or of each agent where there are several, by their shares."""
    terminated, truncated = (
        np.stack([getattr(s, kind) for s in tape.steps]) for kind in ("terminated", "truncated")
    )
    counts, begins = row_kinds(tape.steps, tape.waits_first, max(1, len(tape.agents)))
    rows: list[tuple[int, int]] = []  # time and environment of each row
    starts: list[int] = []
    for env, episodes in enumerate(share):
        # Of several agents, some may take part in fewer episodes than their environment plays.
        ends = np.flatnonzero((terminated | truncated)[:, env]).tolist()
        played = zip(np.flatnonzero(begins[:, env]), ends, strict=False)
        # The final observation is that of time end + 1.
        for start, end in [span for span in played if counts[span[0], env]][:episodes]:
            starts.append(len(rows))
            rows += [(t, env) for t in range(start, end + 2)]
    time, env = np.array(rows).T
    first = np.zeros(len(rows), dtype=bool)
    first[starts] = True
    final = np.roll(first, -1)  # of the row before each first one; the last row is before row 0
    acted = np.minimum(time, len(tape.steps) - 1)  # a final observation may come after the last step
    action = spaces[1].from_env(np.stack(tape.actions)[acted, env])
    reward = np.stack([step.reward for step in tape.steps])[acted, env].astype(np.float32)
    return Dataset(
        "the recording",
        spaces,
        {name: np.stack([obs[name] for obs in tape.obs])[time, env] for name in tape.obs[0]},
        action=action * ~final[:, None],
        reward=reward * ~final,
        terminated=terminated[acted, env] & ~final,
        truncated=truncated[acted, env] & ~final,
        first=first,
        about=about,
    )


# Clone ----------------------------------------------------------------------------------------


def clone_data(config: RunConfig, data: Dataset, epochs: int, on_epoch: OnEpoch) -> tuple[Learner, RunConfig]:
    """A new agent that has learned the actions of recorded episodes, and its resolved config."""
    envs, agent, config = build(config)
    try:
        check_spaces(data, (envs.obs_spec, envs.action_spec), config.env.id, _hint(data, config))
        length = config.ppo.chunk_length(any(agent.initial_state(1)))
        rows = rows_of(data, columns_of(data, envs.num_envs, length))
        learner = _learner(config, envs, agent)
        plan = Plan(ppo=config.ppo, seed=config.seed, rollouts=epochs)
        row = first_row_of(rows)
        rollout = Rollout(agent, row, len(rows["reward"]), next(agent.parameters()).dtype)
        rollout.open(row)
        rollout.fill(rows)
        with threads(config.threads), training_mode(agent, config):
            for number, metrics in enumerate(clone.epochs(learner, rollout, row, plan), 1):
                on_epoch({"epoch": number, **metrics})
    finally:
        envs.adapter.close()
    return learner, config


def _hint(data: Dataset, config: RunConfig) -> str:
    """What to do where a recording and the environments differ in a leaf that an option adds."""
    for leaf, name, option in (
        (ACTION_MASK, "action masks", "action_mask"),
        (HIDDEN, "hidden variables", "hidden"),
    ):
        is_recorded, flag = leaf in data.spaces[0].leaves, f"--env.{option.replace('_', '-')} True"
        if is_recorded and not getattr(config.env, option):
            return f"; the recording has {name}: add {flag}"
        if not is_recorded and getattr(config.env, option):
            return f"; the recording has no {name}: record an agent that was trained with {flag}"
    return ""


def clone_teacher(
    config: RunConfig, teacher: Agent, name: str, on_epoch: OnEpoch
) -> tuple[Learner, RunConfig]:
    """A new agent that has learned what a teacher would do in the states that it reached itself."""
    envs, agent, config = build(config)
    try:
        _check_teacher(teacher, name, envs, config)
        teacher = copy.deepcopy(teacher).to(
            agent.device
        )  # files are read on the CPU; the caller's stays there
        learner = _learner(config, envs, agent)
        with threads(config.threads), training_mode(agent, config):
            updates: Iterator[dict[str, Any]] = train(envs, learner, config.plan, clone.by_teacher(teacher))
            for metrics in updates:
                on_epoch({**metrics, "return": learner.episodes.means(fewest=1)["return"]})
    finally:
        envs.adapter.close()
    return learner, config


def _check_teacher(teacher: Agent, name: str, envs: Envs, config: RunConfig) -> None:
    """Raise UsageError if the environments do not give what the teacher needs."""
    for leaf, needed in teacher.actor.inputs.leaves.items():
        given = envs.obs_spec.leaves.get(leaf)
        if given != needed:
            hint = "; add --env.hidden True" if leaf == HIDDEN else ""
            raise UsageError(
                f"the teacher {name} sees {leaf} ({describe(needed)}), and {config.env.id} has "
                f"{f'({describe(given)})' if given else 'none'}{hint}"
            )
    masks = [list(spec.mask) for spec in (teacher.obs_spec, envs.obs_spec)]
    if masks[0] != masks[1]:
        # Leaves have the same shape, with zeros for one where the other has numbers.
        raise UsageError(
            f"env.mask is {masks[0]} of the teacher {name}, and {masks[1]} of the student: set the same; a "
            "teacher that sees what the mask hides has --env.hidden True --actor.sees obs hidden"
        )
    if teacher.actor.masked and ACTION_MASK not in envs.obs_spec.leaves:
        raise UsageError(
            f"the teacher {name} has action masks, and the student none: add --env.action-mask True"
        )
    theirs, ours = teacher.action_spec, envs.action_spec
    if theirs != ours:
        raise UsageError(
            f"the teacher {name} takes actions ({describe(theirs)}), and {config.env.id} has "
            f"({describe(ours)})"
        )


def _learner(config: RunConfig, envs: Envs, agent: Agent) -> Learner:
    if config.ppo.rnd_coef:
        raise UsageError(
            f"ppo.rnd_coef is {config.ppo.rnd_coef:g}, and clone copies actions that are given, which no "
            "reward changes; set it to 0"
        )
    return begin(envs, agent, config.plan, config.env.normalize_reward, config.env.reward_scale)
