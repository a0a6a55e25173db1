"""Games in turn: the rows of the learner by the moves of a script, and opponents that are past selves."""

from dataclasses import replace
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pettingzoo")

import recollect
from recollect.agent.agent import build_agent
from recollect.common.errors import EnvDataError, EnvFailedError, UsageError
from recollect.common.tree import leaves
from recollect.config.assembly import assemble
from recollect.config.config import InitConfig
from recollect.config.data import config_hash
from recollect.envs import EnvConfig, make
from recollect.envs.opponents import RandomOpponents
from recollect.envs.spaces import ACTION_MASK, HIDDEN
from recollect.learn import opponents as opponents_module
from recollect.learn import ppo
from recollect.learn.learner import begin
from recollect.learn.opponents import PARTS, PastSelves
from recollect.learn.settings import Plan, PPOConfig
from recollect.run.build import resolved_config

from ..helpers import (
    SMALL,
    StopAt,
    assert_same_end,
    branch,
    lively,
    metrics_of,
    run_quietly,
    set_status,
    small_config,
)
from . import teams
from .teams import NAMES, BadRounds, ClosedRounds, Drawn, Plain, Rounds

HERE = f"pettingzoo:{teams.__name__}:Rounds"
OPTIONS = {
    "env.self_play": 3,
    "env.num_envs": 4,
    "ppo.num_steps": 16,
    "ppo.num_minibatches": 2,
    "rollouts": 4,
    "steps": None,
    "val_check_interval": 2,
    "val_episodes": 2,
    "actor.hidden": [8],
    "critic.hidden": [8],
}


def games(factory=Rounds, num_envs=2, self_play=2, **options):
    return make(EnvConfig(id="callable-game", num_envs=num_envs, self_play=self_play, **options), factory)


def actions(envs, random):
    return random.integers(3, size=(envs.num_envs, 1))


PLAN = Plan(ppo=PPOConfig(num_steps=16, num_minibatches=2, bptt=4, learning_rate=1e-2), seed=5, rollouts=3)


def fresh_agent(envs):
    """A float64 agent with a GRU that gets its previous action and reward."""
    config = replace(branch("gru"), prev_action=True, prev_reward=True)
    return lively(build_agent((envs.obs_spec, envs.action_spec), config, SMALL, True, seed=3)).double()


def learner_of(envs, keep=3):
    """A learner in games against its past selves."""
    return begin(envs, fresh_agent(envs), PLAN, self_play=keep)


# Rows -------------------------------------------------------------------------------------------


def expected_rows(game, length):
    """(agent, move, action, reward, ended) of the learner's turns in a game, by its log.

    The learner of an episode is known from the agent in its observations.
    """
    rows = []
    for learner, episode in length:
        moves = [(agent, action) for k, agent, action in game.log if k == episode]
        names = game.possible_agents
        for i, (agent, action) in enumerate(moves):
            if agent != names[learner]:
                continue
            later = next((j for j in range(i + 1, len(moves)) if moves[j][0] == agent), len(moves))
            reward = 10.0 * (NAMES.index(agent) + 1) + action - sum(1 + x for _, x in moves[i + 1 : later])
            if agent not in [name for name, _ in moves[:i]]:  # what it got before its first turn counts there
                reward -= sum(1 + x for _, x in moves[:i])
            last = len(moves) == game.moves[episode % len(game.moves)]
            rows.append((learner, i, action, reward, last and later == len(moves)))
    return rows


scripts = st.tuples(st.lists(st.integers(1, 6), min_size=1, max_size=4), st.integers(2, 3), st.booleans())


