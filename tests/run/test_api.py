"""The functions of the package: the options of the commands, results as plain data."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st

import recollect
from recollect.agent.agent import BranchConfig, build_agent
from recollect.agent.nets import Rows
from recollect.agent.player import value
from recollect.common import tree
from recollect.common.errors import UsageError
from recollect.common.notebook import table
from recollect.comparison.compare import CompareOptions, study_of
from recollect.config.calls import arguments
from recollect.config.command import parse
from recollect.envs.base import EnvConfig
from recollect.envs.make import make
from recollect.envs.spaces import read_spaces
from recollect.memory.rnn import GruConfig
from recollect.run.destination import Destination
from recollect.run.run import start_run
from recollect.run.run_folder import new_folder
from recollect.run.weights import load_rewards
from recollect.testing import check_memory
from recollect.tuning.tune import TuneOptions

from ..helpers import branch, lively, run_quietly, show_in_a_notebook, small_config

OPTIONS = {"env.num_envs": 4, "ppo.num_steps": 16, "ppo.num_minibatches": 2, "val_check_interval": 0}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    config = small_config("CartPole-v1", rollouts=3, actor=branch("gru"), critic=branch("lstm"))
    return run_quietly(config, tmp_path_factory.mktemp("runs"))


@pytest.mark.thorough
def test_compare_returns_a_row_for_each_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    call = {"seeds": 1, "steps": 600, "options": OPTIONS, "episodes": 5, "out": tmp_path / "runs"}
    rows = recollect.compare("CartPole-v1", ["ppo", "ppo_gru"], **call, report="report", quiet=True)
    assert "episodes" not in capsys.readouterr().out  # only the verdict of the report
    assert [(row["model"], row.get("seed")) for row in rows] == [
        ("ppo", 1),
        ("ppo_gru", 1),
        ("random", None),
    ]
    for row in rows[:2]:
        evaluation = json.loads((Path(row["folder"]) / "evaluation.json").read_text())
        assert row["return"] == evaluation["mean"] and row["length"] == evaluation["length"]
        assert row["state"] == "done" and row["step"] >= 600 and row["error"] is None
    assert json.loads((tmp_path / "report" / "report.json").read_text())["finals"]
    # Finished runs are read, not repeated; the results are printed unless it is quiet.
    again = recollect.compare(["CartPole-v1"], ["ppo", "ppo_gru"], **call)
    assert again == rows and "ppo_gru" in capsys.readouterr().out
    data = recollect.report(tmp_path / "runs", out=tmp_path / "other")
    assert {"ppo", "ppo_gru"} <= {final["label"] for final in data["finals"]}
    assert "--x steps" in (tmp_path / "other" / "report.md").read_text()
    with pytest.raises(UsageError, match="x is 'step'; did you mean steps"):
        recollect.report(tmp_path / "runs", x="step")


def test_mistakes_in_calls_are_those_of_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="unknown option"):
        recollect.compare("CartPole-v1", "ppo", epsiodes=3)
    with pytest.raises(UsageError, match="unknown option"):
        recollect.compare("CartPole-v1", "ppo", options={"ppo.gama": 1})
    with pytest.raises(UsageError, match="model 'ppoo' is unknown"):
        recollect.compare("CartPole-v1", "ppoo")
    with pytest.raises(UsageError, match="needs an environment"):
        recollect.evaluate("random")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "seeds, expected",
    [(3, [1, 2, 3]), ([3], [3]), ((2, 4), [2, 4]), (range(6, 9), [6, 7, 8]), (np.array([5]), [5])],
)
def test_a_sequence_of_seeds_has_the_seeds_also_if_it_is_one(seeds, expected, tmp_path, capsys):
    call = {"seeds": seeds, "steps": 100, "out": tmp_path, "dry_run": True, "quiet": True}
    assert [row["seed"] for row in recollect.compare("CartPole-v1", "ppo", **call)] == expected
    recollect.tune("CartPole-v1", trials=1, **call)
    assert f"on seeds {' '.join(map(str, expected))}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("seeds", "message"),
    [
        ([], "seeds is empty"),
        ([0], "numbers must be above 0"),
        ([-1], "--seeds -1: numbers must be above 0"),
        (2.5, r"takes a whole number, not '2\.5'"),
        ("3-1", "--seeds 3-1: a range is A-B with A <= B"),
        ("1-2-3", "takes a whole number, not '2-3'"),
        ("1-", "takes a whole number, not '1-'"),
        ("1-99999", "of at most 10,000 seeds"),
        ("2-4 3", "takes a whole number"),
        (["2-4", 3], "each given once"),
    ],
)
def test_seeds_that_are_none_are_refused_in_one_line(seeds, message, tmp_path):
    with pytest.raises(UsageError, match=message) as error:
        recollect.compare("CartPole-v1", "ppo", seeds=seeds, steps=100, out=tmp_path, dry_run=True)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["4", "none", "true", "1e3"])
def test_text_stays_text_in_all_calls(text, tmp_path):
    options = {"env.kwargs.version": text, "env": {"kwargs": {"nested": text}}}
    for kind, call in (
        (CompareOptions, {"environments": "CartPole-v1", "models": "ppo"}),
        (TuneOptions, {"env": "CartPole-v1", "model": "ppo"}),
    ):
        parsed = parse(kind, arguments([], call, options), "recollect ...", options)
        assert {setting.name: setting.value for setting in parsed.settings} == {
            "env.kwargs.version": text,
            "env.kwargs.nested": text,
        }


def test_a_config_file_among_the_options_names_the_model(tmp_path):
    (tmp_path / "c.yaml").write_text("model: ppo_gru\nppo: {gamma: 0.9}\n")
    options = {**OPTIONS, "config": str(tmp_path / "c.yaml"), "rollouts": 1}
    run = recollect.train("CartPole-v1", options=options, out=tmp_path, quiet=True)
    assert (run.config.model, run.config.actor.memory.name, run.config.ppo.gamma) == ("ppo_gru", "gru", 0.9)
    run = recollect.train("CartPole-v1", "ppo", options=options, out=tmp_path, quiet=True)
    assert run.config.model == "ppo"


@pytest.mark.parametrize("name", ["rollouts", "num_epochs", "num-epochs", "ne"])
def test_a_number_of_rollouts_beside_steps_counts_by_each_of_its_names(name, tmp_path):
    run = recollect.train("CartPole-v1", steps=8000, options={**OPTIONS, name: 2}, out=tmp_path, quiet=True)
    assert run.config.rollouts == run.summary["iteration"] == 2 and run.config.steps == 8000


def test_a_run_is_resumed_in_its_own_environment(trained):
    with pytest.raises(UsageError, match="is a run on CartPole-v1, and is resumed in Acrobot-v1"):
        recollect.resume(trained.folder, env="Acrobot-v1")
    assert recollect.resume(trained.folder, env="CartPole-v1", quiet=True).summary["status"] == "finished"


def test_a_run_is_resumed_from_another_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"env.num_envs": 2, "ppo.num_steps": 8}
    run = recollect.train("CartPole-v1", steps=1, options=options, out="relative", quiet=True)
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert recollect.resume(run, quiet=True).summary["status"] == "finished"


def test_an_environment_beside_an_agent_that_has_one_is_refused(trained, tmp_path):
    for call in (
        lambda: recollect.evaluate(trained, env="Acrobot-v1"),
        lambda: recollect.probe(trained, 10, env="Acrobot-v1"),
        lambda: recollect.probe(str(trained.folder), 10, controls=[trained], env="Acrobot-v1"),
        lambda: recollect.watch(trained, tmp_path / "w.html", env="Acrobot-v1"),
    ):
        with pytest.raises(UsageError, match="env is for agents that are given as paths"):
            call()


def test_a_mask_for_an_agent_without_masks_is_refused(trained):
    obs = np.zeros(4, np.float32)
    with pytest.raises(UsageError, match="trained without action masks"):
        trained.player().act(obs, action_mask=[True, False])
    with pytest.raises(UsageError, match="trained without action masks"):
        trained.predict(obs, action_masks=[True, False])


class Informed(gymnasium.Env):
    """A number, a comparison of numpy and a list in info; text and uneven lists are no variables."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), self.inform()

    def inform(self):
        far = self.np_random.random(2) > 0.5
        uneven = [[1.0], [2.0, 3.0]]
        return {"speed": 0.25, "far": far[0], "goal": [0.5, self.steps], "name": "4", "uneven": uneven}

    def step(self, action):
        self.steps += 1
        return np.zeros(2, np.float32), 1.0, self.steps > 4, False, self.inform()


