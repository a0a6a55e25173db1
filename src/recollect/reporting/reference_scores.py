"""Reference scores: 1 on the normalised scale of an environment.

The best run of a report would make the scale depend on the other runs, and on chance.
"""

REFERENCE_SCORES = {
    # reward_threshold of Gymnasium; for environments of `masked`, that of the environment without the mask
    "CartPole-v1": 475.0,
    "CartPoleNoVel-v1": 475.0,
    "Acrobot-v1": -100.0,
    "LunarLander-v2": 200.0,
    "LunarLander-v3": 200.0,
    "LunarLanderNoVel-v2": 200.0,
    "LunarLanderNoVel-v3": 200.0,
    "LunarLanderContinuous-v3": 200.0,
    "BipedalWalker-v3": 300.0,
    "BipedalWalkerHardcore-v3": 300.0,
    "CarRacing-v3": 900.0,
    "FrozenLake-v1": 0.7,
    "FrozenLake8x8-v1": 0.85,
    "Taxi-v4": 8.0,
    "Reacher-v5": -3.75,
    "Pusher-v5": 0.0,
    "InvertedPendulum-v5": 950.0,
    "InvertedDoublePendulum-v5": 9100.0,
    "HalfCheetah-v5": 4800.0,
    "Hopper-v5": 3800.0,
    "Swimmer-v5": 360.0,
    "Ant-v5": 6000.0,
    "MountainCar-v0": -110.0,
    "MountainCarNoVel-v0": -110.0,
    "MountainCarContinuous-v0": 90.0,
    "MountainCarContinuousNoVel-v0": 90.0,
    # the threshold of CartPole-v0, which also has a time limit of 200 steps
    "CartPoleMasked": 195.0,
    # PPO in the benchmark of RL Baselines3 Zoo; Gymnasium has no threshold
    "Pendulum-v1": -172.2,
    "PendulumNoVel-v1": -172.2,
}


def reference_score(env: str, source: str) -> float | None:
    """The score that becomes 1, or None if there is no reference; the highest return of POPGym tasks is 1."""
    if source == "success" or env.startswith("popgym:"):
        return 1.0
    return REFERENCE_SCORES.get(env.removeprefix("masked:"))