@settings(max_examples=30, deadline=None)
@given(scripts, st.integers(0, 9))
def test_a_step_is_a_turn_of_the_learner_and_its_reward_what_follows_until_the_next(script, seed):
    moves, agents, limit = script
    if max(moves) < agents:  # some agents may never have a turn, and games without one are passed over
        moves = [*moves, agents]
    envs = games(partial(Rounds, moves, NAMES[:agents], limit), num_envs=1)
    random = np.random.default_rng(seed)
    obs, idle, seen, episodes = envs.reset([seed])["obs"].copy(), False, [], []
    game = envs.adapter._games[0].env
    for _ in range(25):
        if not idle and (not episodes or episodes[-1][1] != game.episode):
            episodes.append((int(obs[0, 0]), game.episode))
        action = actions(envs, random)
        step = envs.step(action)
        ended = bool(step.terminated[0] or step.truncated[0])
        if idle:
            assert step.reward[0] == 0 and not ended  # the step after an end begins a game
        else:
            row = (int(obs[0, 0]), int(obs[0, 1]), int(action[0, 0]), float(step.reward[0]), ended)
            seen.append(row)
            assert step.obs["obs"][0, 0] == obs[0, 0]  # one seat for the whole episode
            assert not ended or (bool(step.truncated[0]), bool(step.terminated[0])) == (limit, not limit)
        obs, idle = step.obs["obs"].copy(), ended
    # Of a turn that no later turn of the learner has followed yet, there is no row.
    assert seen == expected_rows(game, episodes)[: len(seen)] and len(seen) > 5


@pytest.mark.parametrize("past_selves", [False, True])
def test_the_learner_has_every_seat_and_games_do_not_depend_on_those_beside_them(past_selves):
    """So processes may share them in any way."""

    def rows(envs, seeds):
        if past_selves:
            learner_of(envs)
        random = np.random.default_rng(0)
        first = envs.reset(seeds)["obs"].copy()
        taken = [np.full((len(seeds), 1), random.integers(3)) for _ in range(30)]
        return np.stack([first, *(envs.step(action).obs["obs"].copy() for action in taken)])

    whole = rows(games(num_envs=4), [1, 2, 3, 4])
    assert set(whole[:, :, 0].ravel()) == {0, 1}
    halves = [rows(games(num_envs=2), seeds) for seeds in ([1, 2], [3, 4])]
    np.testing.assert_array_equal(whole, np.concatenate(halves, 1))


def test_games_that_end_before_the_first_turn_of_the_learner_are_passed_over():
    envs = games(partial(Rounds, (1,)), num_envs=8)
    envs.reset(list(range(8)))
    for _ in range(10):
        step = envs.step(np.zeros((8, 1), dtype=np.int64))
        assert (step.reward[step.terminated] >= 10).all()  # it moved itself
    assert all(game.env.episode > 4 for game in envs.adapter._games)


def test_seats_do_not_follow_from_the_numbers_that_games_draw():
    envs = games(Drawn, num_envs=64)
    obs = envs.reset(list(range(64)))["obs"]
    learner_begins = (obs[:, 1] == 0).mean()
    assert 0.3 < learner_begins < 0.7


def test_successes_are_those_of_the_end():
    envs = games(Plain, num_envs=8)
    first = envs.reset(list(range(8)))["obs"][:, 0].copy()
    seen = [envs.step(np.zeros((8, 1), dtype=np.int64)) for _ in range(3)]
    assert np.isnan(seen[0].success if seen[0].success is not None else np.nan).all()
    ended = seen[2].terminated
    np.testing.assert_array_equal(seen[2].success[ended], (first == 0)[ended])
    assert ended.any() and np.isnan(seen[2].success[~ended]).all()


def test_a_success_that_is_no_number_is_named(monkeypatch):
    monkeypatch.setattr(Plain, "success", "yes")
    envs = games(Plain, num_envs=1)
    envs.reset([0])
    with pytest.raises(EnvDataError, match=r"environment 0 \(callable-game\) reported success = 'yes'"):
        for _ in range(3):
            envs.step(np.zeros((1, 1), dtype=np.int64))


def test_a_time_limit_counts_the_turns_of_the_learner():
    envs = games(partial(Rounds, (20,)), num_envs=1, time_limit=3)
    envs.reset([1])
    ends = [envs.step(np.zeros((1, 1), dtype=np.int64)).truncated[0] for _ in range(8)]
    assert ends == [False, False, True, False, False, False, True, False]


def test_the_seat_is_an_input_and_the_state_hidden_on_request():
    envs = games(agent_id=True, hidden=True)
    obs = envs.reset([1, 2])
    assert obs["obs.agent"].ravel().tolist() == obs["obs.observation"][:, 0].tolist()
    assert obs[HIDDEN].shape == (2, 2)