@pytest.mark.parametrize("backend", ["gymnasium", "workers"])
def test_hidden_variables_are_all_numbers_of_info(backend, tmp_path):
    options = {**OPTIONS, "critic.sees": ["obs", "hidden"], "env.backend": backend, "rollouts": 1}
    run = recollect.train(Informed, options=options, out=tmp_path, quiet=True)
    assert run.agent.obs_spec.leaves["hidden"].shape == (4,)
    envs = make(run.config.env, Informed)
    envs.reset([1, 2, 3, 4])
    seen = [envs.step(np.zeros((4, 1), np.int64)).obs["hidden"] for _ in range(3)]
    envs.adapter.close()
    for steps, rows in enumerate(seen, 1):
        for row in rows:
            assert sorted(row) == sorted([0.25, 0.5, steps, float(min(row) > 0)])
    assert len(np.unique(seen)) > 4  # the comparison differs between environments


@given(st.floats(0.0, 1.0), st.booleans(), st.lists(st.integers(1, 99), max_size=3), st.integers(1, 99))
def test_values_arrive_as_they_were_given(gamma, flag, hidden, seeds):
    options = {"ppo.gamma": gamma, "env.normalize_obs": flag, "actor": {"hidden": hidden}, "ppo.bptt": None}
    given = {"environments": "CartPole-v1", "models": ["ppo", "ppo_gru"], "seeds": seeds, "report": None}
    parsed = parse(CompareOptions, arguments([], given, options), "recollect compare", options)
    assert parsed.environments == ("CartPole-v1",) and parsed.models == ("ppo", "ppo_gru")
    assert parsed.seeds == (str(seeds),) and parsed.report is None
    config = study_of(parsed).configs()[0]
    assert config.ppo.gamma == gamma and config.env.normalize_obs is flag
    assert config.actor.hidden == tuple(hidden) and config.ppo.bptt is None


