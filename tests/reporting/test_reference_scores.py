"""Reference scores."""

import gymnasium
import pytest

from recollect.reporting.reference_scores import REFERENCE_SCORES, reference_score

OLD = {"CartPole-v0"}  # ids of which a newer version has a score


@pytest.mark.parametrize(
    "env_id",
    [
        name
        for name, spec in gymnasium.registry.items()
        if spec.reward_threshold is not None
        and spec.namespace is None
        and name not in OLD
        and not name.endswith("-v4")  # MuJoCo before v5
    ]
    + ["Taxi-v4"],
)
def test_the_thresholds_of_gymnasium_are_known(env_id):
    assert reference_score(env_id, "return") == gymnasium.registry[env_id].reward_threshold
    assert reference_score(env_id, "success") == 1.0


def test_a_score_of_nowhere_is_not_invented():
    assert reference_score("tmaze", "return") is None
    unregistered = {name for name in REFERENCE_SCORES if name not in gymnasium.registry}
    assert unregistered == {
        *("CartPoleNoVel-v1", "LunarLander-v2", "LunarLanderNoVel-v2", "LunarLanderNoVel-v3"),
        *("MountainCarNoVel-v0", "MountainCarContinuousNoVel-v0", "CartPoleMasked", "PendulumNoVel-v1"),
    }
