"""All measurements of a probe, as one value."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from ..agent.agent import Agent
from ..common.errors import UsageError
from ..envs import Envs, make_for_evaluation
from ..run.evaluate import MAX_ENVS, check_spaces
from ..run.recording import EpisodeScores, Record, has_memory, play_deterministic, record_deterministic
from ..run.run import Trained
from .ablate import (
    Ablation,
    AlteredPlay,
    Score,
    Source,
    average,
    choose_source,
    list_alterations,
    measure_loss,
    measure_memory_length,
    play_altered,
)
from .controls import Controls, check_controls, compare_controls
from .critic import CriticProbe, probe_critic
from .interventions import measure_spread, record_sequences
from .linear import ReadOut
from .memory_length import MemoryLength
from .open_loop import OpenLoop, measure_open_loop, number_episodes
from .readout import read_memory
from .verdict import judge_need, judge_patching, judge_use

FEWEST = 10  # episodes: the fewest that give an interval


@dataclass(frozen=True)
class ProbeResult:
    """The result of a probe; its fields are the keys of probe.json but for RENAMED of command.py."""

    agent: str
    env: str
    episodes: int
    seed: int
    actor: str | None
    """Name of the actor's memory; None: it has none."""
    critic: str | None
    """Name of the memory that values depend on; None: there is none."""
    uses: str
    follows: str | None
    """Whether choices follow the memory state of another episode; None if that is not known."""
    needs: str
    source: Source
    whole: Score
    """The score with the unchanged memory."""
    ablations: list[Ablation]
    length: MemoryLength | None
    """The steps of memory; None unless a reset at every step loses score."""
    policy: OpenLoop | None
    """The policy at the recorded steps with each alteration; None if the actor has no memory."""
    controls: Controls | None
    values: CriticProbe
    readout: list[ReadOut]


def probe(
    trained: Trained, episodes: int = 100, seed: int = 0, controls: Sequence[Trained] = ()
) -> ProbeResult:
    """Measure what an agent loses when its memory is reset, frozen, replaced or perturbed.

    controls  runs without a memory in the same environment, to test whether the task needs one
    """
    if episodes < FEWEST:
        raise UsageError(f"{episodes} episodes: at least {FEWEST} are needed")
    check_controls(controls, trained)
    torch.set_num_threads(1)  # batches are small: a second thread would only wait
    agent, env = trained.agent, trained.config.env
    envs = make_for_evaluation(replace(env, num_envs=min(episodes, MAX_ENVS)), trained.factory)
    try:
        check_spaces(agent, envs, env.id)
        whole, record = record_deterministic(agent, envs, episodes, seed)
        # All plays share environments and seeds with `whole`, so that losses can be paired by episode.
        plays, policy = _alter_memory(agent, envs, seed, whole, record)
        others = [_play_control(control, envs, episodes, seed) for control in controls]
    finally:
        envs.adapter.close()
    by = choose_source(whole, *(play.scores for play in plays), *others)
    unchanged = average(whole, by)
    ablations = [measure_loss(play, unchanged, by) for play in plays]
    folders = [str(control.folder) for control in controls]
    compared = compare_controls(unchanged, folders, [average(one, by) for one in others], by)
    loses = any(one.every == 1 and one.lost.direction == "better" for one in ablations)
    actor, critic = memory_names(trained)
    return ProbeResult(
        agent=str(trained.folder),
        env=env.id,
        episodes=episodes,
        seed=seed,
        actor=actor,
        critic=critic,
        uses=judge_use(by, unchanged, ablations, actor, critic),
        follows=judge_patching(policy),
        needs=judge_need(by, unchanged, compared, actor),
        source=by,
        whole=unchanged,
        ablations=ablations,
        length=measure_memory_length(unchanged, ablations) if loses else None,
        policy=policy,
        controls=compared,
        values=probe_critic(agent, trained.config, trained.folder, record),
        readout=read_memory(agent, trained.config, record, seed),
    )


def _alter_memory(
    agent: Agent, envs: Envs, seed: int, whole: EpisodeScores, record: Record
) -> tuple[list[AlteredPlay], OpenLoop | None]:
    """The same episodes with each alteration of the actor's memory, in a closed and in an open loop."""
    if not has_memory(agent.actor):
        return [], None
    episodes = len(whole.returns)
    visited, recorded = measure_spread(agent.actor, record), record_sequences(agent.actor, record)
    alterations = list_alterations(visited, recorded, int(whole.lengths.max()), seed)
    plays = play_altered(agent, envs, episodes, seed, whole, alterations)
    episode = number_episodes(record, episodes, max(1, len(envs.agents)))
    return plays, measure_open_loop(agent, record, alterations, recorded, episode)


def memory_names(trained: Trained) -> tuple[str | None, str | None]:
    """Names of the memories of the actor and of the branch that values depend on; None without memory."""
    agent, config = trained.agent, trained.config
    actor = config.actor.memory.found_as() if has_memory(agent.actor) else None
    if agent.critic.trunk is agent.actor:
        return actor, actor
    return actor, config.critic.memory.found_as() if has_memory(agent.critic) else None


def _play_control(control: Trained, envs: Envs, episodes: int, seed: int) -> EpisodeScores:
    check_spaces(control.agent, envs, control.config.env.id)
    return play_deterministic(control.agent, envs, episodes, seed)