def test_probe_and_watch_take_agents_and_paths(trained, tmp_path):
    one, other = recollect.probe(trained, 10, out=tmp_path / "probe"), recollect.probe(trained.folder, 10)
    assert one.whole.mean == other.whole.mean and one.uses == other.uses
    assert json.loads((tmp_path / "probe" / "probe.json").read_text())["episodes"] == 10
    for run, name in ((trained, "a.html"), (str(trained.folder), "b.html")):
        path = recollect.watch(run, tmp_path / name, episodes=2, shown=1)
        assert path == tmp_path / name and path.stat().st_size > 10_000
    with pytest.raises(UsageError, match="memory to probe"):
        recollect.probe("random")


def test_a_call_may_name_steps_and_rollouts(tmp_path):
    """A run ends at whichever is used up first."""
    options = {"rollouts": 2, "env.num_envs": 2, "ppo.num_steps": 16, "ppo.num_minibatches": 2}
    trained = recollect.train("CartPole-v1", steps=10_000, options=options, out=tmp_path, quiet=True)
    assert trained.summary["iteration"] == 2


def test_random_actions_are_not_deterministic():
    assert not recollect.evaluate("random", 1, env="CartPole-v1").deterministic


def test_evaluate_takes_paths_and_random(trained):
    assert recollect.evaluate(trained.folder, 5).returns == trained.evaluate(5).returns
    random = recollect.evaluate("random", 5, env="CartPole-v1")
    assert random.agent == "random" and len(random.returns) == 5
    assert recollect.evaluate("random", 5, env=lambda: gymnasium.make("CartPole-v1")).mean < 100


def test_successes_are_a_share_of_all_episodes_or_unknown(trained):
    """Of an environment that reports only successes, as one does that says nothing where time is up."""
    evaluation = trained.evaluate(5)
    for reported, success in (([1.0, 0.0, 1.0, 0.0, 1.0], 0.6), ([1.0] + [math.nan] * 4, None)):
        assert replace(evaluation, successes=reported).summary()["success"] == success


def test_equal_returns_have_no_interval(trained):
    """Its width would be 0, however few they are."""
    evaluation = replace(trained.evaluate(5), returns=[9.0] * 5)
    assert evaluation.summary()["low"] is evaluation.summary()["high"] is None
    assert repr(evaluation) == "Evaluation(CartPole-v1, 5 episodes, mean 9)"


def test_values_are_short_where_they_are_printed(trained):
    assert repr(trained) == f"Trained(ppo on CartPole-v1, seed 3, finished, {trained.folder})"
    text = repr(trained.evaluate(5))
    assert text.startswith("Evaluation(CartPole-v1, 5 episodes, mean ") and len(text) < 100


def test_notebooks_show_a_curve_and_a_table(trained, tmp_path):
    (tmp_path / "metrics.jsonl").write_text(
        "".join(json.dumps({"step": 100 * k, "return": float(k) if k else None}) + "\n" for k in range(1000))
    )
    page = replace(trained, folder=tmp_path)._repr_html_()
    assert "training return: 1 to 999 over 99,900 steps" in page and 200 <= page.count(",") < 450
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 1')  # a run that goes on
    assert replace(trained, folder=tmp_path)._repr_html_() == page
    assert "<td" in trained._repr_html_() and "CartPole-v1" in trained._repr_html_()
    assert "<th" in trained.evaluate(5)._repr_html_()
    assert "ppo.gamma" in trained.config._repr_html_()
    assert table({"a": "<b>"}).count("&lt;b&gt;") == 1
    assert repr(trained.config) == "RunConfig(ppo on CartPole-v1, actor gru, critic lstm, 3 rollouts, seed 3)"


def test_progress_in_a_notebook_is_one_bar(tmp_path, monkeypatch):
    shown = show_in_a_notebook(monkeypatch)
    start_run(small_config("CartPole-v1", rollouts=3), Destination(out=tmp_path, quiet=False))
    pages = [bundle["text/html"] for bundle in shown]
    assert all(page.startswith("<progress value=") for page in pages)
    assert 'value="0.0000"' in pages[0] and 'value="1.0000"' in pages[-1] and "steps/s" in pages[-1]
    # Programs that show no HTML get the line alone.
    assert "100%" in shown[-1]["text/plain"] and "<" not in shown[-1]["text/plain"]


def test_the_bar_of_a_stopped_run_ends_where_the_run_ended(tmp_path, monkeypatch):
    shown = show_in_a_notebook(monkeypatch)
    config = small_config("CartPole-v1", rollouts=50)
    run = start_run(
        config,
        Destination(out=tmp_path, quiet=False),
        on_rollout=lambda update: update.stop() if update.metrics["iteration"] == 3 else None,
    )
    assert f"step {run.summary['step']:>10,}" in shown[-1]["text/plain"]
    assert 'value="0.06' in shown[-1]["text/html"]


# predict -------------------------------------------------------------------------------------


def test_predict_acts_like_a_player(trained):
    player, state = trained.player(3), None
    obs = np.random.default_rng(0).standard_normal((30, 3, 4)).astype(np.float32)
    for t in range(30):
        start = obs[t, :, 0] > 1
        action, state = trained.predict(obs[t], state, start)
        np.testing.assert_array_equal(action, player.act(obs[t], first=start))


