"""Environments of several agents, each one sequence of the batch with its own steps, ends and memory."""

import copy
import itertools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pettingzoo")

import recollect
from recollect.commands.doctor import check_environment
from recollect.common.errors import EnvDataError, EnvFailedError, UsageError
from recollect.config.assembly import from_dict
from recollect.config.data import to_dict
from recollect.envs import EnvConfig, is_third_party, make
from recollect.envs.spaces import ACTION_MASK, HIDDEN
from recollect.envs.suites import pettingzoo
from recollect.learn import ppo
from recollect.run.dataset import read
from recollect.run.evaluate import evaluate
from recollect.run.teaching import record_episodes

from ..helpers import (
    SMALL,
    StopAt,
    T,
    assert_same_end,
    branch,
    largest,
    metrics_of,
    prepare,
    relearn,
    roll,
    run_quietly,
    shorten_checks,
    small_config,
)
from . import teams
from .teams import NAMES, PLAN, Script, total

HERE = f"pettingzoo:{teams.__name__}"
OPTIONS = {
    "env.num_envs": 3,
    "ppo.num_steps": 16,
    "ppo.num_minibatches": 2,
    "rollouts": 4,
    "steps": None,
    "val_check_interval": 2,
    "val_episodes": 2,
    "actor.hidden": [8],
    "critic.hidden": [8],
}


def envs_of(factory=Script, num_envs=2, **options):
    return make(EnvConfig(id="callable-team", num_envs=num_envs, **options), factory)


def zeros(envs):
    return np.zeros((envs.num_envs, envs.action_spec.width), dtype=np.int64)


# The interface ----------------------------------------------------------------------------------


def test_the_rows_of_each_agent_by_the_plan():
    envs = envs_of(num_envs=1)
    obs = envs.reset([5, 6])["obs"].copy()
    assert envs.agents == ("a", "b") and envs.num_envs == 2
    assert not envs.adapter.waiting().any()
    table = [(obs[:, 1:3].tolist(), None)]
    for _ in range(11):
        step = envs.step(zeros(envs))
        flags = zip(step.terminated, step.truncated, step.waiting, strict=True)
        letters = ["T" if t else "C" if c else "w" if w else "." for t, c, w in flags]
        table.append((step.obs["obs"][:, 1:3].tolist(), "".join(letters), step.reward.tolist()))
    assert table == [
        ([[0, 0], [0, 0]], None),
        ([[0, 1], [0, 1]], "..", [11, 21]),
        ([[0, 2], [0, 2]], "T.", [12, 22]),
        ([[0, 2], [0, 3]], "w.", [0, 23]),  # a waits, with its final observation
        ([[0, 2], [0, 4]], "wC", [0, 24]),
        ([[1, 0], [1, 0]], "..", [0, 0]),  # the step after the last end resets
        ([[1, 1], [1, 1]], ".T", [11, 21]),
        ([[1, 2], [1, 1]], ".w", [12, 0]),
        ([[1, 3], [1, 1]], "Cw", [13, 0]),
        ([[0, 0], [2, 0]], "w.", [0, 0]),  # a is absent: nothing of its last episode is left
        ([[0, 0], [2, 1]], "w.", [0, 21]),
        ([[0, 0], [2, 2]], "wT", [0, 22]),
    ]


def test_an_agent_that_is_absent_at_first_waits_from_the_reset():
    envs = envs_of(lambda: Script([PLAN[2], PLAN[0]]), num_envs=1)
    envs.reset([1, 2])
    assert envs.adapter.waiting().tolist() == [True, False]