@pytest.mark.parametrize("source", ["info", "dict"])
def test_masks_hold_for_the_learner_and_its_opponents(source, tmp_path):
    options = {**OPTIONS, "env.action_mask": True, "actor": "gru"}
    trained = recollect.train(lambda: ClosedRounds(source), options=options, out=tmp_path, quiet=True)
    assert len(trained.evaluate(6).returns) == 6
    assert games(lambda: ClosedRounds(source), action_mask=True).reset([1, 2])[ACTION_MASK].sum() == 2


def test_masks_that_are_missing_after_the_end_are_not_missed(tmp_path):
    options = {**OPTIONS, "env.action_mask": True, "env.num_envs": 1, "ppo.num_minibatches": 1}
    trained = recollect.train(
        lambda: ClosedRounds(moves=(4,)), options=options, out=tmp_path, quiet=True
    )  # one game, so all games end at once
    assert len(trained.evaluate(1).returns) == 1


def test_simultaneous_games_are_played_in_turn():
    envs = games(teams.Fair, num_envs=1)
    envs.reset([3])
    total = sum(envs.step(np.zeros((1, 1), dtype=np.int64)).reward[0] for _ in range(3))
    assert total in (36, 66)  # of agent a or b


# Opponents --------------------------------------------------------------------------------------


class Spy:
    """Opponents that keep what they are asked."""

    def __init__(self, inner):
        self.inner, self.turns, self.actions, self.drawn = inner, [], [], []

    def begin(self, game, random):
        self.inner.begin(game, random)
        self.drawn.append((game, self.inner._opponents[game]))

    def act(self, turns):
        made = self.inner.act(turns)
        self.turns += [(turn, len([g for g, _ in self.drawn if g == turn.game])) for turn in turns]
        self.actions += list(made)
        return made


def test_an_opponent_acts_as_it_would_alone(monkeypatch):
    """Each of its sequences, through its memory, previous actions and rewards."""
    envs = games(partial(Rounds, (5, 8, 3), "abc"), num_envs=4)
    learner = learner_of(envs)
    policy = type(learner.agent.policy)
    monkeypatch.setattr(policy, "noise", lambda self, rng, shape: np.zeros((*shape, self.width, self.most)))
    past = learner.opponents
    generator = torch.Generator().manual_seed(0)
    for agent in [past._latest, *past._older]:  # four that differ
        with torch.no_grad():
            for p in agent.actor.parameters():
                p.add_(0.3 * torch.randn(p.shape, generator=generator, dtype=p.dtype))
    past._iterations = [1, 2, 3]
    spy = Spy(past)
    envs.adapter.play_against(spy)
    envs.reset([1, 2, 3, 4])
    random = np.random.default_rng(0)
    for _ in range(30):
        envs.step(actions(envs, random))
    sequences = {}
    for (turn, episode), action in zip(spy.turns, spy.actions, strict=True):
        sequences.setdefault((turn.game, episode, turn.seat), []).append((turn, int(action)))
    assert len(sequences) > 20 and max(map(len, sequences.values())) > 2
    for (game, episode, _), played in sequences.items():
        opponent = [agent for g, agent in spy.drawn if g == game][episode - 1]
        player = opponent.player()
        for turn, action in played:
            assert int(player.act(turn.obs, turn.reward)) == action


class OneAction(Rounds):
    """Rewards are the same in every game."""

    def action_space(self, agent):
        return spaces.Discrete(1)


def test_opponents_get_the_rewards_that_the_learner_gets():
    """Also those before the first turn of a seat, at its second one."""
    envs = games(partial(OneAction, (6,), "abc"), num_envs=6)
    spy = Spy(RandomOpponents(envs.action_spec))
    spy.begin = spy.inner.begin
    spy.act = lambda turns: spy.turns.extend(turns) or spy.inner.act(turns)
    envs.adapter.play_against(spy)
    envs.reset(list(range(6)))
    step = envs.step(np.zeros((6, 1), np.int64))
    envs.step(np.zeros((6, 1), np.int64))
    learned = {game.seat: reward for game, reward in zip(envs.adapter._games, step.reward, strict=True)}
    second = {}
    for turn in spy.turns:
        second.setdefault((turn.game, turn.seat), []).append(turn.reward)
    checked = [(rewards[1], learned[seat]) for (_, seat), rewards in second.items() if seat in learned]
    assert len(checked) > 3 and all(given == reward for given, reward in checked)