def test_predict_takes_a_single_observation(trained):
    action, state = trained.predict(np.zeros(4, np.float32))
    assert np.shape(action) == ()
    both, _ = trained.predict(np.zeros((2, 4), np.float32))
    assert list(both) == [action, action]
    assert state.memory[0][0].shape[0] == 1


def test_predict_samples_anew_each_time(trained):
    obs = np.zeros((1000, 4), np.float32)
    torch.manual_seed(1)
    one, other = (trained.predict(obs, deterministic=False)[0] for _ in range(2))
    assert not np.array_equal(one, other)
    torch.manual_seed(1)
    np.testing.assert_array_equal(trained.predict(obs, deterministic=False)[0], one)


def test_predict_refuses_agents_that_need_rewards(tmp_path):
    config = small_config("CartPole-v1", rollouts=1, actor=branch("gru", prev_reward=True))
    with pytest.raises(UsageError, match="predict gets no rewards"):
        run_quietly(config, tmp_path).predict(np.zeros(4, np.float32))


def test_only_the_branch_that_is_computed_needs_rewards(tmp_path):
    """Actions need no reward that the critic alone takes, and values none that the actor alone takes."""
    both, obs = {}, np.zeros((2, 4), np.float32)
    for name in ("actor", "critic"):
        config = small_config("CartPole-v1", rollouts=1, **{name: branch("gru", prev_reward=True)})
        both[name] = run_quietly(config, tmp_path / name)
    _, state = both["critic"].predict(obs)
    _, state = both["critic"].predict(obs, state)
    assert both["critic"].distribution(obs, state).mode.shape == (2, 1)
    player = both["critic"].player(2)
    for _ in range(2):
        player.act(obs)
    player, values = both["actor"].player(2), []
    for rewards in (None, np.ones(2)):
        player.act(obs, rewards)
        values.append(both["actor"].value(obs, player.state))
    assert np.array_equal(values[0], values[1]) and np.isfinite(values[0]).all()


def test_predict_refuses_a_state_that_it_cannot_continue_from(trained, tmp_path):
    obs = np.zeros((3, 4), np.float32)
    _, state = trained.predict(obs)
    _, other = run_quietly(small_config("CartPole-v1", rollouts=1, actor=branch("lstm")), tmp_path).predict(
        obs
    )
    calls = {
        "of 3 environments, the observation that of 2": (obs[:2], state),
        "of 3 environments, the observation that of 1": (obs[0], state),
        "that of another agent": (obs, other),
        "state is 3; it must be the one that the previous call returned": (obs, 3),
        "episode_start is .* one bool for each of 3": (obs, state, [True]),
    }
    for call in (trained.predict, trained.value):
        for message, call_with in calls.items():
            with pytest.raises(UsageError, match=message):
                call(*call_with)


def test_an_observation_of_another_shape_is_refused_where_entries_are_hidden(tmp_path):
    config = small_config("CartPole-v1", rollouts=1, env=EnvConfig(num_envs=4, mask=(1, 3)))
    with pytest.raises(UsageError, match=r"'obs' has shape \(2,\) .* needs shape \(4,\)"):
        run_quietly(config, tmp_path).predict(np.zeros((3, 2), np.float32))


def test_entries_that_no_network_gets_may_be_anything():
    """Also the first entry, whose length is not the number of environments."""
    spec = read_spaces(spaces.Dict({"x": spaces.Box(-1, 1, (4,))}), spaces.Discrete(2))
    agent = build_agent(spec, branch("gru"), branch("gru"), False, 0)
    obs = {"x": np.zeros((3, 4), np.float32)}
    action, _ = agent.predict(obs)
    assert list(agent.predict({"mission": "find the key", "parts": [[1], [2, 3]], **obs})[0]) == list(action)


@pytest.mark.parametrize("critic", ["gru", "mlp", "shared"])
def test_values_and_the_policy_are_those_of_training(tmp_path, critic):
    """Step by step with the state of predict, against one pass over all steps."""
    sides = {"actor": branch("gru", prev_action=True), "critic": branch(critic)}
    run = run_quietly(small_config("CartPole-v1", rollouts=1, **sides), tmp_path)
    obs = np.random.default_rng(0).standard_normal((12, 3, 4)).astype(np.float32)
    first, state, values, logs, actions = obs[..., 0] > 1, None, [], [], []
    first[0] = True
    for t in range(12):
        values.append(run.value(obs[t], state, first[t]))
        policy = run.distribution(obs[t], state, first[t])
        action, state = run.predict(obs[t], state, first[t])
        actions.append(action)
        logs.append(policy.log_prob(torch.from_numpy(action)[:, None]))
    before = torch.from_numpy(np.stack([np.zeros_like(actions[0]), *actions[:-1]]))[..., None]
    start = torch.from_numpy(first)
    rows = Rows({"obs": torch.from_numpy(obs)}, start, before * ~start[..., None], torch.zeros(12, 3))
    agent = run.agent
    rows = rows._replace(obs=agent.normalizer(rows.obs))
    with torch.no_grad():
        params, wanted = agent(rows, agent.initial_state(3))
    scaled = wanted.numpy() * load_rewards(run.folder, run.config).divisor
    np.testing.assert_allclose(np.stack(values), scaled, rtol=1e-4, atol=1e-5)
    taken = torch.from_numpy(np.stack(actions))[..., None]
    torch.testing.assert_close(torch.stack(logs), agent.policy.evaluate(params, taken)[0])


