"""Presets are what they say, on tasks that begin from different settings."""

from dataclasses import replace

import pytest
import torch

from recollect.agent.agent import Branch, build_agent
from recollect.config.assembly import assemble
from recollect.config.config import resolve
from recollect.config.presets import MODELS, preset
from recollect.config.tasks import TASKS
from recollect.envs import make
from recollect.learn import ppo
from recollect.learn.algorithms import UPDATES
from recollect.learn.learner import begin
from recollect.learn.settings import WHOLE_ROLLOUTS

from ..helpers import sampled

# Memory of the actor, memory of the critic, or "shared".
WANTED = {
    "ppo_stack": ("Stack", "Stack"),
    "ppo_gru": ("Chain", "Chain"),
    "ppo_lstm": ("Chain", "Chain"),
    "ppo_mingru": ("Chain", "Chain"),
    "ppo_rnn": ("Chain", "Chain"),
    "ppo_indrnn": ("Chain", "Chain"),
    "ppo_lmu": ("Chain", "Chain"),
    "ppo_lru": ("Blocks", "Blocks"),
    "ppo_ffm": ("Chain", "Chain"),
    "ppo_mamba": ("Blocks", "Blocks"),
    "ppo_linear_attention": ("Blocks", "Blocks"),
    "ppo_deltanet": ("Blocks", "Blocks"),
    "ppo_mlstm": ("Blocks", "Blocks"),
    "ppo_slstm": ("Blocks", "Blocks"),
    "ppo_shm": ("Chain", "Chain"),
    "ppo_gpt": ("Mlp", "Banded"),
    "ppo_gpt_frozen": ("Mlp", "Banded"),
    "ppo_published": ("Mlp", "Mlp"),
    "ppo_gpt_published": ("Mlp", "Banded"),
    "ppo_gpt_shared": ("Banded", "shared"),
    "ppo_gpt_actor": ("Banded", "Banded"),
    "ppo_trxl": ("TransformerXl", "shared"),
    "ppo_gtrxl": ("TransformerXl", "shared"),
}
SMALL = ["--env.num-envs", "2", "--ppo.num-steps", "16", "--rollouts", "2"]
MINIBATCHES = {"ppo_published": ["--ppo.batch-size", "32"], "ppo_gpt_published": ["--ppo.batch-size", "32"]}
# Parts that keep their first weights.
FROZEN = {
    "ppo_gpt_frozen": ("critic.memory.",),
    "ppo_gpt_published": ("critic.memory.", "actor.encoder."),
}


def built(model, env_id, *flags):
    small = [*SMALL, *MINIBATCHES.get(model, ["--ppo.num-minibatches", "1"])]
    config = assemble(["--env.id", env_id, "--model", model, *small, *flags])
    envs = make(config.env)
    adapter = envs.adapter
    config = resolve(config, adapter.backend, adapter.tier == "native", adapter.time_limit)
    agent = build_agent((envs.obs_spec, envs.action_spec), config.actor, config.critic, False, seed=1)
    return config, envs, agent


def test_every_model_is_listed_here():
    assert WANTED.keys() | UPDATES.keys() == MODELS.keys()


@pytest.mark.parametrize("name", UPDATES)
def test_an_algorithm_is_a_model_that_goes_with_any_memory(name):
    config = assemble(["--env.id", "LunarLander-v3", "--model", name, "--actor", "gru"])
    assert config.algorithm == name
    assert config.actor.memory.name == "gru"


@pytest.mark.parametrize("env_id", ["CartPole-v1", "poc", "LunarLander-v3"])
@pytest.mark.parametrize("model", WANTED)
def test_a_model_has_the_memories_that_it_names(model, env_id):
    _, envs, agent = built(model, env_id)
    critic = type(agent.critic.memory).__name__ if isinstance(agent.critic, Branch) else "shared"
    assert (type(agent.actor.memory).__name__, critic) == WANTED[model]
    envs.adapter.close()


@pytest.mark.parametrize(
    ("env_id", "gamma"),
    [
        ("popgym:RepeatFirstEasy", 0.0),
        ("popgym:RepeatPreviousMedium", 0.0),
        ("popgym:AutoencodeHard", 0.0),
        ("popgym:CountRecallEasy", 0.0),
        ("popgym:HigherLowerHard", 0.0),
        ("popgym:ConcentrationEasy", 0.99),  # a card that is turned stays turned
        ("popgym:NoisyPositionOnlyCartPoleEasy", 0.99),
        ("my_module:RepeatFirstEasy-v0", 0.99),  # whose actions may matter
    ],
)
def test_games_in_which_no_action_changes_what_comes_later_have_a_discount_of_0(env_id, gamma):
    config = preset("ppo_gru", env_id)
    assert config.ppo.gamma == gamma and config.env.id == env_id
    if env_id.startswith("popgym:"):
        suite = preset("ppo_gru", "popgym:NoisyPositionOnlyCartPoleEasy")
        assert config.ppo == replace(suite.ppo, gamma=gamma) and config.steps == suite.steps