def test_half_of_the_games_are_against_the_latest_version():
    learner = learner_of(games())
    past = learner.opponents
    past._iterations = [0, 4, -1]
    random, drawn = np.random.default_rng(0), []
    for _ in range(4000):
        past.begin(0, random)
        drawn.append(past._opponents[0])
    shares = [np.mean([agent is other for agent in drawn]) for other in (past._latest, *past._older)]
    np.testing.assert_allclose(shares, [0.5, 0.25, 0.25, 0], atol=0.03)


@pytest.mark.parametrize("keep", [1, 2, 3, 8])
def test_older_versions_are_spread_evenly_over_training(keep, monkeypatch):
    monkeypatch.setattr(opponents_module, "_copy_weights", lambda *_: None)
    past = PastSelves(learner_of(games()).agent, games(), keep)
    for iteration in range(1, 300):
        past.follow(iteration)
        kept = sorted(x for x in past._iterations if x >= 0)
        assert kept[0] == 0 and len(kept) > min(keep, iteration) // 2
        gaps = set(np.diff(kept)) if len(kept) > 1 else set()
        assert len(gaps) <= 1 and gaps <= {past._interval}
        if keep > 2:
            assert iteration - kept[-1] < past._interval


def test_versions_have_the_weights_of_their_iterations():
    envs = games(num_envs=4)
    learner = learner_of(envs, keep=8)
    weights = [weights_of(learner.agent)]
    weights += [weights_of(learner.agent) for _ in ppo.train(envs, learner, PLAN)]
    past = learner.opponents
    assert past._iterations[:4] == [0, 1, 2, 3]
    for agent, expected in zip(past._older, weights, strict=False):
        assert all(torch.equal(x, expected[name]) for name, x in weights_of(agent).items())
    assert all(torch.equal(x, weights[3][name]) for name, x in weights_of(past._latest).items())
    # The control: training has changed them.
    assert not all(torch.equal(x, weights[3][name]) for name, x in weights[2].items())


def weights_of(agent):
    """Copies of all that acting depends on."""
    return {
        f"{part}.{name}": x.clone() for part in PARTS for name, x in getattr(agent, part).state_dict().items()
    }


def test_opponents_reset_their_memory_with_every_game():
    envs = games(partial(Rounds, (4,)), num_envs=2)
    learner = learner_of(envs)
    past = learner.opponents
    random = np.random.default_rng(0)
    for _ in range(9):
        envs.step(actions(envs, random))
    assert any(x.any() for x in leaves(past._memory).values())
    learner.restart(envs, 5)
    fresh = learner_of(games(partial(Rounds, (4,)), num_envs=2)).opponents
    fresh.load(past.tensors())
    past.restart()
    for x, y in zip(leaves(past._memory).values(), leaves(fresh._memory).values(), strict=True):
        assert torch.equal(x, y)


# Runs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernels", ["torch", "native"])
def test_a_resumed_run_ends_like_one_without_a_stop(kernels, tmp_path, monkeypatch):
    env = EnvConfig(
        id=HERE,
        num_envs=4,
        backend="gymnasium",
        normalize_obs=True,
        normalize_reward=True,
        threads=1,
        self_play=2,
    )
    config = small_config(env=env, actor=branch("gru"), critic=SMALL, barrier=2, kernels=kernels)
    whole = run_quietly(config, tmp_path, "whole")
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(5))
    stopped = run_quietly(config, tmp_path, "stopped")
    assert stopped.summary["iteration"] < 10
    monkeypatch.undo()
    resumed = recollect.resume(stopped.folder, env=HERE, quiet=True)
    assert_same_end(whole.folder, resumed.folder)
    for row in metrics_of(whole.folder):
        assert row["ratio_error"] < 1e-4


def test_a_run_without_a_checkpoint_restarts_against_the_agent_that_it_began_from(tmp_path):
    env = EnvConfig(id=HERE, num_envs=4, backend="gymnasium", self_play=2, threads=1)
    config = small_config(env=env, rollouts=2, save_interval=10)
    first = run_quietly(replace(config, seed=8), tmp_path, "first")
    begun = replace(config, init=InitConfig(path=str(first.folder)))
    whole = run_quietly(begun, tmp_path, "whole")
    weights = weights_of(whole.agent)
    set_status(whole.folder)
    (whole.folder / "checkpoints" / "last.safetensors").unlink()
    resumed = recollect.resume(whole.folder, env=HERE, quiet=True)
    assert all(torch.equal(x, weights[name]) for name, x in weights_of(resumed.agent).items())


