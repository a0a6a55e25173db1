"""Prediction heads: exact losses, what a memory learns from them, and nothing if they are off."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import recollect
from recollect.agent.agent import BranchConfig, build_agent
from recollect.agent.predictors import Predictor
from recollect.common.errors import UsageError
from recollect.config.assembly import assemble
from recollect.config.data import config_hash
from recollect.envs import EnvConfig, Envs
from recollect.envs.extended import ExtendedEnv
from recollect.envs.spaces import HIDDEN, Leaf
from recollect.learn import auxiliary, ppo
from recollect.learn.auxiliary import error
from recollect.learn.minibatches import Minibatches
from recollect.memory.rnn import GruConfig
from recollect.run import api
from recollect.run.display import SilentDisplay

from ..helpers import (
    MEMORIES,
    L,
    N,
    Scripted,
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
    small_config,
)

EVERYTHING = "obs", "reward", "hidden"
DICT = spaces.Dict({"place": spaces.Discrete(3), "speed": spaces.Box(-1.0, 1.0, (4,), np.float32)})
SHORT = {"env.num_envs": 8, "ppo.num_steps": 32, "ppo.learning_rate": 3e-3, "val_check_interval": 0}


class Secret(Scripted):
    """Random observations and one random hidden variable."""

    def hidden(self):
        return {"secret": self.random.standard_normal(self.num_envs)}


class Promise(gym.Env):
    """A sign is shown in the first of four observations; the reward of the last step is the sign."""

    observation_space = spaces.Box(-1, 1, (1,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.sign = 0, self.np_random.choice([-1.0, 1.0])
        return np.array([self.sign], np.float32), {"sign": self.sign}

    def step(self, action):
        self.steps += 1
        over = self.steps == 4
        return np.zeros(1, np.float32), self.sign * over, over, False, {"sign": self.sign}


def prepared(actor, critic, observation=DICT):
    """A float64 learner on an environment with a hidden variable."""
    env = ExtendedEnv(Secret(observation), EnvConfig(id="secret", hidden=True))
    return prepare(actor, critic, env, normalize=True)


def minibatch(s, length=L):
    """The whole rollout as one minibatch of an update."""
    estimates = ppo.estimates(s.learner, s.rollout, s.plan.ppo)
    minibatches = Minibatches(s.learner, s.rollout, s.plan, length, s.plan.ppo.draw, estimates)
    return next(next(iter(minibatches)))


# Exact losses ---------------------------------------------------------------------------------


def step_losses(s, side):
    """The losses of one branch, step by step in Python: the sum of each and the number of its steps."""
    rollout, rows = s.rollout, s.rollout.normalized(s.agent)
    heads, sums, counts = side.predictors.heads, dict.fromkeys(EVERYTHING, 0.0), dict.fromkeys(EVERYTHING, 0)
    state = rollout.starts[0] if side is s.agent.actor else rollout.critic_starts[0]
    features, _ = side.features(rows, state)
    scaled = s.learner.rewards.scaled(rollout.reward)
    for t in range(T):
        for n in range(N):
            if not rollout.valid[t, n]:
                continue
            action = torch.nn.functional.one_hot(rollout.action[t, n, 0].long(), 3).double()
            ahead = {name: leaf[t + 1, n].double() for name, leaf in rows.obs.items()}
            inputs = torch.cat([features[t, n], action])

            def output(name, x):
                return heads[name].out(heads[name].body(x))

            place, speed = output("obs", inputs).split([3, 4])
            category = -place.log_softmax(-1)[int(ahead["obs.place"])]
            squares = [*(speed - ahead["obs.speed"]) ** 2, category]
            losses = {
                "obs": sum(squares) / 5,
                "reward": (output("reward", inputs)[0] - scaled[t, n]) ** 2,
                "hidden": (output("hidden", features[t, n])[0] - rows.obs[HIDDEN][t, n, 0]) ** 2,
            }
            for name, loss in losses.items():
                if name == "hidden" or not rollout.cut_short[t, n]:
                    sums[name] += float(loss)
                    counts[name] += 1
    return sums, counts


def test_losses_equal_those_of_a_loop_over_steps():
    names = {"predict": EVERYTHING}
    s = prepared(branch("gru", **names), branch("lstm", **names))
    for _ in range(2):  # the second rollout begins within episodes, and after statistics were updated
        roll(s)
        # As after an environment that was restarted: there is no next observation.
        s.rollout.cut_short[3] = s.rollout.valid[3]
        batch = minibatch(s)
        with torch.no_grad():
            computed = auxiliary.losses(s.agent.outputs(batch.rows, batch.state).heads, batch)
            actor, counts = step_losses(s, s.agent.actor)
            critic, _ = step_losses(s, s.agent.critic)
        steps = int(s.rollout.valid[:T].sum())
        assert counts["hidden"] == steps and counts["obs"] < steps
        for name in EVERYTHING:
            expected = (actor[name] + critic[name]) / steps
            # 1e-6, because the weights of steps have single precision.
            assert float(computed[f"predict_{name}"]) == pytest.approx(expected, rel=1e-6), name
        s.learner.update_statistics(s.rollout)
        s.learner.iteration += 1


def test_numbers_have_a_squared_error_and_categories_the_cross_entropy():
    leaves = {"x": Leaf("vector", (2,)), "c": Leaf("discrete", (), (4,))}
    head = Predictor((3, 2), leaves, is_next=True, activation="tanh").double()
    torch.nn.init.zeros_(head.out.weight)
    head.out.bias.data = torch.tensor([1.0, -1.0, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64)
    features = torch.randn(1, 1, 3, dtype=torch.float64)
    targets = {"x": torch.tensor([[[1.5, -3.0]]]), "c": torch.tensor([[2]]), "action": torch.zeros(1, 1, 2)}
    expected = (0.5**2 + 2.0**2 + np.log(4)) / 3
    assert error(head, features, targets).item() == pytest.approx(expected)


@pytest.mark.parametrize("memory", [*MEMORIES, "shared"])
def test_acting_equals_learning_with_predictions(memory):
    actor = "gru" if memory == "shared" else memory
    predict = {} if memory == "shared" else {"predict": ("obs",)}
    s = prepared(branch(actor, predict=EVERYTHING), branch(memory, **predict))
    for _ in range(2):
        roll(s)
        assert largest(relearn(s)) < 1e-12


# Gradients ------------------------------------------------------------------------------------


def gradients(s, only):
    """The parameters that get a gradient from the loss of one prediction, by name."""
    roll(s)
    batch = minibatch(s)
    s.agent.zero_grad()
    auxiliary.losses(s.agent.outputs(batch.rows, batch.state).heads, batch)[only].backward()
    return {name for name, p in s.agent.named_parameters() if p.grad is not None and p.grad.any()}


@pytest.mark.parametrize("only", EVERYTHING)
def test_a_prediction_trains_the_layers_and_the_memory_that_its_features_come_from(only):
    s = prepared(branch("gru", predict=EVERYTHING), branch("gru"))
    trained = gradients(s, f"predict_{only}")
    assert any(name.startswith("actor.memory") for name in trained)
    assert any(name.startswith(f"actor.predictors.{only}") for name in trained)
    assert not any(name.startswith(("critic", "actor.head")) for name in trained)


def test_an_agent_with_predictions_begins_with_the_weights_of_one_without():
    envs = Envs(Scripted())
    agents = [
        build_agent(
            (envs.obs_spec, envs.action_spec), branch("gru", predict=names), branch("lstm"), True, seed=3
        )
        for names in ((), ("obs", "reward"))
    ]
    plain, predicting = (agent.state_dict() for agent in agents)
    assert predicting.keys() - plain.keys() == {n for n in predicting if n.startswith("actor.predictors.")}
    assert all(torch.equal(x, predicting[name]) for name, x in plain.items())


# What a memory learns -------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_memory_learns_to_hold_what_is_predicted_and_without_one_it_cannot_be(tmp_path):
    # A constant prediction of a sign has an error of 1, of which 1/4 is left where the first step shows it:
    # without a memory 3/4 remain, and the reward of 1 step in 4 has an error of 1/4.
    options = {
        "critic": "mlp",
        "actor.predict": ["hidden", "reward"],
        "ppo.predict_coef": 1.0,
        "ppo.learning_rate": 6e-3,
        "rollouts": 30,
        "env.normalize_reward": False,
        "env.normalize_obs": False,
        "ppo.lr_decay.final": None,
    }
    last = {}
    for model in ("gru", "mlp"):
        chosen = {**SHORT, **options, "actor": model}
        run = recollect.train(Promise, options=chosen, out=tmp_path / model, quiet=True)
        last[model] = metrics_of(run.folder)[-1]
    assert last["gru"]["predict_hidden"] < 0.05 and last["gru"]["predict_reward"] < 0.05
    assert last["mlp"]["predict_hidden"] == pytest.approx(0.75, abs=0.1)
    assert last["mlp"]["predict_reward"] == pytest.approx(0.25, abs=0.07)
    assert last["gru"]["predict_obs"] is None


@pytest.mark.thorough
def test_a2c_learns_predictions(tmp_path):
    options = {
        "algorithm": "a2c",
        "actor": "gru",
        "critic": "mlp",
        "actor.predict": ["hidden"],
        "ppo.predict_coef": 1.0,
        "ppo.learning_rate": 3e-2,
        "rollouts": 50,
    }
    run = recollect.train(Promise, options={**SHORT, **options}, out=tmp_path, quiet=True)
    errors = [row["predict_hidden"] for row in metrics_of(run.folder)]
    assert errors[0] > 0.8 and errors[-1] < 0.3


def test_the_agent_acts_without_what_it_predicts(tmp_path):
    options = {**SHORT, "actor": "gru", "actor.predict": ["hidden"], "rollouts": 2}
    run = recollect.train(Promise, options=options, out=tmp_path, quiet=True)
    loaded = recollect.load(run.folder, env=Promise)
    assert loaded.player().act(np.zeros(1, np.float32)) in (0, 1)
    assert loaded.evaluate(4).returns == run.evaluate(4).returns


# Runs -----------------------------------------------------------------------------------------


def predicting_config(**changes):
    config = small_config("CartPole-v1", **changes)
    gru = BranchConfig(memory=GruConfig(width=8), hidden=(8,), predict=("obs", "reward"))
    return type(config)(**{**vars(config), "actor": gru})


@pytest.mark.parametrize("kernels", ["torch", "native"])
def test_a_resumed_run_ends_like_an_uninterrupted_one(kernels, tmp_path, monkeypatch):
    config = predicting_config(kernels=kernels)
    straight = run_quietly(config, tmp_path, "straight")
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: StopAt(5))
    stopped = run_quietly(config, tmp_path, "stopped")
    monkeypatch.setattr("recollect.run.session.make_display", lambda *_: SilentDisplay())
    assert_same_end(straight.folder, api.resume(stopped.folder).folder)
    assert all(row["predict_obs"] > 0 for row in metrics_of(straight.folder))
    kinds = {"torch": "torch", "native": "critic only"}
    assert straight.summary["kernels"].endswith(kinds[kernels])


def test_both_engines_give_the_same_predictions(tmp_path):
    runs = [
        run_quietly(predicting_config(kernels=kernels, rollouts=2), tmp_path, kernels)
        for kernels in ("torch", "native")
    ]
    by_torch, native = (metrics_of(run.folder)[-1] for run in runs)
    for name in ("predict_obs", "predict_reward", "policy_loss", "value_loss"):
        assert by_torch[name] == pytest.approx(native[name], rel=1e-3), name


def test_nothing_is_predicted_by_default(tmp_path):
    run = run_quietly(small_config(rollouts=2), tmp_path)
    assert not any("predictors" in name for name in run.agent.state_dict())
    assert {metrics_of(run.folder)[-1][f"predict_{name}"] for name in EVERYTHING} == {None}
    assert config_hash(assemble(["--actor.predict", "obs"])) != config_hash(assemble([]))


def test_weights_of_an_agent_without_predictions_start_one_with_them(tmp_path):
    plain = small_config("CartPole-v1", rollouts=2)
    gru = BranchConfig(memory=GruConfig(width=8), hidden=(8,))
    trained = run_quietly(type(plain)(**{**vars(plain), "actor": gru}), tmp_path, "plain")
    config = predicting_config(rollouts=1)
    init = type(config.init)(path=str(trained.folder), parts=("actor.encoder", "actor.memory"))
    run = run_quietly(type(config)(**{**vars(config), "init": init}), tmp_path, "started")
    assert run.summary["status"] == "finished"


# Bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--actor.predict", "future"], "predict names 'future'; it can be obs, reward, hidden"),
        (["--ppo.predict-coef", "0"], "ppo.predict_coef is 0.0, it must be above 0"),
        (["--ppo.predict-coef", "nan"], "ppo.predict_coef is nan, it must be above 0"),
        (
            ["--critic", "shared", "--critic.predict", "obs"],
            "a shared critic has the features of the actor: use actor.predict",
        ),
        (
            ["-m", "trpo", "--actor.predict", "obs"],
            "algorithm trpo learns no predictions: actor.predict and critic.predict need algorithm ppo or "
            "a2c",
        ),
        (
            ["--actor.predict", "obs", "obs"],
            "predict names obs twice",
        ),
    ],
)
def test_a_mistake_is_named_in_one_line(flags, message):
    with pytest.raises(UsageError) as caught:
        assemble(flags)
    assert str(caught.value).endswith(message)


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        (
            "CartPole-v1",
            {"actor.predict": ["hidden"]},
            "CartPole-v1 .* has no hidden variables, but .* `predict`",
        ),
        (
            "CartPoleNoVel-v1",
            {"critic": "mlp", "critic.sees": ["hidden"], "critic.predict": ["hidden"]},
            r"predict hidden: the branch gets the hidden variables as an input \(sees\)",
        ),
        (
            "CartPoleNoVel-v1",
            {"critic": "mlp", "critic.sees": ["hidden"], "critic.predict": ["obs"]},
            r"predict obs: there is nothing to predict, because the branch gets only hidden \(vector\)",
        ),
    ],
)
def test_what_cannot_be_predicted_is_refused(env, options, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        recollect.train(env, options=options, out=tmp_path, quiet=True)