def test_the_distribution_of_a_box_action_is_that_of_the_policy(tmp_path):
    run = run_quietly(small_config("Pendulum-v1", rollouts=1), tmp_path)
    policy = run.distribution(np.zeros((5, 3), np.float32))
    assert policy.sample().shape == (5, 1) and policy.entropy().shape == (5,)
    params = torch.cat([policy.base_dist.loc, policy.base_dist.scale.log()], -1)
    action = torch.randn(5, 1)
    wanted = run.agent.policy.evaluate(params, action)[0]
    torch.testing.assert_close(policy.log_prob(action), wanted)


def test_stable_baselines_evaluates_our_agents(trained):
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    vec_env = pytest.importorskip("stable_baselines3.common.vec_env")
    envs = vec_env.DummyVecEnv([lambda: gymnasium.make("CartPole-v1")] * 3)
    mean, deviation = evaluation.evaluate_policy(trained, envs, n_eval_episodes=6, warn=False)
    assert 8 <= mean <= 500 and deviation >= 0


@pytest.mark.parametrize("critic", ["gru", "mlp", "shared"])
def test_the_state_of_a_player_has_the_memory_of_the_actor_alone(critic, tmp_path):
    run = run_quietly(small_config(actor=branch("gru"), critic=branch(critic), rollouts=1), tmp_path)
    player = run.player(3)
    obs = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    player.act(obs[0])
    _, state = run.predict(obs[0])
    actions, after = run.predict(obs[1], player.state)
    np.testing.assert_array_equal(actions, run.predict(obs[1], state)[0])
    for of_player in (player.state, after):
        if critic == "gru":
            with pytest.raises(UsageError, match="value needs the state that predict returned"):
                run.value(obs[1], of_player)
    if critic != "gru":
        np.testing.assert_allclose(run.value(obs[1], player.state), run.value(obs[1], state))


# Mistakes ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("envs", "obs", "message"),
    [
        (1, np.zeros(3), r"'obs' has shape \(3,\) in 1 environments; this agent needs shape \(4,\)"),
        (2, np.zeros((3, 4)), r"has shape \(4,\) in 3 environments; .* its player acts in 2"),
        (2, np.zeros((2, 4, 1)), r"has shape \(4, 1\) in 2 environments"),
    ],
)
def test_an_observation_of_another_shape_names_both(trained, envs, obs, message):
    with pytest.raises(UsageError, match=message):
        trained.player(envs).act(obs.astype(np.float32))


@pytest.mark.parametrize(
    ("space", "right", "wrong"),
    [
        (
            spaces.MultiDiscrete([2, 3]),
            [[1, 2], [[1, 2], [0, 0]]],
            [[0, 1, 1, 2], np.zeros((2, 4)), np.zeros((4, 1))],
        ),
        (spaces.Discrete(4), [3, [3, 1], [[3], [1]]], [[[3, 1]], np.zeros((2, 2))]),
    ],
    ids=["multi", "single"],
)
def test_choices_of_another_shape_are_refused(space, right, wrong):
    policy = build_agent(read_spaces(space, spaces.Discrete(2)), BranchConfig(), BranchConfig(), False, 1)
    for obs in right:
        policy.predict(np.array(obs, dtype=np.int64))
    for obs in wrong:
        with pytest.raises(UsageError, match="observation 'obs' has shape"):
            policy.predict(np.array(obs, dtype=np.int64))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_observation_that_is_not_finite_names_leaf_and_column(bad, trained):
    obs = np.zeros((3, 4), dtype=np.float32)
    player = trained.player(3)
    player.act(obs)
    before = [x.clone() for x in tree.leaves(player.state.memory).values()]
    obs[2, 1] = bad
    message = rf"observation obs\[1\] is {bad} in environment 2, at step 1 of this player: only finite"
    with pytest.raises(UsageError, match=message):
        player.act(obs)
    # The player is as it was, so the loop of the user can continue with a correct observation.
    assert all(map(torch.equal, before, tree.leaves(player.state.memory).values()))
    for call in (trained.predict, trained.value, trained.distribution, trained.agent.predict):
        with pytest.raises(UsageError, match=rf"observation obs\[1\] is {bad} in environment 2"):
            call(obs)


@pytest.mark.parametrize(
    ("space", "good", "bad", "message"),
    [
        (spaces.MultiDiscrete([3, 5]), [2, 4], [3, 0], r"obs\[0\] is 3 .* the values 0 to 2"),
        (spaces.MultiDiscrete([3, 5], start=[1, 0]), [3, 4], [0, 0], r"obs\[0\] is 0 .* the values 1 to 3"),
        (spaces.Discrete(4), 3, 4, r"obs is 4 in environment 0, at step 1 of this player: .* 0 to 3"),
    ],
)
def test_an_index_outside_of_its_space_is_refused_by_players(space, good, bad, message):
    """In the inputs of a network it would be an index of the next component."""
    agent = build_agent(read_spaces(space, spaces.Discrete(2)), branch("gru"), branch("gru"), False, 0)
    player = agent.player()
    player.act(np.array(good))
    with pytest.raises(UsageError, match=message):
        player.act(np.array(bad))
    with pytest.raises(UsageError, match=message.replace("at step 1", "at step 0")):
        agent.predict(np.array(bad))