def test_evaluations_and_pages_are_against_random_opponents(tmp_path):
    trained = recollect.train(Rounds, options={**OPTIONS, "actor": "gru"}, out=tmp_path, quiet=True)
    result = trained.evaluate(8)
    assert len(result.returns) == 8 and set(result.lengths) <= {1, 2, 3}
    assert recollect.watch(trained, tmp_path / "page.html", episodes=2).stat().st_size > 1000


def test_a_game_without_a_state_is_watched_probed_and_drawn(tmp_path):
    pytest.importorskip("PIL")
    trained = recollect.train(Plain, options={**OPTIONS, "actor": "gru"}, out=tmp_path, quiet=True)
    page = recollect.watch(trained, tmp_path / "page.html", episodes=1)
    assert "data:image" in page.read_text()
    assert recollect.probe(trained, 10).episodes == 10
    with pytest.raises(UsageError, match=r"rounds has no `state\(\)`, which is needed because `sees`"):
        games(Plain, hidden=True)


def test_checkpoints_come_often_because_games_are_short():
    config = assemble(["-e", HERE, "--env.self-play", "2", "--ppo.num-steps", "32"])
    resolved = resolved_config(config)
    assert resolved.barrier == resolved.save_interval == 32  # 10 times 100 turns


def test_games_by_ids_and_functions_are_the_same(tmp_path):
    runs = [
        recollect.train(env, options=OPTIONS, seed=2, out=tmp_path / str(i), quiet=True)
        for i, env in enumerate([Rounds, Rounds(), HERE])
    ]
    for run in runs[1:]:
        for p, q in zip(runs[0].agent.parameters(), run.agent.parameters(), strict=True):
            assert p.equal(q)


# Errors -----------------------------------------------------------------------------------------

FAULTS = [
    (
        "reset",
        EnvFailedError,
        r"environment \d \(callable-game\) failed in reset: ZeroDivisionError: no board",
    ),
    ("step", EnvFailedError, r"environment \d .* failed in step \d with action .*: no wind"),
    ("observe", EnvFailedError, r"environment 0 .* failed in last\(\) after step 0: .* no light"),
    ("wide", EnvDataError, r"observation of shape \(5,\)"),
    ("empty", EnvDataError, "rounds: no agent takes part in the game"),
    ("lost", EnvDataError, "ended without a last turn of agent"),
    ("one", EnvDataError, "5 turns without one of agent b, which learns"),
]


FOR_B = [
    ("nan for b", r"environment 0 \(callable-game\) gave agent b the observation array\(\[nan"),
    ("wide for b", r"gave agent b the observation array\(\[0., 0., 0., 0., 0.\].* not in its space"),
    ("blocked for b", r"gave agent b an action mask that allows no action at step \d: \[0 0 0\]"),
]


# Random opponents look at masks alone.
@pytest.mark.parametrize(
    ("fault", "message", "past_selves"), [*((*one, True) for one in FOR_B), (*FOR_B[2], False)]
)
def test_what_only_an_opponent_gets_is_checked_as_well(fault, message, past_selves):
    masked = fault == "blocked for b"
    envs = games(partial(BadRounds, "none"), num_envs=1, action_mask=masked and past_selves)
    if past_selves:
        envs.adapter.play_against(PastSelves(fresh_agent(envs), envs, 1))
    inner = getattr(envs.adapter, "inner", envs.adapter)
    inner._factory, inner._fresh = partial(BadRounds, fault), False
    seed = next(
        i for i in range(20) if np.random.default_rng((i, 1)).choice([0, 1]) == 0
    )  # seat a, which begins
    with pytest.raises(EnvDataError, match=message):
        envs.adapter.reset([seed])
        envs.adapter.step(np.zeros(1, dtype=np.int64))


@pytest.mark.parametrize(("fault", "error", "message"), FAULTS)
def test_a_game_against_the_rules_is_named(fault, error, message, monkeypatch):
    monkeypatch.setattr("recollect.envs.turns.MAX_TURNS", 5)
    envs = games(partial(BadRounds, fault), num_envs=8)
    if fault == "one":
        envs.adapter._factory = partial(Rounds, (10**6,), "ab")
        monkeypatch.setattr(Rounds, "step", lambda self, action: setattr(self, "agent_selection", "a"))
    with pytest.raises(error, match=message):
        envs.reset(list(range(8)))
        for _ in range(6):
            envs.step(np.zeros((8, 1), dtype=np.int64))


