"""What GPT2PPO published, and the file and the presets that repeat it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.config.assembly import assemble
from recollect.config.presets import preset

ROOT = Path(__file__).parents[2]
PUBLISHED = json.loads((ROOT / "docs/results/published.json").read_text())
FILE = ["--config", str(ROOT / "configs/gpt2ppo_table1.yaml")]


def test_the_file_of_table_1_has_the_values_of_table_1():
    config, wanted = assemble(FILE), PUBLISHED["hyperparameters"]
    ppo, gpt2 = config.ppo, config.critic.memory
    assert config.steps == wanted["epochs"] * wanted["steps per epoch"]
    assert ppo.num_steps * config.env.num_envs == wanted["steps per epoch"]
    assert ppo.steps_per_minibatch * ppo.update_epochs == wanted["training steps per epoch"]
    assert (ppo.gamma, ppo.gae_lambda, ppo.clip) == tuple(
        wanted[x] for x in ("gamma", "lambda", "clip ratio")
    )
    assert (ppo.learning_rate, ppo.critic_learning_rate) == (
        wanted["actor learning rate"],
        wanted["critic learning rate"],
    )
    assert (ppo.batch_size, config.env.time_limit) == (wanted["batch size"], wanted["max episode length"])
    names = {"context length": "context", "layers": "layers", "heads": "heads", "dropout": "dropout"}
    names |= {"positions": "positions", "hidden size": "width"}
    assert {name: getattr(gpt2, ours) for name, ours in names.items()} == {
        name: wanted[name] for name in names
    }
    assert config.actor.hidden == (wanted["hidden size"],) * 2


@pytest.mark.parametrize("env_id", ["LunarLander-v3", "Acrobot-v1", "BipedalWalker-v3"])
def test_the_preset_is_the_file_on_every_task(env_id):
    """Whatever settings a task has of its own."""
    file = assemble([*FILE, "--env.id", env_id])
    assert replace(preset("ppo_gpt_published", env_id), steps=file.steps) == file


@pytest.mark.parametrize("env_id", ["LunarLander-v3", "BipedalWalker-v3"])
def test_both_published_models_differ_in_their_networks_alone(env_id):
    plain, gpt2 = (preset(model, env_id) for model in ("ppo_published", "ppo_gpt_published"))
    both = replace(gpt2, model=plain.model, actor=plain.actor, critic=plain.critic)
    assert replace(both, ppo=replace(both.ppo, bptt=None)) == plain


def test_every_curve_of_both_drafts_is_read():
    figures = PUBLISHED["figures"]
    assert [one["figure"] for one in figures] == list(range(4, 20))
    second = [one["second_draft_figure"] for one in figures if one["second_draft_figure"]]
    assert second == list(range(4, 18))
    for one in figures:
        assert one["lines"] or one["note"]
        assert set(one["lines"]) in ({"PPO", "GPT2PPO"}, {"25", "50", "75"}, set())
