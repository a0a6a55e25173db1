"""Privileged critics: they see variables that the actor never gets, and nothing of them reaches the actor."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces

import recollect
from recollect import cli
from recollect.agent.agent import BranchConfig
from recollect.common.errors import UsageError
from recollect.config.config import RunConfig
from recollect.envs import EnvConfig, make
from recollect.envs.extended import ExtendedEnv
from recollect.envs.gym import GymEnv
from recollect.envs.spaces import HIDDEN
from recollect.learn.rollout import slice_rows
from recollect.run import dataset, film
from recollect.run.teaching import record_episodes

from ..envs.test_misbehaving import Counter
from ..helpers import MEMORIES, L, Scripted, branch, largest, metrics_of, prepare, relearn, roll

PRIVILEGED = {"critic": "mlp", "critic.sees": ["obs", "hidden"]}
SHORT = {"env.num_envs": 8, "ppo.num_steps": 32, "ppo.learning_rate": 3e-3, "val_check_interval": 0}


class Secret(Scripted):
    """Random observations, one random hidden variable, and one that is never reported."""

    def hidden(self):
        never = np.full(self.num_envs, np.nan)
        return {"secret": self.random.standard_normal(self.num_envs), "never": never}


class Luck(gym.Env):
    """Each episode has a secret sign, which is the reward of all its steps; no action changes anything.

    So no critic can predict the return from the observation. One that sees the sign s, but not that 1 to 4
    steps remain, predicts 2.5 s: it explains 2.5^2 of the mean square (1 + 4 + 9 + 16) / 4, which is 5/6.
    """

    action_space = spaces.Discrete(2)

    def __init__(self, nested=False):
        self.nested = nested
        self.observation_space = spaces.Box(-1, 1, (2,))
        if nested:
            parts = {"policy": self.observation_space, "critic": spaces.Box(-1, 1, (1,))}
            self.observation_space = spaces.Dict(parts)

    def _look(self):
        seen = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        if self.nested:
            return {"policy": seen, "critic": np.array([self.sign], np.float32)}
        return seen

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.sign = 0, self.np_random.choice([-1.0, 1.0])
        return self._look(), {"sign": self.sign, "pair": np.array([self.sign, 0.0])}

    def step(self, action):
        self.steps += 1
        info = {"sign": self.sign, "pair": np.array([self.sign, 0.0])}
        return self._look(), self.sign, self.steps == 4, False, info


def learned(tmp_path, env=Luck, **options):
    run = recollect.train(env, options={**SHORT, "rollouts": 30, **options}, out=tmp_path, quiet=True)
    return run, metrics_of(run.folder)[-1]["explained_variance"]


def prepared(actor, critic):
    """A float64 learner on an environment with one hidden variable."""

    from ..helpers import Scripted

    class Secret(Scripted):
        def hidden(self):
            return {
                "secret": self.random.standard_normal(self.num_envs),
                "never": np.full(self.num_envs, np.nan),
            }

    env = ExtendedEnv(Secret(), EnvConfig(id="secret", hidden=True))
    return prepare(actor, critic, env, normalize=True)


@pytest.mark.parametrize("memory", MEMORIES)
def test_the_actor_does_not_depend_on_what_only_the_critic_sees(memory):
    s = prepared(branch(memory, prev_action=True), branch("gru", sees=("obs", "hidden")))
    roll(s)
    rows, state = s.rollout.normalized(s.agent), s.agent.initial_state(s.envs.num_envs)
    changed = rows._replace(obs=rows.obs | {HIDDEN: torch.full_like(rows.obs[HIDDEN], torch.nan)})
    other = rows._replace(obs=rows.obs | {HIDDEN: rows.obs[HIDDEN] + 1})
    with torch.no_grad():
        params, memory_state = s.agent.actor(rows, state.actor)
        again, state_again = s.agent.actor(changed, state.actor)
        assert torch.equal(params, again)
        assert str(memory_state) == str(state_again)
        # The control: the critic does depend on it.
        assert not torch.equal(s.agent.value(rows, state)[0], s.agent.value(other, state)[0])


def test_no_gradient_of_the_values_reaches_the_actor():
    s = prepared(branch("gru"), branch("gru", sees=("obs", "hidden")))
    roll(s)
    rows = slice_rows(s.rollout.normalized(s.agent), slice(0, L))
    s.agent(rows, s.agent.initial_state(s.envs.num_envs))[1].sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in s.agent.actor.parameters())
    assert any(p.grad.any() for p in s.agent.critic.parameters())


@pytest.mark.parametrize("critic", MEMORIES)
def test_acting_equals_learning_with_a_privileged_critic(critic):
    s = prepared(branch("gru"), branch(critic, sees=("hidden",)))
    for _ in range(2):
        roll(s)
        assert largest(relearn(s)) < 1e-12


def test_a_critic_that_sees_the_secret_predicts_the_return_and_one_that_does_not_cannot(tmp_path):
    run, explained = learned(tmp_path / "sees", **PRIVILEGED)
    assert explained == pytest.approx(5 / 6, abs=0.05)
    assert run.config.env.hidden and run.agent.actor.inputs.leaves.keys() == {"obs"}
    assert run.agent.obs_spec.leaves[HIDDEN].shape == (3,)  # sign, and the two entries of pair
    blind = learned(tmp_path / "blind", critic="mlp")[1]
    assert blind < 0.1


def test_each_branch_gets_its_own_keys_of_a_dict(tmp_path):
    options = {"critic": "mlp", "actor.sees": ["policy"], "critic.sees": ["policy", "critic"]}
    run, explained = learned(tmp_path, lambda: Luck(nested=True), **options)
    assert explained == pytest.approx(5 / 6, abs=0.05)
    assert run.agent.actor.inputs.leaves.keys() == {"obs.policy"}
    # Who only acts need not have what the critic sees.
    player = run.player()
    assert player.act({"policy": np.zeros(2, np.float32)}) in (0, 1)
    with pytest.raises(UsageError, match=r"needed are obs\.critic, obs\.policy"):
        player.act({"something": np.zeros(2, np.float32)})
    with pytest.raises(UsageError, match=r"actor of this agent sees obs\.policy.* it has obs\.critic"):
        player.act({"critic": np.zeros(1, np.float32)})


def test_the_agent_acts_without_the_secret_also_after_loading(tmp_path):
    run, _ = learned(tmp_path, **PRIVILEGED | {"rollouts": 2})
    loaded = recollect.load(run.folder, env=Luck)
    assert loaded.evaluate(4).returns == run.evaluate(4).returns
    assert loaded.player().act(np.zeros(2, np.float32)) in (0, 1)
    page = recollect.watch(run, tmp_path / "page.html", episodes=2)  # values need the secret
    assert "hidden[0]" in page.read_text()


@pytest.mark.parametrize(
    ("option", "missing"), [("hidden", "hidden variables"), ("action-mask", "action masks")]
)
def test_what_a_recording_lacks_or_has_beside_a_clone_is_named(option, missing, tmp_path, capsys):
    flag, env = ["--env." + option, "True"], "minigrid:Empty-5x5"
    for name, extra in (("with", flag), ("without", [])):
        out = ["--out", str(tmp_path), "--run-id", name, "--quiet", "--env.backend", "gymnasium"]
        assert cli.main(["train", env, "--env.num-envs", "2", "--rollouts", "1", *out, *extra]) == 0
        run, file = next(tmp_path.glob(f"*/*/{name}")), tmp_path / f"{name}.npz"
        assert cli.main(["record", str(run), "-o", str(file), "--episodes", "1"]) == 0
    words = ["-e", env, "--env.backend", "gymnasium", "--epochs", "1", "-o", str(tmp_path / "x.safetensors")]
    shown = " ".join(flag)
    for name, extra, hint in (
        ("with", [], f"the recording has {missing}: add {shown}\n"),
        ("without", flag, f"no {missing}: record an agent that was trained with {shown}\n"),
    ):
        assert cli.main(["clone", str(tmp_path / f"{name}.npz"), *words, *extra]) == 2
        assert capsys.readouterr().err.endswith(hint)


def test_an_agent_plays_where_there_is_not_what_only_its_critic_sees(tmp_path, monkeypatch, capsys):
    options = SHORT | PRIVILEGED | {"rollouts": 1, "steps": None, "val_check_interval": 1}
    run = recollect.train("CartPoleNoVel-v1", options=options, out=tmp_path, quiet=True)
    assert record_episodes(run, 1).obs.keys() == {"obs", "hidden"}  # which a clone may need
    folder, other = str(run.folder), ["-e", "CartPole-v1"]
    recorded, clone = str(tmp_path / "hidden.npz"), str(tmp_path / "clone.safetensors")
    assert cli.main(["record", folder, "-o", recorded, "--episodes", "1"]) == 0
    words = ["clone", recorded, "-e", "CartPoleNoVel-v1", "--epochs", "1", "-o", clone]
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert "has observations (obs: 4 numbers, hidden: 2 numbers, entries 1, 3 hidden), and CartPole" in error
    assert error.endswith("3 hidden); the recording has hidden variables: add --env.hidden True\n")
    assert cli.main([*words, "--env.hidden", "True"]) == 0
    assert cli.main(["eval", folder, *other, "--episodes", "2"]) == 0
    monkeypatch.setattr(film, "_render", lambda envs, env: np.zeros((8, 8, 3), np.uint8))
    assert cli.main(["eval", folder, *other, "--render", str(tmp_path / "x.gif")]) == 0
    assert cli.main(["record", folder, *other, "-o", str(tmp_path / "x.npz"), "--episodes", "2"]) == 0
    assert dataset.read(tmp_path / "x.npz").obs.keys() == {"obs"}


@pytest.mark.parametrize("play", [lambda run: run.evaluate(1), lambda run: record_episodes(run, 1)])
def test_an_actor_that_sees_hidden_variables_needs_them(tmp_path, play):
    options = SHORT | PRIVILEGED | {"actor.sees": ["obs", "hidden"], "rollouts": 1, "steps": None}
    run = recollect.train("CartPoleNoVel-v1", options=options, out=tmp_path, quiet=True)
    with pytest.raises(UsageError, match=r"CartPole-v1 .* has no hidden variables"):
        play(recollect.load(run.folder, env="CartPole-v1"))


def test_environments_without_hidden_variables_are_closed(monkeypatch):
    closed = []
    monkeypatch.setattr(Luck, "close", lambda self: closed.append(self))
    monkeypatch.setattr(GymEnv, "hidden", lambda self: {})
    with pytest.raises(UsageError, match="has no hidden variables"):
        make(EnvConfig(id="luck", num_envs=3, hidden=True), Luck)
    assert len(closed) == 3


def test_hidden_entries_of_a_masked_vector_are_hidden_variables():
    config = EnvConfig(id="CartPoleNoVel-v1", num_envs=2, hidden=True)
    envs = make(config)
    obs = envs.reset([1, 2])
    whole = make(EnvConfig(id="CartPole-v1", num_envs=2))
    assert np.array_equal(obs[HIDDEN], whole.reset([1, 2])["obs"][:, [1, 3]])
    step, full = envs.step(np.array([[0], [1]])), whole.step(np.array([[0], [1]]))
    assert np.array_equal(step.obs[HIDDEN], full.obs["obs"][:, [1, 3]])
    assert not step.obs["obs"][:, [1, 3]].any()


def test_variables_of_minigrid():
    pytest.importorskip("minigrid")
    envs = make(EnvConfig(id="minigrid:MemoryS7", num_envs=6, backend="gymnasium", hidden=True))
    variables = envs.adapter.hidden()
    assert len(variables) == envs.obs_spec.leaves[HIDDEN].shape[0] == 8
    envs.reset([*range(6)])
    inner = envs.adapter.inner.inner.local_envs
    variables = envs.adapter.hidden()
    for i, env in enumerate(inner):
        world = env.unwrapped
        x, y = world.success_pos
        below = y > world.height // 2
        matching = world.grid.get(x, y + 1 if below else y - 1)
        assert (matching.type == "ball") == variables["the object is a ball"][i]
        assert below == variables["the right end is below"][i]
        assert variables["x"][i] * world.width == pytest.approx(world.agent_pos[0])
    envs.adapter.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"critic.sees": ["hidden"]},
            "CartPole-v1 .* has no hidden variables, but `sees` or `predict` names hidden",
        ),
        ({"actor.sees": ["speed"]}, "sees names 'speed', which the observation does not have; it has obs"),
        ({"critic": "shared", "critic.sees": ["obs"]}, "a shared critic has no inputs of its own"),
    ],
)
def test_what_cannot_be_seen_is_refused(options, message, tmp_path):
    with pytest.raises(UsageError, match=message):
        recollect.train("CartPole-v1", options=options, out=tmp_path, quiet=True)


def test_a_config_that_sees_hidden_variables_asks_the_environment_for_them():
    assert RunConfig(critic=BranchConfig(sees=("hidden",))).env.hidden
    assert not RunConfig(critic=BranchConfig(sees=("obs",))).env.hidden


def test_a_variable_that_only_steps_report_is_named():
    class Late(Counter):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed)[0], {"cue": 1.0}

        def step(self, action):
            *outcome, _ = super().step(action)
            return *outcome, {"cue": 1.0, "speed": 2.0, "success": 1.0}

    envs = make(EnvConfig(id="late", num_envs=2, hidden=True), Late)
    envs.reset([0, 1])
    with pytest.warns(UserWarning, match="late reports speed in steps and not at its first reset") as caught:
        for _ in range(3):
            step = envs.step(np.zeros((2, 1), np.int64))
    assert len(caught) == 1 and step.obs["hidden"].shape == (2, 1)
