"""The agents that the repository ships: small, whole, and each with the scores of all its seeds."""

import json
import statistics
from pathlib import Path

import pytest

import recollect

MODELS = Path(__file__).parents[2] / "models"
SCORES = json.loads((MODELS / "scores.json").read_text())
LARGEST = 2_000_000  # bytes


def test_every_agent_has_its_scores_and_every_score_its_agent():
    assert {path.name for path in MODELS.glob("*.safetensors")} == SCORES.keys()


@pytest.mark.parametrize("name", SCORES)
def test_an_agent_is_that_of_the_median_seed(name):
    entry, path = SCORES[name], MODELS / name
    assert path.stat().st_size < LARGEST
    trained = recollect.load(path)
    assert (trained.config.env.id, trained.config.model) == (entry["env"], entry["model"])
    assert trained.config.seed == entry["seed"]
    assert entry["scores"][entry["seed"] - 1] == pytest.approx(statistics.median_high(entry["scores"]))
