"""The study files still describe the runs of their reports, although presets have changed since."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.comparison.study import read_study
from recollect.config.data import LATER, to_dict
from recollect.reporting.runs import flatten

STUDIES, RESULTS = (Path(__file__).parents[2] / folder for folder in ("studies", "docs/results"))
REPORTED = [path.stem for path in sorted(STUDIES.glob("*.yaml")) if (RESULTS / path.stem).is_dir()]
# Encoders of pictures are chosen by options of other names today.
RENAMED = {f"{branch}.{name}" for branch in ("actor", "critic") for name in ("pictures", "picture_features")}


def changes(reported: dict[str, object], today: dict[str, object]) -> dict[str, object]:
    """Settings of a run that today's config has otherwise. What that leaves open, a run decides."""
    before = {**flatten(LATER), **reported}
    shared = (before.keys() - RENAMED) & today.keys()
    different = {key: (before[key], today[key]) for key in shared if before[key] != today[key]}
    return {key: pair for key, pair in different.items() if pair[1] not in (None, "auto")}


@pytest.mark.parametrize("name", REPORTED)
def test_every_model_of_a_report_is_one_of_its_study(name):
    study = read_study(STUDIES / f"{name}.yaml")
    configs = [flatten(to_dict(config)) for config in replace(study, seeds=study.seeds[:1]).configs()]
    for group in json.loads((RESULTS / name / "report.json").read_text())["groups"]:
        same_task = [config for config in configs if config["env.id"] == group["settings"]["env.id"]]
        nearest = min((changes(group["settings"], config) for config in same_task), key=len)
        assert nearest == {}, f"{group['env']}, {group['label']}"


def test_a_changed_setting_is_noticed():
    today = {"ppo.gamma": 0.98, "critic.value": "popart", "barrier": None}
    reported = {"ppo.gamma": 0.95, "barrier": 32, "actor.pictures": "nature"}
    assert changes(reported, today) == {"ppo.gamma": (0.95, 0.98), "critic.value": ("scalar", "popart")}
