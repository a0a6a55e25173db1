"""Everything that is asked of an agent, as one value."""

from dataclasses import dataclass, replace

import torch

from ..common.errors import UsageError
from ..config.data import memory_name
from ..envs import EnvConfig, Envs, make_for_evaluation, suite_of
from ..run.evaluate import MAX_ENVS, check_spaces, describe_task
from ..run.recording import EpisodeScores, has_memory, play_deterministic, record_deterministic
from ..run.run import Trained
from .ablate import Ablation, Difference, Score, Source, ablation, difference, score, source, tries
from .critic import Critic, ask
from .interventions import spread
from .linear import Answer
from .readout import read
from .verdict import needs, uses

FEWEST = 10  # episodes that an interval can be over


@dataclass(frozen=True)
class Probed:
    """What was found."""

    agent: str
    env: str
    episodes: int
    seed: int
    actor: str | None
    """The memory of the actor; None: it has none."""
    critic: str | None
    """The memory that values are read from."""
    uses: str
    needs: str
    source: Source
    whole: Score
    """With the memory as it is."""
    ablations: list[Ablation]
    control: str | None
    control_score: Score | None
    above_control: Difference | None
    values: Critic
    readout: list[Answer]


def probe(trained: Trained, episodes: int = 100, seed: int = 0, control: Trained | None = None) -> Probed:
    """Take an agent's memory away in parts, and see what is lost."""
    if episodes < FEWEST:
        raise UsageError(f"{episodes} episodes: at least {FEWEST} are needed")
    if control is not None:
        _check(control, trained)
    torch.set_num_threads(1)  # rows are small, and a second thread only waits
    agent, env = trained.agent, trained.config.env
    envs = make_for_evaluation(replace(env, num_envs=min(episodes, MAX_ENVS)), trained.factory)
    try:
        check_spaces(agent, envs, env.id)
        whole, record = record_deterministic(agent, envs, episodes, seed)
        tried = []
        if has_memory(agent.actor):
            tried = tries(agent, envs, episodes, seed, whole, spread(agent.actor, record))
        rival = None if control is None else _rival(control, envs, episodes, seed)
    finally:
        envs.adapter.close()
    by = source(whole, *(one.played for one in tried), *([rival] if rival else []))
    best = score(whole, by)
    made = [ablation(one, best, by) for one in tried]
    other = None if rival is None else score(rival, by)
    above = None if other is None else difference(best, other, by)
    actor, critic = memory_names(trained)
    return Probed(
        agent=str(trained.folder),
        env=env.id,
        episodes=episodes,
        seed=seed,
        actor=actor,
        critic=critic,
        uses=uses(by, best, made, actor, critic),
        needs=needs(by, best, other, above, actor),
        source=by,
        whole=best,
        ablations=made,
        control=None if control is None else str(control.folder),
        control_score=other,
        above_control=above,
        values=ask(agent, trained.config, trained.folder, record),
        readout=read(agent, trained.config, record, seed),
    )


def memory_names(trained: Trained) -> tuple[str | None, str | None]:
    """The names of the actor's memory and of the one that values are read from, where there is one."""
    agent, config = trained.agent, trained.config
    actor = memory_name(config.actor.memory) if has_memory(agent.actor) else None
    if agent.shared:
        return actor, actor
    return actor, memory_name(config.critic.memory) if has_memory(agent.critic) else None


def _rival(control: Trained, envs: Envs, episodes: int, seed: int) -> EpisodeScores:
    check_spaces(control.agent, envs, control.config.env.id)
    return play_deterministic(control.agent, envs, episodes, seed)


def _check(control: Trained, trained: Trained) -> None:
    """A control has no memory, and learned in the same environment."""
    if has_memory(control.agent.actor):
        memory = memory_name(control.config.actor.memory)
        raise UsageError(f"--control {control.folder} has a memory ({memory}); a control has none")
    if _same(control.config.env) != _same(trained.config.env):
        raise UsageError(
            f"--control {control.folder} is of {control.config.env.id}, the agent of {trained.config.env.id}"
        )


def _same(env: EnvConfig) -> tuple[object, ...]:
    """What makes an environment what it is, with names that stand for settings spelled out."""
    suite, name = suite_of(env.id)
    if suite is not None and hasattr(suite, "resolve_alias"):
        env = suite.resolve_alias(env, name)
    return env.id, {**describe_task(env), "mask": sorted(env.mask)}