def test_large_finite_observations_are_allowed(trained):
    """Their squares overflow."""
    trained.player().act(np.full(4, 1e38, dtype=np.float32))


def test_an_observation_that_is_not_finite_is_named_in_a_dict(tmp_path):
    leaf = gymnasium.spaces.Box(-np.inf, np.inf, (2, 3), np.float32)
    space = gymnasium.spaces.Dict({"left": leaf, "right": leaf})
    actor = branch("gru")
    agent = build_agent(read_spaces(space, gymnasium.spaces.Discrete(2)), actor, actor, False, 0)
    obs = {"left": np.zeros((2, 3)), "right": np.zeros((2, 3))}
    agent.player().act(obs)
    obs["right"][1, 2] = np.nan
    with pytest.raises(UsageError, match=r"observation obs\.right\[1, 2\] is nan in environment 0"):
        agent.player().act(obs)


def test_a_folder_of_runs_names_its_runs(trained, tmp_path):
    out = trained.folder.parents[2]
    with pytest.raises(UsageError, match=f"{out} is not one run; it holds {trained.folder}"):
        recollect.load(out)
    with pytest.raises(UsageError, match="holds no run and no saved agent"):
        recollect.load(tmp_path)
    trained.save(tmp_path / "agent.safetensors")
    with pytest.raises(UsageError, match=r"it holds .*agent\.safetensors"):
        recollect.evaluate(tmp_path)
    with pytest.raises(UsageError, match="does not exist; recollect list agents"):
        recollect.load(tmp_path / "nothing")


@pytest.mark.parametrize("out", ["s3://bucket/runs", "hdfs://runs"])
def test_an_address_is_not_taken_for_a_folder(out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=f"{out}: runs need locks, appends and renames"):
        recollect.train("CartPole-v1", out=out, quiet=True)
    assert list(tmp_path.iterdir()) == []
    run = recollect.train("CartPole-v1", steps=64, options=OPTIONS, out=f"file://{tmp_path}/runs", quiet=True)
    assert run.folder.is_relative_to(tmp_path / "runs")


@pytest.mark.parametrize("run_id", ["..", "", "a/b", "a\\b", "a:b", "/a", "a\0b"])
def test_a_run_id_is_a_folder_of_its_own(run_id, tmp_path):
    with pytest.raises(UsageError, match=r"--run-id .* is not the name of one folder: "):
        recollect.train("CartPole-v1", steps=64, options=OPTIONS, out=tmp_path, run_id=run_id, quiet=True)
    assert not list(tmp_path.iterdir())
    # The id of an environment is no choice of the user, so its slash becomes a hyphen.
    config = small_config(env_id="ALE/Pong-v5")
    assert new_folder(config, tmp_path, "a.b-1").parts[-2:] == ("ALE-Pong-v5", "a.b-1")


@pytest.mark.parametrize("name", ["actr.memory.name", "actr.width", "critics.memory.name"])
def test_an_option_of_a_branch_that_does_not_exist_is_unknown(name):
    with pytest.raises(UsageError, match="unknown option"):
        recollect.train("CartPole-v1", options={name: "gru"})


WRONG_ARGUMENTS = {
    "steps nan": ({"steps": float("nan")}, "steps takes a whole number or none, not nan"),
    "steps text": ({"steps": "many"}, "steps takes a whole number or none, not 'many'"),
    "seed fraction": ({"seed": 1.5}, "seed takes a whole number or none, not 1.5"),
    "options list": ({"options": ["ppo.gamma"]}, r"options is \['ppo.gamma'\]; give names and values"),
    "run id": ({"run_id": 3}, "--run-id 3 is not the name of one folder"),
    "no callback": ({"on_rollout": 3}, "on_rollout is 3; it must be a function of an Update"),
    "no environment": ({"env": lambda: 3}, "the environment's function returned 3; it must return a gym"),
    "no environment, limited": (
        {"env": lambda: 3, "options": {"env.time_limit": 5}},
        "the environment's function returned 3; it must return a gym",
    ),
}