def test_environments_begin_from_the_seed_of_their_first_agent_however_they_are_split():
    together, seeds = envs_of(num_envs=4), [11, 12, 13, 14, 15, 16, 17, 18]
    halves = [envs_of(num_envs=2), envs_of(num_envs=2)]
    whole = together.reset(seeds)["obs"]
    parts = [envs.reset(part)["obs"] for envs, part in zip(halves, (seeds[:4], seeds[4:]), strict=True)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    assert len(np.unique(whole[:, 3])) == 4  # one draw for each environment


def test_worker_processes_give_the_same_rows():
    local, workers = envs_of(), envs_of(backend="workers")
    try:
        np.testing.assert_array_equal(local.reset([1, 2, 3, 4])["obs"], workers.reset([1, 2, 3, 4])["obs"])
        for _ in range(20):
            one, other = local.step(zeros(local)), workers.step(zeros(local))
            np.testing.assert_array_equal(one.obs["obs"], other.obs["obs"])
            for name in ("reward", "terminated", "truncated", "waiting"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    finally:
        workers.adapter.close()


def test_a_time_limit_truncates_the_agents_that_still_play():
    envs = envs_of(num_envs=1, time_limit=3)
    envs.reset([1, 2])
    assert envs.adapter.time_limit == 3
    steps = [envs.step(zeros(envs)) for _ in range(3)]
    assert steps[1].terminated.tolist() == [True, False] and not steps[1].truncated.any()
    assert steps[2].truncated.tolist() == [False, True] and steps[2].waiting.tolist() == [True, False]


@pytest.mark.parametrize("backend", ["gymnasium", "workers"])
@pytest.mark.filterwarnings("ignore")
def test_a_failure_aborts_the_episodes_of_the_agents_that_play(backend):
    envs = envs_of(teams.Raises, num_envs=4, backend=backend, on_error="restart")
    envs.reset(list(range(8)))
    try:
        idle, aborted = np.zeros(8, dtype=bool), 0
        for _ in range(60):
            step = envs.step(zeros(envs))
            lost = np.zeros(8, dtype=bool) if step.aborted is None else step.aborted
            aborted += lost.any()
            assert (step.truncated[lost] & ~step.terminated[lost]).all() and (step.reward[lost] == 0).all()
            pairs = lost.reshape(4, 2)
            assert (pairs.any(1) <= (pairs | idle.reshape(4, 2)).all(1)).all()  # all who played
            idle = step.terminated | step.truncated | step.waiting
        assert aborted > 0 and envs.adapter.restarts > 0
    finally:
        envs.adapter.close()


@pytest.mark.filterwarnings("ignore")
def test_no_agent_of_an_aborted_episode_is_counted_or_recorded(tmp_path):
    config = small_config("team", rollouts=1)
    config = replace(config, env=replace(config.env, on_error="restart"))
    # b has ended where the failure ends the episode of a.
    trained = run_quietly(config, tmp_path, factory=lambda: teams.Raises(PLAN[1:2]))
    played = trained.evaluate(12)
    assert played.by_agent == {"a": [36.0] * 12, "b": [21.0] * 12} and played.lengths == [3] * 12
    data = record_episodes(trained, 12)
    assert sorted(data.returns.tolist()) == [21.0] * 12 + [36.0] * 12
    draws = [{row[3] for row in data.obs["obs"] if row[0] == agent} for agent in (0, 1)]
    assert draws[0] == draws[1] and len(draws[0]) == 12  # both are of the same episodes of the team


def test_the_identity_of_the_agent_is_an_input_on_request():
    envs = envs_of(agent_id=True)
    obs = envs.reset([1, 2, 3, 4])
    assert obs["obs.agent"].ravel().tolist() == [0, 1, 0, 1]
    assert envs.obs_spec.leaves["obs.agent"].width == 2
    assert obs["obs.observation"].shape == (4, 4)


def test_the_state_of_the_environment_is_for_critics_alone():
    envs = envs_of(hidden=True)
    assert envs.reset([1, 2, 3, 4])[HIDDEN].tolist() == [[0, 0]] * 4
    assert envs.step(zeros(envs)).obs[HIDDEN].tolist() == [[0, 1]] * 4


def test_environments_that_act_in_turn_are_converted_where_they_allow_it():
    one, other = envs_of(teams.turned), envs_of(teams.Fair)
    np.testing.assert_array_equal(one.reset([1, 2, 3, 4])["obs"], other.reset([1, 2, 3, 4])["obs"])
    for _ in range(9):
        a, b = one.step(zeros(one)), other.step(zeros(other))
        np.testing.assert_array_equal(a.obs["obs"], b.obs["obs"])
        np.testing.assert_array_equal(a.reward, b.reward)


# Learning ---------------------------------------------------------------------------------------

ends = st.tuples(st.integers(1, 6), st.booleans())


@st.composite
def plans(draw):
    """Names of agents, and episodes in which at least one of them takes part, with ends in any order."""
    names = NAMES[: draw(st.integers(1, 4))]
    episode = st.fixed_dictionaries({name: st.none() | ends for name in names}).filter(
        lambda x: any(x.values())
    )
    return names, draw(st.lists(episode, min_size=1, max_size=4))


def learner_of(names, plan, memory="gru", num_envs=2, normalize=False):
    envs = envs_of(lambda: Script(plan, names), num_envs).adapter
    return prepare(branch(memory), branch("lstm"), envs, normalize=normalize)


def rows_of(rollout, entry, times):
    """Some rows of one entry, as a batch of one."""
    return rollout.sent.rows.map(lambda x: x[times, entry : entry + 1])


def episodes_of(rollout, entry):
    """(first row, rows that act) of the episodes of an entry that begin in the rollout."""
    first, valid = rollout.rows.first[:T, entry].tolist(), rollout.valid[:, entry].tolist()
    for start in np.flatnonzero(first):
        count = len(list(itertools.takewhile(bool, valid[start:T])))
        yield int(start), count


@settings(max_examples=25, deadline=None)
@given(plans())
def test_the_memory_of_an_agent_gets_its_own_observations_and_no_others(drawn):
    names, plan = drawn
    s = learner_of(names, plan)
    for _ in range(2):
        roll(s)
        (log_probs, values), (acted, valued) = relearn(s)
        assert largest(((log_probs, values), (acted, valued))) < 1e-9
        for entry in range(s.rollout.num_envs):
            for start, count in episodes_of(s.rollout, entry):
                rows = rows_of(s.rollout, entry, slice(start, start + count))
                # By the plan alone: agent, episode and step of every observation.
                seen, name = rows.obs["obs"][:, 0], names[entry % len(names)]
                assert (seen[:, 0] == NAMES.index(name)).all() and (seen[:, 1] == seen[0, 1]).all()
                assert seen[:, 2].tolist() == list(range(count))
                length, terminates = plan[int(seen[0, 1]) % len(plan)][name]
                assert count == min(length, T - start)
                if count == length:
                    last = start + count - 1
                    assert (
                        bool(s.rollout.terminated[last, entry])
                        == terminates
                        != bool(s.rollout.truncated[last, entry])
                    )
                # Alone, from an empty memory, the agent does the same.
                with torch.no_grad():
                    params, _ = s.agent.actor(rows._replace(galleries={}), s.agent.initial_state(1).actor)
                action = s.rollout.action[start : start + count, entry : entry + 1]
                alone = s.agent.policy.evaluate(params, action)[0][:, 0]
                kept = s.rollout.log_prob[start : start + count, entry]
                assert float((alone - kept).abs().max()) < 1e-9


@settings(max_examples=12, deadline=None)
@given(plans())
def test_episodes_and_steps_are_counted_by_the_plan(drawn):
    names, plan = drawn
    s = learner_of(names, plan)
    for _ in range(6):
        roll(s)
        s.learner.update_statistics(s.rollout)
        for episode in s.learner.episodes.latest:
            name = names[episode.env % len(names)]
            lengths = {one[name][0] for one in plan if one[name]}
            assert episode.length in lengths and episode.return_ == total(name, episode.length)
    acted = int(s.rollout.valid[:T].sum())
    assert s.learner.step >= 6 * 2 and acted <= T * s.rollout.num_envs


def update_with(change):
    """The weights after an update, where some rows of the rollout were changed before it."""
    s = learner_of("ab", PLAN, normalize=True)
    s.learner.rewards.active = True
    roll(s)
    s.learner.update_statistics(s.rollout)
    roll(s)
    change(s.rollout)
    s.rollout._sent = s.rollout._outcome = None
    s.plan = replace(s.plan, ppo=replace(s.plan.ppo, update_epochs=2))
    metrics = ppo.update(s.learner, s.rollout, s.plan, 4)
    s.learner.update_statistics(s.rollout)
    return s, metrics


def waiting_rows(rollout):
    """Rows (T, N) that are neither of an episode nor a tail row."""
    ended = rollout.terminated | rollout.truncated
    tail = torch.cat([torch.zeros_like(ended[:1]), ended[:-1]])
    return ~rollout.valid[:T] & ~tail


def spoil(rows, rollout):
    generator = torch.Generator().manual_seed(0)
    for field in (rollout.rows.obs["obs"][:T], rollout.rows.prev_reward[:T], rollout.reward):
        field[rows] = 5 * torch.randn(field[rows].shape, generator=generator, dtype=field.dtype)
    rollout.action[rows] = 2
    rollout.log_prob[rows] = -9.0
    rollout.value[:T][rows] = 7.0


def test_waiting_rows_enter_no_gradient_and_no_statistic():
    one, metrics = update_with(lambda rollout: None)
    waits = waiting_rows(one.rollout)
    waits[0] = False  # row 0 may be a tail row of the rollout before
    assert waits.sum() > 5
    other, others = update_with(lambda rollout: spoil(waits, rollout))
    assert metrics == others
    for p, q in zip(one.agent.parameters(), other.agent.parameters(), strict=True):
        assert torch.equal(p, q)
    assert one.learner.step == other.learner.step
    np.testing.assert_array_equal(one.learner.episodes.recent, other.learner.episodes.recent)
    for name, x in one.learner.rewards.tensors().items():
        assert torch.equal(x, other.learner.rewards.tensors()[name])
    for p, q in zip(one.agent.buffers(), other.agent.buffers(), strict=True):
        assert torch.equal(p, q)
    # The control: the reward of one row that is not of them changes the update.
    assert one.rollout.valid[1, 1]
    changed, _ = update_with(lambda rollout: rollout.reward.__setitem__((1, 1), 99.0))
    assert any(
        not torch.equal(p, q) for p, q in zip(one.agent.parameters(), changed.agent.parameters(), strict=True)
    )


def test_a_resumed_run_ends_like_one_without_a_stop(tmp_path, monkeypatch):
    env = EnvConfig(
        id=HERE, num_envs=4, backend="gymnasium", normalize_obs=True, normalize_reward=True, threads=1
    )
    config = small_config(env=env, actor=branch("gru"), critic=SMALL, barrier=2)
    whole = run_quietly(config, tmp_path, "whole")
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(5))
    stopped = run_quietly(config, tmp_path, "stopped")
    assert stopped.summary["iteration"] < 10
    monkeypatch.undo()
    with pytest.raises(UsageError, match="allow it with -e"):
        recollect.resume(stopped.folder, quiet=True)
    resumed = recollect.resume(stopped.folder, env=HERE, quiet=True)
    assert_same_end(whole.folder, resumed.folder)


@pytest.mark.parametrize("kernels", ["torch", "native"])
def test_both_engines_train_agents_that_wait(kernels, tmp_path):
    options = {**OPTIONS, "actor": "gru", "critic": "gru", "kernels": kernels}
    trained = recollect.train(Script, options=options, out=tmp_path, quiet=True)
    for row in metrics_of(trained.folder):
        assert row["ratio_error"] < 1e-4 and row["value_error"] < 1e-3
    returns = {(x.env % 2, x.length): x.return_ for x in trained.episodes()}
    assert returns == {(0, 2): 23, (0, 3): 36, (1, 4): 90, (1, 1): 21, (1, 2): 43}


@pytest.mark.parametrize("source", ["info", "dict"])
def test_masks_of_agents_are_kept_in_training_and_evaluation(source, tmp_path):
    options = {**OPTIONS, "env.action_mask": True, "actor": "gru"}
    trained = recollect.train(lambda: teams.Gates(source), options=options, out=tmp_path, quiet=True)
    assert len(trained.evaluate(6).returns) == 6
    envs = envs_of(lambda: teams.Gates(source), action_mask=True)
    assert envs.reset([1, 2, 3, 4])[ACTION_MASK].tolist() == [[1, 0, 0], [0, 1, 0]] * 2


@pytest.mark.filterwarnings("ignore:environment")
def test_a_failure_of_every_environment_needs_no_masks():
    class Fails(teams.Gates):
        def step(self, actions):
            raise RuntimeError("crashed")

    envs = envs_of(lambda: Fails("info"), num_envs=1, action_mask=True, on_error="restart")
    envs.reset([1, 2])
    step = envs.step(zeros(envs))
    assert step.aborted.all() and step.obs[ACTION_MASK].all()
    assert not envs.step(zeros(envs)).truncated.any() and envs.adapter.restarts == 1


def test_without_masks_a_closed_action_is_taken(tmp_path):
    with pytest.raises(EnvFailedError, match="is closed to"):
        recollect.train(teams.Gates, options=OPTIONS, out=tmp_path, quiet=True)


# Episodes ---------------------------------------------------------------------------------------


def test_an_evaluation_has_the_mean_of_each_episode_and_the_returns_of_each_agent():
    result = evaluate(None, EnvConfig(id="callable-script"), 2, factory=lambda: Script(PLAN[:1]))
    assert result.returns == [(23 + 90) / 2] * 2 and result.lengths == [4, 4]
    assert result.by_agent == {"a": [23, 23], "b": [90, 90]}
    result = evaluate(None, EnvConfig(id="callable-script"), 1, factory=lambda: Script(PLAN[2:]))
    assert result.returns == [43] and result.lengths == [2]
    assert result.as_json()["by_agent"] == {"a": [None], "b": [43]}


def test_agents_of_one_environment_alone_play_like_the_environment_itself(tmp_path):
    trained = recollect.train(
        lambda: Script(names="a", plan=[{"a": (3, True)}]), options=OPTIONS, out=tmp_path, quiet=True
    )
    result = trained.evaluate(5)
    assert result.returns == [36] * 5 and result.lengths == [3] * 5


def test_recorded_episodes_are_those_of_single_agents(tmp_path):
    trained = recollect.train(Script, options=OPTIONS, out=tmp_path / "runs", quiet=True)
    from recollect.run.dataset import write

    write(tmp_path / "episodes.npz", record_episodes(trained, 2))
    data = read(tmp_path / "episodes.npz")
    assert sorted(data.returns.tolist()) == [23, 23, 90, 90]
    for start, stop in data.bounds:
        seen = data.obs["obs"][start:stop]
        assert len({(agent, episode) for agent, episode in seen[:, :2].tolist()}) == 1
        assert seen[:, 2].tolist() == list(range(stop - start))


def test_one_agent_is_watched_and_all_are_filmed(tmp_path):
    pytest.importorskip("PIL")
    from recollect.run.film import render

    trained = recollect.train(Script, options={**OPTIONS, "actor": "gru"}, out=tmp_path, quiet=True)
    page = recollect.watch(trained, tmp_path / "page.html", episodes=2).read_text()
    episode = json.loads(page.split('id="data">')[1].split("</script>")[0])["episodes"][0]
    assert episode["score"] == 23 and len(episode["reward"]) == 2
    config = replace(trained.config.env, id=HERE)
    assert render(trained.agent, config, str(tmp_path / "film.gif"), 1, 0) == [(23 + 90) / 2]


def test_classes_functions_instances_and_ids_train_alike(tmp_path):
    given = [Script, lambda: Script(), Script(), HERE, f"{HERE}:Script"]
    runs = [
        recollect.train(env, options=OPTIONS, seed=2, out=tmp_path / str(i), quiet=True)
        for i, env in enumerate(given)
    ]
    for run in runs[1:]:
        for p, q in zip(runs[0].agent.parameters(), run.agent.parameters(), strict=True):
            assert p.equal(q)


def test_the_doctor_examines_a_team(monkeypatch):
    shorten_checks(monkeypatch)
    findings = {finding.name: finding.result for finding in check_environment(HERE)}
    assert "barrier" in findings["tier"] and findings["repeats"].startswith("yes")


@pytest.mark.parametrize("source", ["info", "dict"])
def test_random_actions_keep_to_the_masks_of_agents(source):
    # All other actions than the allowed one are errors.
    assert recollect.evaluate("random", 4, env=lambda: teams.Gates(source)).by_agent.keys() == {"a", "b"}


def test_the_doctor_takes_allowed_actions_in_a_team(monkeypatch):
    shorten_checks(monkeypatch)
    findings = {finding.name: finding.result for finding in check_environment(f"{HERE}:Gates")}
    assert "steps" not in findings and findings["repeats"].startswith("yes")


def test_ids_of_the_registry_are_built_by_it(monkeypatch):
    registry = dict.fromkeys(["toys/script-v1"])
    monkeypatch.setattr("pettingzoo.parallel_registry", registry, raising=False)
    monkeypatch.setattr("pettingzoo.make", lambda kind, name: Script(), raising=False)
    envs = make(EnvConfig(id="pettingzoo:toys/script-v1", num_envs=1))
    assert envs.agents == ("a", "b") and "toys/script-v1" in pettingzoo.listing()
    with pytest.raises(
        UsageError, match=r"toys/scrip-v1 is unknown to PettingZoo; did you mean toys/script-v1"
    ):
        make(EnvConfig(id="pettingzoo:toys/scrip-v1"))


# Errors -----------------------------------------------------------------------------------------

ERRORS = [
    ("pettingzoo:nowhere", "environment pettingzoo:nowhere: module nowhere does not import"),
    ("pettingzoo:", "environment pettingzoo: names no module"),
    (f"{HERE}:missing", r"has no function missing; name one as pettingzoo:tests\.envs\.teams:function"),
    (f"{HERE}:NOT_A_FUNCTION", "has no function NOT_A_FUNCTION"),
    ("pettingzoo:json", "module json has no function parallel_env or env"),
    (f"{HERE}:number", "returned 3; it must return an environment of PettingZoo"),
    (f"{HERE}:Turns", "the agents of turns act in turn .* is_parallelizable is not True"),
    (f"{HERE}:Uneven", r"one observation space: that of a is Box\(.*\(1,\).* that of b is Box\(.*\(2,\)"),
    (f"{HERE}:Unnamed", "script has no `possible_agents`"),
]


@pytest.mark.parametrize(("env_id", "message"), ERRORS)
def test_what_is_no_team_is_named(env_id, message):
    with pytest.raises(UsageError, match=message):
        make(EnvConfig(id=env_id))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Vanishes", "agent a left `agents` without an end"),
        ("Silent", "script returned no observation of agent"),
        ("Wide", r"agent a of shape \(5,\) that is not in its space"),
        ("Overflows", "agent a of type int64 with values from 300 to 300 that is not in its space"),
        ("Empty", "no agent takes part in the episode"),
        ("Unpaid", "script returned the reward None of agent a; it must be one number"),
        ("OldStep", "step of script returned dict, dict, dict, dict; PettingZoo's returns 5 dicts by agent"),
        ("OldReset", "reset of script returned dict; PettingZoo's returns 2 dicts by agent, observations"),
        ("Alone", "step of script returned ndarray, float, bool, bool, dict; PettingZoo's returns 5 dicts"),
        ("Succeeds", "script: agent a reported is_success = 'yes' in info, which is of type str"),
    ],
)
@pytest.mark.parametrize("backend", ["gymnasium", "workers"])
def test_an_environment_against_the_rules_is_named(name, message, backend):
    envs = make(EnvConfig(id=f"{HERE}:{name}", num_envs=1, backend=backend))
    try:
        with pytest.raises(EnvDataError, match=message):
            envs.reset([1, 2])
            envs.step(zeros(envs))
    finally:
        envs.adapter.close()


