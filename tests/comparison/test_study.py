"""The runs of a comparison, from flags and from files; every mistake is reported in one line."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from recollect.common.errors import UsageError
from recollect.comparison.compare import CompareOptions, study_of
from recollect.comparison.study import Study, Variant, read_study
from recollect.config.assembly import assemble
from recollect.config.command import parse
from recollect.memory.mlp import MlpConfig
from recollect.run.build import resolved_config


def of_flags(*arguments):
    return study_of(parse(CompareOptions, arguments, "recollect compare"))


def of_file(tmp_path, data, *arguments):
    path = tmp_path / "study.yaml"
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data))
    return of_flags(str(path), *arguments)


names = st.lists(st.sampled_from(["CartPole-v1", "Acrobot-v1", "poc"]), min_size=1, max_size=3, unique=True)
models = st.lists(st.sampled_from(["ppo", "ppo_gru", "ppo_stack"]), min_size=1, max_size=3, unique=True)


@given(names, models, st.sets(st.integers(1, 50), min_size=2, max_size=4))
def test_it_is_the_product_seed_by_seed(environments, models, seeds):
    chosen = sorted(seeds)
    study = of_flags("-e", *environments, "-m", *models, "--seeds", *map(str, chosen))
    runs = [(config.seed, config.env.id, config.model) for config in study.configs()]
    assert runs == [(s, e, m) for s in chosen for e in environments for m in models]


def test_what_is_open_is_decided_once_for_all_seeds():
    study = of_flags("-e", "CartPole-v1", "poc", "-m", "ppo", "ppo_gru", "--seeds", "3", "8", "9")
    decided = []
    configs = study.configs(lambda config: decided.append(config) or resolved_config(config))
    assert configs == [resolved_config(config) for config in study.configs()]
    assert len(configs) == 12 and len(decided) == 4


def test_one_number_of_seeds_is_a_count_and_several_are_seeds():
    assert of_flags("--seeds", "3").seeds == (1, 2, 3)
    assert of_flags("--seeds", "3", "9").seeds == (3, 9)


def test_every_run_has_one_core_unless_the_study_says_otherwise():
    (config,) = of_flags("-e", "CartPole-v1", "-m", "ppo", "--seeds", "1").configs()
    assert (config.threads, config.env.threads) == (1, 1)
    (config,) = of_flags("-e", "CartPole-v1", "-m", "ppo", "--seeds", "1", "--threads", "2").configs()
    assert config.threads == 2


def test_models_override_environments_and_both_override_options(tmp_path):
    study = of_file(
        tmp_path,
        {
            "environments": {"CartPole-v1": {"steps": 200, "ppo.gamma": 0.9}, "poc": None},
            "models": ["ppo", {"model": "ppo_gpt", "ppo": {"gamma": 0.8}, "critic.context": 25}],
            "seeds": 1,
            "episodes": 7,
            "options": {"steps": 100, "ppo.gamma": 0.95, "ppo.clip": 0.3},
        },
    )
    configs = {(c.env.id, c.model): c for c in study.configs()}
    assert study.episodes == 7
    assert {key: (c.steps, c.ppo.gamma) for key, c in configs.items()} == {
        ("CartPole-v1", "ppo"): (200, 0.9),
        ("CartPole-v1", "ppo_gpt"): (200, 0.8),
        ("poc", "ppo"): (100, 0.95),
        ("poc", "ppo_gpt"): (100, 0.8),
    }
    assert all(c.ppo.clip == 0.3 for c in configs.values())
    assert configs["poc", "ppo_gpt"].critic.memory.context == 25


def test_a_budget_replaces_one_in_another_unit(tmp_path):
    data = {
        "environments": {"poc": {"rollouts": 3}, "CartPole-v1": None},
        "models": ["ppo", {"model": "ppo_gru", "steps": 50}],
        "seeds": 1,
        "options": {"steps": 100},
    }
    budgets = {(c.env.id, c.model): (c.steps, c.rollouts) for c in of_file(tmp_path, data).configs()}
    assert budgets == {
        ("poc", "ppo"): (None, 3),
        ("poc", "ppo_gru"): (50, None),
        ("CartPole-v1", "ppo"): (100, None),
        ("CartPole-v1", "ppo_gru"): (50, None),
    }
    assert {c.rollouts for c in of_file(tmp_path, data, "--rollouts", "2").configs()} == {2}


def test_flags_override_the_file(tmp_path):
    data = {"environments": ["poc"], "models": ["ppo"], "seeds": [4, 5], "options": {"ppo.clip": 0.3}}
    study = of_file(tmp_path, data, "-e", "CartPole-v1", "--seeds", "1", "--ppo.clip", "0.1")
    assert study.environments == (Variant("CartPole-v1"),)
    assert study.models == (Variant("ppo"),)
    assert study.seeds == (1,)
    assert study.configs()[0].ppo.clip == 0.1


def test_a_named_entry_of_the_file_keeps_its_settings(tmp_path):
    data = {
        "environments": {"poc": {"steps": 300}, "CartPole-v1": {"steps": 400}},
        "models": ["ppo", {"model": "ppo_gru", "ppo.gamma": 0.8}, {"model": "ppo_gru", "ppo.gamma": 0.9}],
    }
    configs = of_file(tmp_path, data, "-e", "poc", "Acrobot-v1", "-m", "ppo_gru", "--seeds", "1").configs()
    assert [(c.env.id, c.ppo.gamma) for c in configs] == [
        ("poc", 0.8),
        ("poc", 0.9),
        ("Acrobot-v1", 0.8),
        ("Acrobot-v1", 0.9),
    ]
    assert [c.steps for c in configs[:2]] == [300, 300] and configs[2].steps not in (300, 400)


def test_flags_override_the_settings_of_environments_and_models(tmp_path):
    data = {
        "environments": {"poc": {"steps": 300, "env.time_limit": 20}},
        "models": [{"model": "ppo_gru", "actor.width": 8, "ppo.gamma": 0.8}],
        "options": {"ppo.gamma": 0.9},
    }
    flags = ("--steps", "200", "--env.time-limit", "30", "--ppo.gamma", "0.7")
    config = of_file(tmp_path, data, *flags).configs()[0]
    assert (config.steps, config.env.time_limit, config.ppo.gamma) == (200, 30, 0.7)
    assert config.actor.memory.width == 8


def test_a_list_of_one_seed_is_that_seed(tmp_path):
    assert of_file(tmp_path, {**WHOLE, "seeds": [7]}).seeds == (7,)
    assert of_file(tmp_path, {**WHOLE, "seeds": 3}).seeds == (1, 2, 3)
    assert of_file(tmp_path, {**WHOLE, "seeds": "7-9"}).seeds == (7, 8, 9)
    assert of_file(tmp_path, {**WHOLE, "seeds": ["1-2", 7]}).seeds == (1, 2, 7)


def test_the_seed_of_a_run_is_not_set(tmp_path):
    for study in (("--seed", "7"), ("--seeds", "2", "--seed", "7")):
        with pytest.raises(UsageError, match="--seeds N or --seeds A B"):
            of_flags("-e", "poc", "-m", "ppo", *study).configs()
    with pytest.raises(UsageError, match="--seeds N or --seeds A B"):
        of_file(tmp_path, {**WHOLE, "options": {"seed": 7}}).configs()


WHOLE = {"environments": ["poc"], "models": ["ppo"]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({**WHOLE, "sedes": 3}, "unknown entry 'sedes'; did you mean seeds"),
        ({**WHOLE, "steps": 100}, "unknown entry 'steps'; write options of train below `options:`"),
        ({**WHOLE, "seeds": 0}, "study.yaml: seeds 0: numbers must be above 0 and each given once"),
        ({**WHOLE, "seeds": []}, "study.yaml: seeds : numbers must be above 0 and each given once"),
        ({**WHOLE, "seeds": [1, 1]}, "study.yaml: seeds 1 1: numbers must be above 0 and each given once"),
        ({**WHOLE, "seeds": ["1-3", 2]}, "study.yaml: seeds 1-3 2: numbers must be above 0 and each given"),
        ({**WHOLE, "seeds": "a-b"}, "study.yaml: seeds takes a whole number, not 'a'"),
        ({**WHOLE, "seeds": "-3"}, "study.yaml: seeds -3: numbers must be above 0"),
        ({**WHOLE, "seeds": 2.5}, "study.yaml: seeds takes a whole number, not '2.5'"),
        ({**WHOLE, "seeds": None}, "study.yaml: seeds takes a whole number, not 'None'"),
        ({**WHOLE, "seeds": "9-7"}, "study.yaml: seeds 9-7: a range is A-B with A <= B"),
        ({**WHOLE, "seeds": "many"}, "study.yaml: seeds takes a whole number, not 'many'"),
        ({**WHOLE, "episodes": [1, 2]}, "study.yaml: episodes takes a whole number, not [1, 2]"),
        ({**WHOLE, "models": "ppo"}, "models must be a list, or a mapping from names to settings"),
        ({**WHOLE, "models": []}, "models must be a list, or a mapping from names to settings"),
        ({**WHOLE, "models": [{"critic": "gpt2"}]}, "is neither a name nor settings with 'model'"),
        (
            {**WHOLE, "environments": {"poc": 3}},
            "environments must be names, each with its settings or nothing",
        ),
        ({**WHOLE, "options": [1]}, "options must be a mapping of settings, not [1]"),
        ({"models": ["ppo"]}, "environments must be a list, or a mapping from names to settings"),
        ("a: [", "config file"),
    ],
)
def test_a_bad_file_is_refused_by_name(data, message, tmp_path):
    with pytest.raises(UsageError) as caught:
        of_file(tmp_path, data)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-m", "ppo"), "at least one environment: -e ID"),
        (("-e", "poc"), "at least one model: -m PRESET"),
        (("-e", "poc", "-m", "ppo", "--ppo.gama", "1"), "--ppo.gama"),
        (("-e", "poc", "-m", "ppp"), "model 'ppp' is unknown"),
    ],
)
def test_a_bad_comparison_is_refused_by_name(arguments, message):
    with pytest.raises(UsageError, match=message):
        of_flags(*arguments).configs()


def test_an_empty_study_is_refused():
    with pytest.raises(UsageError):
        Study().configs()


# The files that come with the library ----------------------------------------------------------

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", sorted((ROOT / "studies").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_study_holds_whole_configs(path):
    study = read_study(path)
    assert len(study.configs()) == len(study.environments) * len(study.models) * len(study.seeds)


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_config_is_a_whole_run(path):
    config = assemble(["--config", str(path)])
    remembers = any(branch.memory != MlpConfig() for branch in (config.actor, config.critic))
    chunks = config.ppo.chunks_per_minibatch(config.env.num_envs, config.ppo.chunk_length(remembers))
    assert chunks >= 1


def test_table_one_is_the_same_as_a_file_and_in_its_study():
    alone = assemble(["--config", str(ROOT / "configs" / "gpt2ppo_table1.yaml")])
    study = read_study(ROOT / "studies" / "gpt2ppo_published.yaml")
    frozen, _learning = [
        config
        for config in study.configs()
        if (config.model, config.seed, config.env.id) == ("ppo_gpt_published", 1, "LunarLander-v3")
    ]
    assert replace(frozen, env=replace(frozen.env, threads=alone.env.threads)) == alone


@pytest.mark.parametrize("name", ["cartpole", "lunarlander"])
def test_the_files_of_the_tutorial_are_runs_of_its_study(name):
    alone = assemble(["--config", str(ROOT / "configs" / f"tutorial_{name}.yaml")])
    configs = {c.env.id: c for c in read_study(ROOT / "studies" / "tutorial_published.yaml").configs()}
    config = configs[alone.env.id]
    assert replace(config, seed=1, env=replace(config.env, threads=alone.env.threads)) == alone
