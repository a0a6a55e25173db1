"""Trials: what a task keeps, where memories are reset, and that runs of trials are like any other."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from benchmarks.trials import optimal_bandit, optimal_grid, references, thompson_bandit

import recollect
from recollect.agent.agent import build_agent
from recollect.common.errors import UsageError
from recollect.config.config import RunConfig
from recollect.config.presets import preset
from recollect.envs import EnvConfig, Envs, make
from recollect.envs.spaces import NEW_EPISODE
from recollect.envs.suites.meta import Bandit, Grid
from recollect.envs.trial import Trial
from recollect.learn import ppo
from recollect.learn.learner import begin
from recollect.learn.rollout import Rollout
from recollect.learn.settings import Plan, PPOConfig
from recollect.run.evaluate import evaluate
from recollect.run.onnx import ActorStep
from recollect.run.playing import play_episodes

from ..helpers import StopAt, assert_same_end, branch, metrics_of, run_quietly, small_config

K = 3


class Walk(gym.Env):
    """Episodes of 2 to 4 steps; the observation is the target that reset drew, and the time.

    keeps  whether the target is a task that it keeps by itself
    """

    observation_space = gym.spaces.Box(-1.0, 9.0, (2,))
    action_space = gym.spaces.Discrete(2)

    def __init__(self, keeps=False, cut=False):
        self.metadata = {"keeps_task": keeps}
        self.cut, self.target = cut, None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if self.target is None or (options or {}).get("new_task", True):
            self.target = self.np_random.random()
        self.time, self.length = 0, int(self.np_random.integers(2, 5))
        return self.look(), {}

    def look(self):
        return np.array([self.target, self.time], np.float32)

    def step(self, action):
        self.time += 1
        over = self.time == self.length
        return self.look(), 1.0 + self.time, over and not self.cut, over and self.cut, {}


def play(env, trials, seed=0):
    """(target, time, whether an episode begins) of each observation, trial by trial; and how each ended."""
    seen, ends = [], []
    for number in range(trials):
        obs, info = env.reset(seed=seed if number == 0 else None)
        rows, over = [(*obs, NEW_EPISODE in info)], False
        while not over:
            obs, _, terminated, truncated, info = env.step(0)
            rows.append((*obs, NEW_EPISODE in info))
            over = terminated or truncated
        seen.append(rows)
        ends.append((terminated, truncated))
    return seen, ends


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
def test_a_trial_is_k_episodes_of_one_task(keeps, cut):
    seen, ends = play(Trial(Walk(keeps, cut), K), 5)
    assert ends == [(not cut, cut)] * 5
    tasks = [{target for target, _, _ in rows} for rows in seen]
    assert all(len(task) == 1 for task in tasks) and len(set.union(*tasks)) == 5
    for rows in seen:
        assert [time == 0 for _, time, _ in rows] == [flag for *_, flag in rows]
        assert sum(flag for *_, flag in rows) == K


def test_a_task_that_is_kept_by_the_seed_repeats_all_else_and_one_of_the_environment_does_not():
    lengths = {}
    for keeps in (False, True):
        seen, _ = play(Trial(Walk(keeps), 8), 4)
        starts = [[t for t, row in enumerate(rows) if row[2]] for rows in seen]
        lengths[keeps] = [len(set(np.diff(times))) for times in starts]
    assert lengths[False] == [1, 1, 1, 1] and max(lengths[True]) > 1


@pytest.mark.parametrize("keeps", [False, True])
def test_the_seed_determines_all_trials(keeps):
    assert play(Trial(Walk(keeps), K), 4, seed=7) == play(Trial(Walk(keeps), K), 4, seed=7)
    assert play(Trial(Walk(keeps), K), 4, seed=7) != play(Trial(Walk(keeps), K), 4, seed=8)


def stream(backend):
    envs = make(EnvConfig(id="walk", num_envs=2, backend=backend, trial=K, time_limit=9), Walk)
    try:
        rows = [envs.reset([5, 6])]
        rows += [envs.step(np.zeros((2, 1), np.int64)).obs for _ in range(25)]
        return {name: np.stack([row[name].copy() for row in rows]) for name in rows[0]}, envs
    finally:
        envs.adapter.close()


def test_both_backends_give_the_same_trials_and_the_time_limit_of_a_trial():
    (one, envs), (other, workers) = stream("gymnasium"), stream("workers")
    assert set(one) == {"obs", NEW_EPISODE} and one[NEW_EPISODE].shape == (26, 2, 1)
    assert 6 < one[NEW_EPISODE].sum() < 26
    # The buffer of one backend is overwritten in place, so values are compared and not arrays.
    np.testing.assert_array_equal(one[NEW_EPISODE], other[NEW_EPISODE])
    assert envs.adapter.time_limit == workers.adapter.time_limit == 9 * K


@pytest.mark.parametrize(
    ("env_id", "backend"), [("poc", "auto"), ("probe:recall", "auto"), ("CartPole-v1", "envpool")]
)
def test_environments_that_cannot_keep_a_task_are_refused_in_one_line(env_id, backend):
    if backend == "envpool":
        pytest.importorskip("envpool")
    with pytest.raises(UsageError, match=f"env.trial 2: {env_id} .*cannot keep a task") as error:
        make(EnvConfig(id=env_id, num_envs=1, backend=backend, trial=2))
    assert "\n" not in str(error.value)
    # No advice to do what was done.
    with pytest.raises(UsageError, match="several episodes; take an environment of Gymnasium"):
        make(EnvConfig(id="poc", num_envs=1, backend="gymnasium", trial=2))


def test_no_automatic_choice_of_a_backend_stands_in_the_way_of_trials():
    for env_id in ("CartPole-v1", "Acrobot-v1"):
        envs = make(EnvConfig(id=env_id, num_envs=2, trial=2, time_limit=7))
        assert envs.adapter.backend == "gymnasium" and envs.adapter.time_limit == 14
        assert envs.reset([1, 2])[NEW_EPISODE].all()


def test_a_trial_has_at_least_one_episode():
    with pytest.raises(UsageError, match=r"env\.trial is 0"):
        EnvConfig(trial=0)


# Learning -------------------------------------------------------------------------------------


def learner_of(trial, steps=64, env=Walk, memory="gru"):
    config = RunConfig(
        env=EnvConfig(id="walk", num_envs=2, trial=trial), actor=branch(memory), critic=branch(memory)
    )
    envs = make(config.env, env)
    agent = build_agent((envs.obs_spec, envs.action_spec), config.actor, config.critic, False, 0).double()
    plan = Plan(ppo=PPOConfig(num_steps=steps, num_minibatches=1, gamma=0.9), seed=1, rollouts=1)
    learner = begin(envs, agent, plan)
    rollout = Rollout(agent, learner.row, steps, torch.float64)
    ppo.collect(envs, learner, rollout, plan, steps)
    ppo.value(learner, rollout, steps)
    return learner, rollout, plan


def test_memories_are_reset_once_a_trial_and_previous_rewards_pass_the_ends_of_episodes():
    _, rollout, _ = learner_of(trial=K)
    first, begins = rollout.rows.first, rollout.rows.obs[NEW_EPISODE][..., 0] > 0
    inside = begins & ~first
    assert (first & ~begins).sum() == 0
    # Of every trial that is whole: K - 1 episodes begin inside it.
    whole = [inside[a:b, n].sum() for n in range(2) for a, b in zip(*pairs(first[:, n]), strict=True)]
    assert len(whole) > 4 and set(map(int, whole)) == {K - 1}
    assert (rollout.rows.prev_reward[inside] > 1).all() and (rollout.rows.prev_reward[first] == 0).all()
    # A tail row ends a trial, and no row is lost to the ends inside it.
    assert (~rollout.valid).sum() == (rollout.terminated | rollout.truncated).sum()


def pairs(first):
    starts = torch.nonzero(first)[:, 0].tolist()
    return starts[:-1], starts[1:]


def test_returns_go_through_the_ends_of_the_episodes_of_a_trial():
    _, rollout, _ = learner_of(trial=K)
    got = ppo.advantages(rollout, rollout.reward, 0.9, 1.0) + rollout.value[:-1]
    for n in range(2):
        for start, after in zip(*pairs(rollout.rows.first[:, n]), strict=True):
            rewards = rollout.reward[start : after - 1, n]  # without the tail row
            want = (rewards * 0.9 ** torch.arange(len(rewards), dtype=torch.float64)).sum()
            torch.testing.assert_close(got[start, n], want)


def test_all_branches_see_the_start_of_episodes_the_previous_action_and_reward():
    config = RunConfig(env=EnvConfig(id="walk", trial=2), critic=branch("mlp", sees=("obs",)))
    for side in (config.actor, config.critic):
        assert side.prev_action and side.prev_reward
    assert not RunConfig(env=EnvConfig(id="walk")).actor.prev_reward
    learner, _, _ = learner_of(trial=2)
    for side in (learner.agent.actor, learner.agent.critic):
        assert NEW_EPISODE in side.inputs.leaves and side.inputs.out_dim == 2 + 1 + 2 + 1


def test_a_resumed_run_of_trials_ends_like_one_without_a_stop(tmp_path, monkeypatch):
    env = EnvConfig(id="callable-Walk", num_envs=4, backend="gymnasium", trial=K, threads=1)
    config = small_config(env=env, actor=branch("lstm"), critic=branch("gpt2"), barrier=2)
    whole = run_quietly(config, tmp_path, "whole", factory=Walk)
    assert max(row["ratio_error"] for row in metrics_of(whole.folder)) < 1e-5
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(5))
    stopped = run_quietly(config, tmp_path, "stopped", factory=Walk)
    assert stopped.summary["iteration"] < 10
    monkeypatch.undo()
    resumed = recollect.resume(stopped.folder, env=Walk, quiet=True)
    assert_same_end(whole.folder, resumed.folder)


def test_native_kernels_compute_trials_as_torch_does(tmp_path):
    env = EnvConfig(id="callable-Walk", num_envs=4, backend="gymnasium", trial=K, threads=1)
    config = small_config(env=env, actor=branch("gru"), critic=branch("gru"), kernels="native", rollouts=2)
    run = run_quietly(config, tmp_path, factory=Walk)
    assert 0 <= metrics_of(run.folder)[0]["kernel_error"] < 1e-4


# Playing --------------------------------------------------------------------------------------


def test_an_evaluation_plays_whole_trials_and_reports_the_return_of_each_episode():
    result = evaluate(None, EnvConfig(id="walk", trial=K), 60, factory=Walk)
    assert np.shape(result.by_episode) == (60, K)
    np.testing.assert_allclose(np.sum(result.by_episode, 1), result.returns)
    lengths = np.array(result.lengths)
    assert (lengths % K == 0).all()  # a task that is kept by the seed has episodes of one length
    # An episode of n steps has the return 2 + 3 + ... + n + 1.
    np.testing.assert_allclose(np.array(result.by_episode)[:, 0], lengths / K * (lengths / K + 3) / 2)
    assert evaluate(None, EnvConfig(id="walk"), 4, factory=Walk).by_episode == []


def test_a_player_in_a_loop_of_ones_own_computes_what_the_adapter_makes_it_compute():
    learner, _, _ = learner_of(trial=K)
    seen = []
    envs = make(EnvConfig(id="walk", num_envs=1, trial=K), Walk)

    class Watching:
        def __init__(self):
            self.player = learner.agent.player()

        def act(self, obs, reward=None, first=None):
            action = self.player.act(obs, reward, first)
            seen.append(self.player.inspect().params)
            return action

    play_episodes(envs, Watching(), 1, [3])
    player, env = learner.agent.player(), Trial(Walk(), K)
    obs, info = env.reset(seed=3)
    reward, over, computed = 0.0, False, []
    while not over:
        action = player.act(obs, reward, new_episode=NEW_EPISODE in info)
        computed.append(player.inspect().params)
        obs, reward, terminated, truncated, info = env.step(action)
        over = terminated or truncated
    torch.testing.assert_close(torch.stack(computed), torch.stack(seen), rtol=0, atol=0)


def test_watch_shows_the_return_of_each_episode_of_a_trial(tmp_path, capsys):
    options = {"env.trial": 4, "actor": "gru", "env.num_envs": 4, "ppo.num_steps": 16}
    trained = recollect.train("meta:Grid", steps=100, options=options, out=tmp_path, quiet=True)
    page = recollect.watch(trained, tmp_path / "page.html", episodes=2, shown=1).read_text()
    shown = capsys.readouterr().out.partition("return of each episode: ")[2].split()[:4]
    score = float(page.partition('"score":')[2].partition(",")[0])
    assert sum(map(float, shown)) == pytest.approx(score, abs=1e-3)
    trial = page.partition('"trial":[[')[2].partition("]]")[0]
    assert trial.startswith("0,") and trial.count("],[") == 3


def test_an_exported_agent_takes_the_start_of_episodes():
    learner, _, _ = learner_of(trial=K)
    inputs = ActorStep(learner.agent).example()
    assert {"obs", NEW_EPISODE, "prev_action", "prev_reward", "reset"} <= inputs.keys()


# The tasks ------------------------------------------------------------------------------------


def test_the_optimum_of_small_bandits_is_that_of_pencil_and_paper():
    # A reward leads to the same arm, with 2/3; a failure to the other one, with 1/2.
    assert optimal_bandit(2, 2) == pytest.approx(0.5 + 0.5 * 2 / 3 + 0.5 * 0.5)
    assert optimal_bandit(1, 10) == pytest.approx(5.0) and optimal_bandit(5, 1) == 0.5
    assert 5.0 < thompson_bandit(5, 10, 20_000) < optimal_bandit(5, 10)
    assert optimal_grid(3, 1) == pytest.approx(1 - 0.01 * 3.5)


def test_nobody_beats_the_optimum_of_the_grid_and_a_known_goal_is_reached_as_it_says():
    config = preset("ppo", "meta:Grid")
    trials = RunConfig(env=EnvConfig(id="meta:Grid", trial=2, kwargs={"side": 3}))
    best = references(trials)["optimal"]
    spiral = [0, 3, 1, 1, 2, 2, 0, 0]  # up, right, down, down, left, left, up, up
    returns = []
    for seed in range(400):
        env = Trial(Grid(3), 2)
        env.reset(seed=seed)
        total, over, moves = 0.0, False, iter(spiral)
        while not over:
            _, reward, over, _, info = env.step(next(moves))
            total += reward
            if NEW_EPISODE in info:
                row, column = env.unwrapped.goal
                moves = iter(
                    [0 if row < 1 else 1] * abs(row - 1) + [2 if column < 1 else 3] * abs(column - 1)
                )
        returns.append(total)
    assert np.mean(returns) == pytest.approx(best, abs=4 * np.std(returns) / 20)
    assert config.env.id == "meta:Grid"


@pytest.mark.parametrize(("task", "size"), [(Bandit, 1), (Grid, 1), (Bandit, 2.5), (Grid, True)])
def test_wrong_sizes_are_refused(task, size):
    with pytest.raises(UsageError, match=f"meta:{task.__name__}: its size is {size}"):
        task(size)


def test_pictures_of_the_tasks():
    for name in ("Bandit", "Grid"):
        envs = make(EnvConfig(id=f"meta:{name}", num_envs=1, trial=2))
        assert isinstance(envs, Envs)
        envs.reset([0])
        picture = envs.adapter.render()
        assert envs.adapter.names()["actions"]
        assert picture.dtype == np.uint8 and picture.ndim == 3 and len(np.unique(picture)) > 2


@pytest.mark.thorough
def test_an_agent_with_memory_finds_a_goal_and_returns_to_it(tmp_path):
    options = {"env.trial": 3, "env.kwargs.side": 3, "env.num_envs": 16, "ppo.num_steps": 64}
    trained = recollect.train("meta:Grid", "ppo_gru", steps=60_000, options=options, out=tmp_path, quiet=True)
    returns = np.mean(trained.evaluate(200).by_episode, 0)
    # Who does not know the goal needs 4.5 steps in the mean at best, a return of 0.965; a known one is 1 or 2
    # steps away.
    assert returns[0] < 0.975 < returns[1:].mean()