@pytest.mark.parametrize("backend", ["gymnasium", "workers"])
def test_every_agent_of_a_team_has_its_own_success(backend):
    envs = make(EnvConfig(id=f"{HERE}:Successful", num_envs=2, backend=backend))
    envs.reset([1, 2, 3, 4])
    seen = {}
    for _ in range(6):
        step = envs.step(zeros(envs))
        ended = step.terminated | step.truncated
        for row in np.flatnonzero(ended):
            seen.setdefault(row, set()).add(float(step.success[row]))
    envs.adapter.close()
    assert seen == {0: {1.0}, 1: {0.0}, 2: {1.0}, 3: {0.0}}


def test_options_that_teams_do_not_have_are_refused():
    with pytest.raises(UsageError, match="trials of several agents are not supported"):
        make(EnvConfig(id=HERE, trial=2))
    with pytest.raises(UsageError, match=r"env\.backend own does not have"):
        make(EnvConfig(id=HERE, backend="own"))
    with pytest.raises(UsageError, match=r"env\.agent_id needs several agents .* CartPole-v1 has one"):
        make(EnvConfig(id="CartPole-v1", num_envs=1, agent_id=True))


def test_one_environment_for_all_is_refused():
    shared = Script()
    with pytest.raises(UsageError, match="returned the same Script again"):
        envs_of(lambda: shared)


def test_a_file_imports_no_module_without_permission():
    assert is_third_party(HERE) and not is_third_party("popgym:RepeatPreviousEasy")
    config = to_dict(small_config(HERE))
    with pytest.raises(UsageError, match="which imports a module: allow it with -e"):
        from_dict(copy.deepcopy(config), [], "the file")
    assert from_dict(config, [HERE], "the file").env.id == HERE
