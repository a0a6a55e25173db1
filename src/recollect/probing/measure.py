"""All measurements of a probe, as one value."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..agent.agent import Agent
from ..common.errors import UsageError
from ..common.threads import one_thread
from ..envs import Array, Envs, make_for_evaluation
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
from .contents import Contents, measure_contents
from .controls import Controls, check_controls, compare_controls
from .critic import CriticProbe, probe_critic
from .interventions import Spread, measure_spread, record_sequences
from .linear import ReadOut
from .memory_length import MemoryLength
from .occlusion import Dependence, measure_dependence
from .open_loop import OpenLoop, measure_open_loop, number_episodes
from .readout import collect_material
from .replay import Replay, measure_replays
from .verdict import judge_contents, judge_dependence, judge_need, judge_patching, judge_reach, judge_use

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
    reaches: str | None
    """How many steps the policy depends on; None if its memory makes no difference."""
    follows: str | None
    """Whether choices follow the memory state of another episode; None if that is not known."""
    depends: str | None
    """On which earlier step the policy depends most; None if on none."""
    decides: str | None
    """Which quantity in the memory state decides; None if it holds none, or episodes are too few."""
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
    dependence: list[Dependence]
    """How the policy depends on what the memory was given some steps before."""
    replays: list[Replay]
    """The policy after first inputs of another episode, by their number."""
    contents: Contents | None
    """The policy without each quantity that the state holds, and without each of its parts; None if the
    actor has no memory, or there are too few steps."""


@one_thread()
def probe(
    trained: Trained, episodes: int = 100, seed: int = 0, controls: Sequence[Trained] = ()
) -> ProbeResult:
    """Measure what an agent loses when its memory is reset, frozen, replaced or perturbed.

    controls  runs without a memory in the same environment, to test whether the task needs one
    """
    if episodes < FEWEST:
        raise UsageError(f"{episodes} episodes: at least {FEWEST} are needed")
    check_controls(controls, trained)
    agent = trained.agent
    whole, record, episode, visited, plays, policy, others = _play_all(trained, episodes, seed, controls)
    by = choose_source(whole, *(play.scores for play in plays), *others)
    unchanged = average(whole, by)
    ablations = [measure_loss(play, unchanged, by) for play in plays]
    longest = int(whole.lengths.max()) if agent.actor.resets else None
    length = measure_memory_length(unchanged, ablations, longest)
    folders = [str(control.folder) for control in controls]
    compared = compare_controls(unchanged, folders, [average(one, by) for one in others], by)
    actor, critic = memory_names(trained)
    dependence = measure_dependence(agent, record, episode, seed) if visited else []
    readout, contents = _read_memory(trained, record, seed, visited, episode)
    return ProbeResult(
        agent=str(trained.folder),
        env=trained.config.env.id,
        episodes=episodes,
        seed=seed,
        actor=actor,
        critic=critic,
        uses=judge_use(by, unchanged, ablations, length, policy, actor, critic),
        reaches=judge_reach(policy),
        follows=judge_patching(policy),
        depends=judge_dependence(dependence),
        decides=judge_contents(contents),
        needs=judge_need(by, unchanged, compared, actor),
        source=by,
        whole=unchanged,
        ablations=ablations,
        length=length,
        policy=policy,
        controls=compared,
        values=probe_critic(agent, trained.config, trained.folder, record),
        readout=readout,
        dependence=dependence,
        replays=measure_replays(agent, record, episode, seed) if visited else [],
        contents=contents,
    )


class Played(NamedTuple):
    """All episodes of a probe.

    episode  number of the episode of each recorded step (T, N); -1: it does not count
    visited  mean and deviation of the states; None: the actor has no memory
    others   the episodes of each control
    """

    whole: EpisodeScores
    record: Record
    episode: Array
    visited: Spread | None
    plays: list[AlteredPlay]
    policy: OpenLoop | None
    others: list[EpisodeScores]


def _play_all(trained: Trained, episodes: int, seed: int, controls: Sequence[Trained]) -> Played:
    """The episodes of the agent, with its memory unchanged and altered, and of the controls."""
    agent, env = trained.agent, trained.config.env
    envs = make_for_evaluation(replace(env, num_envs=min(episodes, MAX_ENVS)), trained.factory)
    try:
        check_spaces(agent, envs, env.id)
        whole, record = record_deterministic(agent, envs, episodes, seed)
        # All plays share environments and seeds with `whole`, so that losses can be paired by episode.
        episode = number_episodes(record, episodes)
        visited = measure_spread(agent.actor, record) if has_memory(agent.actor) else None
        plays, policy = _alter_memory(agent, envs, seed, whole, record, visited, episode)
        others = [_play_control(control, envs, episodes, seed) for control in controls]
    finally:
        envs.adapter.close()
    return Played(whole, record, episode, visited, plays, policy, others)


def _alter_memory(
    agent: Agent,
    envs: Envs,
    seed: int,
    whole: EpisodeScores,
    record: Record,
    visited: Spread | None,
    episode: Array,
) -> tuple[list[AlteredPlay], OpenLoop | None]:
    """The same episodes with each alteration of the actor's memory, in a closed and in an open loop."""
    if visited is None:
        return [], None
    episodes, recorded = len(whole.returns), record_sequences(agent.actor, record)
    alterations = list_alterations(visited, recorded, int(whole.lengths.max()), seed)
    plays = play_altered(agent, envs, episodes, seed, whole, alterations)
    return plays, measure_open_loop(agent, record, alterations, recorded, episode)


def _read_memory(
    trained: Trained, record: Record, seed: int, visited: Spread | None, episode: Array
) -> tuple[list[ReadOut], Contents | None]:
    """Read-outs of the memory state, and the policy without what they read."""
    agent = trained.agent
    material = collect_material(agent, trained.config, record, seed)
    if material is None:
        return [], None
    readout = material.read()
    if visited is None:
        return readout, None
    return readout, measure_contents(agent, record, material, readout, visited, episode, seed)


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