@pytest.mark.parametrize("model", MODELS)
def test_every_model_goes_with_every_task(model):
    for task in TASKS:
        config = assemble(["--env.id", task, "--model", model])
        assert config.model == model
        has_memory = any(branch.memory.name != "mlp" for branch in (config.actor, config.critic))
        whole = config.algorithm in WHOLE_ROLLOUTS
        length = config.ppo.chunk_length(has_memory)
        assert config.ppo.chunks_per_minibatch(config.env.num_envs, length, whole) > 0


def test_a_preset_has_no_more_minibatches_than_a_memory_can_fill():
    lander = ["--env.id", "LunarLanderContinuous-v3"]
    assert assemble(lander).ppo.num_minibatches == 64
    assert assemble([*lander, "--actor", "gru"]).ppo.num_minibatches == 32
    assert assemble([*lander, "--actor", "gru", "--ppo.bptt", "16"]).ppo.num_minibatches == 64
    assert (
        assemble(["--env.id", "Acrobot-v1", "--critic", "lstm", "--env.num-envs", "8"]).ppo.num_minibatches
        == 8
    )
    # What is asked for is not changed: such a run is refused with the sizes.
    asked = assemble([*lander, "--actor", "gru", "--ppo.num-minibatches", "64"])
    assert asked.ppo.num_minibatches == 64


def test_reinforce_normalises_rewards_where_the_task_has_popart():
    task, config = preset("ppo", "Pendulum-v1"), preset("reinforce", "Pendulum-v1")
    assert task.critic.value == "popart" and not task.env.normalize_reward
    assert config.critic.value == "scalar" and config.env.normalize_reward


@pytest.mark.parametrize("env_id", ["CartPoleNoVel-v1", "CartPoleMasked", "CartPole-v1"])
def test_a_task_has_the_same_settings_by_its_long_name(env_id):
    short, long = (preset("ppo_lstm", name) for name in (env_id, f"masked:{env_id}"))
    assert short.actor == long.actor and short.ppo == long.ppo


@pytest.mark.parametrize("model", ["ppo_gpt", "ppo_gpt_frozen", "ppo_gpt_published", "ppo_gpt_actor"])
def test_a_critic_with_a_memory_of_its_own_shares_none(model):
    """Also where the task's own settings let both share one."""
    config = assemble(["--env.id", "minigrid:MemoryS9", "--model", model])
    assert not config.critic.shared
    assert assemble(["--env.id", "minigrid:MemoryS9", "--model", "ppo_lstm"]).critic.shared


FEW = "ppo_stack", "ppo_lstm", "ppo_gpt", "ppo_mamba", "ppo_gtrxl"


@pytest.mark.parametrize("model", sampled(WANTED, *FEW))
def test_every_model_learns_and_agrees_with_its_acting(model):
    config, envs, agent = built(model, "CartPole-v1")
    before = {name: p.detach().clone() for name, p in agent.named_parameters()}
    plan = config.plan
    metrics = list(ppo.train(envs, begin(envs, agent, plan), plan))
    assert all(m["ratio_error"] < 1e-4 and m["value_error"] < 1e-4 for m in metrics)
    still = {name for name, p in agent.named_parameters() if torch.equal(p, before[name])}
    assert still == {name for name in before if name.startswith(FROZEN.get(model, ("none",)))}
    envs.adapter.close()


@pytest.mark.parametrize("algorithm", UPDATES)
def test_what_a_critic_drops_out_is_no_disagreement(algorithm):
    dropping = ["--critic", "gpt2", "--critic.dropout", "0.5", "--critic.width", "8", "--critic.heads", "2"]
    config, envs, agent = built(algorithm, "CartPole-v1", *dropping)
    learner = begin(envs, agent, config.plan)
    metrics = list(ppo.train(envs, learner, config.plan, UPDATES[algorithm]))
    assert len(metrics) == 2 and not any(m["ratio_error"] > 1e-4 for m in metrics)
    envs.adapter.close()