class FailsLater(BadRounds):
    """Only its first instances can be built."""

    built = 0

    def __init__(self):
        type(self).built += 1
        if self.built > 8:
            raise OSError("no licence left")
        super().__init__("none")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("reset", "failed in reset: ZeroDivisionError: no board"),
        ("observe", r"failed in last\(\) after step 0: ZeroDivisionError: no light"),
    ],
)
def test_an_error_at_the_start_of_a_run_names_the_game(fault, message, tmp_path):
    with pytest.raises(EnvFailedError, match=rf"environment 0 \(.*\) {message}"):
        recollect.train(partial(BadRounds, fault), options=OPTIONS, out=tmp_path, quiet=True)


def test_errors_of_the_test_of_a_seed_name_the_game():
    for fault, error, message in FAULTS:
        if fault in ("reset", "observe", "empty"):
            with pytest.raises(error, match=message):
                games(partial(BadRounds, fault)).adapter.check_seed(3)
    envs = games(FailsLater, num_envs=8)
    with pytest.raises(UsageError, match="cannot be built: OSError: no licence left"):
        envs.adapter.check_seed(3)


def test_an_error_of_the_state_names_the_game():
    config = EnvConfig(id="game", num_envs=2, self_play=1, hidden=True)
    with pytest.raises(EnvFailedError, match=r"environment 0 \(game\) failed in state\(\) .*: no wall"):
        make(config, partial(BadRounds, "state"))


def test_a_game_without_masks_is_named(tmp_path):
    options = {**OPTIONS, "env.action_mask": True}
    with pytest.raises(UsageError, match="gives no action mask"):
        recollect.train(lambda: ClosedRounds("nowhere"), options=options, out=tmp_path, quiet=True)


def test_options_that_games_do_not_have_are_refused():
    for options, message in [
        ({"backend": "workers"}, r"env\.backend workers does not have games of self-play"),
        ({"step_timeout": 3.0}, r"env\.step_timeout is for worker processes"),
        ({"on_error": "restart"}, r"env\.on_error restart is for worker processes"),
        ({"trial": 2}, "trials of several agents are not supported"),
    ]:
        with pytest.raises(UsageError, match=message):
            games(**options)
    with pytest.raises(
        UsageError, match=r"env\.self_play needs a game of several agents .* CartPole-v1 has one"
    ):
        make(EnvConfig(id="CartPole-v1", num_envs=1, self_play=2))
    with pytest.raises(UsageError, match=r"env\.self_play is -1; it must be at least 1, or 0"):
        EnvConfig(self_play=-1)
    with pytest.raises(
        UsageError, match=r"env\.self_play needs a game of several agents .*CartPole.* has one"
    ):
        games(lambda: gymnasium.make("CartPole-v1"))
    with pytest.raises(UsageError, match=r"returned 3; it must return an environment of PettingZoo"):
        games(lambda: 3)
    with pytest.raises(UsageError, match=r"Train with --env\.self-play"):
        games(self_play=0)
    with pytest.raises(UsageError, match=r"cannot be built: .* unexpected keyword argument 'foo'"):
        games(kwargs={"foo": 1})
    shared = Rounds()
    with pytest.raises(UsageError, match="returned the same Rounds again"):
        games(lambda: shared)


def test_ids_of_the_registry(monkeypatch):
    monkeypatch.setattr("pettingzoo.aec_registry", dict.fromkeys(["toys/rounds-v1"]), raising=False)
    monkeypatch.setattr("pettingzoo.make", lambda kind, name: {"aec": Rounds}[kind](), raising=False)
    assert make(EnvConfig(id="pettingzoo:toys/rounds-v1", num_envs=1, self_play=1)).adapter.seats == (
        "a",
        "b",
    )
    with pytest.raises(
        UsageError, match=r"the agents of .*rounds-v1 act in turn: train with --env\.self-play"
    ):
        make(EnvConfig(id="pettingzoo:toys/rounds-v1", num_envs=1))


def test_it_is_off_by_default_and_part_of_the_config():
    assert config_hash(assemble(["--env.self-play", "4"])) != config_hash(assemble([]))