@pytest.mark.parametrize(("arguments", "message"), WRONG_ARGUMENTS.values(), ids=WRONG_ARGUMENTS)
def test_wrong_arguments_are_refused_before_a_run_begins(arguments, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        recollect.train(**{"env": "CartPole-v1", **arguments}, out=tmp_path, quiet=True)
    assert not list(tmp_path.iterdir())


def test_numbers_that_are_whole_may_be_floats_as_on_the_command_line(tmp_path):
    run = recollect.train(
        "CartPole-v1", steps=1e2, options=OPTIONS, seed=np.int64(3), out=tmp_path, quiet=True
    )
    assert (run.config.steps, run.config.seed) == (100, 3)


def test_wrong_use_of_a_trained_agent(trained, tmp_path):
    with pytest.raises(UsageError, match="player: num_envs is 0; a whole number of at least 1"):
        trained.player(num_envs=0)
    with pytest.raises(UsageError, match="no is not a folder: create it"):
        trained.save(tmp_path / "no" / "agent.safetensors")
    with pytest.raises(UsageError, match="is a folder: add the name of a file"):
        trained.save(tmp_path)
    with pytest.raises(UsageError, match="player: seed is None; a whole number of at least 0"):
        trained.player(seed=None)
    with pytest.raises(UsageError, match="episodes takes a whole number, not '2x'"):
        trained.evaluate("2x")
    with pytest.raises(UsageError, match="seed is -1, at least 0"):
        trained.evaluate(2, seed=-1)
    with pytest.raises(UsageError, match="is no path; give a run folder"):
        recollect.load(trained)
    assert recollect.evaluate(trained, 2).returns == trained.evaluate(2).returns
    with pytest.raises(UsageError, match="env is for agents that are given as paths"):
        recollect.evaluate(trained, 2, env="Acrobot-v1")


WRONG_FIRST = [1], [[True], [False]], [0.5, 0], np.array([2, 0])


def test_starts_of_episodes_may_be_zeros_and_ones(trained):
    obs = np.random.default_rng(0).standard_normal((2, 2, 4)).astype(np.float32)
    params = []
    for first in ([True, False], [1, 0], np.array([1, 0], np.uint8), np.array([1.0, 0.0])):
        player = trained.player(2)
        player.act(obs[0])
        player.act(obs[1], first=first)
        params.append(player.inspect().params)
    assert all(torch.equal(one, params[0]) for one in params)
    for wrong in WRONG_FIRST:
        with pytest.raises(UsageError, match="one bool for each of 2 environments"):
            trained.player(2).act(obs[0], first=wrong)


def test_rewards_that_an_agent_takes_are_finite_numbers_for_each_environment(trained, tmp_path):
    config = small_config("CartPole-v1", rollouts=1, actor=branch("gru", prev_reward=True))
    player, obs = run_quietly(config, tmp_path).player(2), np.zeros((2, 4), np.float32)
    player.act(obs)
    before = player.state
    for wrong, message in (
        (None, r"no reward is given at step 1 of this player, whose agent .* act\(obs, reward\)"),
        ([0.0, np.nan], "reward is nan in environment 1, at step 1 of this player"),
        (np.ones(3), "one number for each of 2 environments"),
        ("one", "one number for each of 2 environments"),
    ):
        with pytest.raises(UsageError, match=message):
            player.act(obs, wrong)
    assert player.state.memory is before.memory
    trained.player().act(obs[0], np.inf)  # this agent takes none


def agent_of(observation, **options):
    actor = replace(branch("gru"), **options)
    spec = read_spaces(observation, spaces.Discrete(3))
    return lively(build_agent(spec, actor, branch("mlp"), False, 0))


NO_NUMBERS = None, "four", {1, 2}, ["a"] * 4, [None] * 4, [[1, 2], [3]], np.ones(4, complex)


CALLS = {
    "act": lambda agent, obs: agent.player().act(obs),
    "predict": lambda agent, obs: agent.predict(obs),
    "value": lambda agent, obs: value(agent, obs, None, None),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_observation_that_is_no_array_of_numbers_is_one_line(call):
    agent = agent_of(spaces.Dict({"other": spaces.Discrete(2), "vector": spaces.Box(-1, 1, (4,))}))
    for wrong in NO_NUMBERS:
        with pytest.raises(UsageError, match=r"observation obs\.vector is .*array of numbers") as error:
            CALLS[call](agent, {"other": 1, "vector": wrong, "text": "what no agent takes may be anything"})
        assert "\n" not in str(error.value)
    CALLS[call](agent, {"other": 1, "vector": torch.ones(4, requires_grad=True)})
    with pytest.raises(UsageError, match=r"observation 'obs' has shape \(\)"):
        CALLS[call](agent_of(spaces.Box(-1, 1, (4,))), 3)


def test_pictures_are_bytes_and_categories_whole_numbers():
    agent, picture = agent_of(spaces.Box(0, 255, (36, 36, 3), np.uint8)), np.arange(36 * 36 * 3) % 256
    player, picture = agent.player(), picture.reshape(36, 36, 3)
    params = []
    for right in (picture.astype(np.uint8), picture, picture.tolist()):
        player.reset()
        player.act(right)
        params.append(player.inspect().params)
    assert all(torch.equal(one, params[0]) for one in params)
    for wrong, message in (
        (picture / 255, "obs is a picture of float64; .* bytes, 0 to 255"),
        (picture.astype(np.float32), "obs is a picture of float32; .* bytes"),
        (picture + 1, "obs is a picture with values from 1 to 256; .* bytes, 0 to 255"),
    ):
        with pytest.raises(UsageError, match=message):
            player.act(wrong)
    player = agent_of(spaces.Discrete(5)).player()
    assert player.act(2.0) == player.act(np.array(2))
    for wrong in (2.7, np.nan, np.inf):
        with pytest.raises(UsageError, match=f"obs is {wrong}; .* whole number"):
            player.act(wrong)


def test_the_state_of_a_player_that_has_not_acted_begins_an_episode():
    agent, obs = agent_of(spaces.Box(-1, 1, (4,)), prev_action=True), np.ones((2, 4), np.float32)
    player, other = agent.player(2), agent.player(2)
    other.continue_from(player.state)
    player.act(obs)
    other.act(obs)
    assert torch.equal(player.inspect().params, other.inspect().params)
    other.continue_from(player.state)  # and later none
    player.act(obs)
    other.act(obs)
    assert torch.equal(player.inspect().params, other.inspect().params)
    with pytest.raises(UsageError, match="num_envs is True"):
        agent.player(True)


@pytest.mark.parametrize("how", ["trained", "loaded"])
def test_values_keep_their_scale_when_the_working_folder_changes(how, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    options = {**OPTIONS, "env.normalize_reward": True}
    run = recollect.train("CartPole-v1", options={**options, "rollouts": 3}, out="runs", quiet=True)
    run = recollect.load(run.folder) if how == "loaded" else run
    before = recollect.load(run.folder.absolute()).value(np.zeros(4, np.float32))
    monkeypatch.chdir(tmp_path / "other")
    assert run.value(np.zeros(4, np.float32)) == before
    run.save("agent.safetensors")
    assert recollect.load("agent.safetensors").value(np.zeros(4, np.float32)) == before
    assert len(run.episodes()) > 0


class Given(gymnasium.Env):
    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 1.0, True, False, {}


def test_what_takes_ids_names_the_class_that_it_got(tmp_path):
    for call in (recollect.compare, recollect.tune):
        with pytest.raises(UsageError, match=r"takes ids of environments.*Given.*; register the class"):
            call(Given, out=tmp_path)
    run = recollect.train(Given, options={**OPTIONS, "rollouts": 1}, out=tmp_path, quiet=True)
    with pytest.raises(UsageError, match="callable-Given, was given as an object of Python"):
        recollect.train(run.config, out=tmp_path)


def test_one_name_is_a_list_of_one(trained, monkeypatch, tmp_path):
    """The letters of a string are no names."""
    asked = []
    monkeypatch.setattr("recollect.run.api.from_dict", lambda data, allowed, *_: asked.append(allowed))
    with pytest.raises(AttributeError):
        recollect.load(trained.folder, imports="my_memory:EmaConfig")
    assert asked == [["my_memory:EmaConfig"]]
    page = recollect.watch(trained, tmp_path / "w.html", episodes=1, shown=1, labels="actions=left,right")
    assert "left" in page.read_text()


@pytest.mark.parametrize(
    "name", ["agent.zip", "agent.pt", "agent.PTH", "agent.pkl", "agent.npz", "agent.onnx.gz"]
)
def test_an_agent_is_not_saved_under_the_name_of_another_format(name, trained, tmp_path):
    with pytest.raises(UsageError, match=rf"{name}: an agent is saved as \.safetensors or \.onnx"):
        trained.save(tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["agent", "agent.safetensors", "agent-0.1", "agent.best"])
def test_other_names_are_safetensors(name, trained, tmp_path):
    trained.save(tmp_path / name)
    weights = recollect.load(tmp_path / name).agent.state_dict()
    assert all(torch.equal(x, weights[key]) for key, x in trained.agent.state_dict().items())


def test_resume_names_the_runs_below_a_folder(trained):
    out = trained.folder.parent
    with pytest.raises(UsageError, match=f"{out} is not one run; it holds {trained.folder}"):
        recollect.resume(out)


def test_check_memory_says_that_it_passed(capsys):
    check_memory(GruConfig(width=8))
    assert capsys.readouterr().out.startswith("GruConfig: all ")


# Small things ---------------------------------------------------------------------------------


def test_runs_are_filed_under_the_memories_that_they_have(tmp_path):
    def folder(env, model, **options):
        run = recollect.train(
            env, model, options={"rollouts": 1, **OPTIONS, **options}, out=tmp_path, quiet=True, run_id="x"
        )
        return run.folder.relative_to(tmp_path).parts[0]

    assert folder("CartPole-v1", "ppo") == "ppo"
    assert folder("poc", "ppo_gru", **{"actor.width": 8}) == "ppo_gru"
    assert folder("CartPole-v1", "ppo", actor="gru") == "ppo-actor_gru"
    assert folder("CartPole-v1", "ppo_gru", critic="shared") == "ppo_gru-critic_shared"
    assert folder("CartPole-v1", "ppo", actor="gru", critic="lstm") == "ppo-actor_gru-critic_lstm"


def test_films_leave_the_environment_of_the_process_as_it_was(trained, tmp_path, monkeypatch):
    monkeypatch.delenv("SDL_VIDEODRIVER", raising=False)
    recollect.watch(trained, tmp_path / "x.html", episodes=1, shown=1)
    assert "SDL_VIDEODRIVER" not in os.environ


def test_the_return_is_shown_from_the_first_episode_on(tmp_path, capsys):
    config = small_config("CartPole-v1", rollouts=3)
    start_run(config, Destination(out=tmp_path, run_id="x", quiet=False))
    last = [line for line in capsys.readouterr().out.splitlines() if "100%" in line][-1]
    assert float(last.split("return")[1].split()[0]) > 0
    rows = (tmp_path / "ppo" / "CartPole-v1" / "x" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(rows[-1])["return"] is None
