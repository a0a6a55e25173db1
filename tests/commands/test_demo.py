"""`recollect demo`: any environment, its extras checked before it trains, its figures named as one seed."""

import importlib.util
import sys
from typing import ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from recollect import cli
from recollect.commands import demo
from recollect.config.command import parse
from recollect.config.presets import preset
from recollect.config.tasks import POPGYM_CARDS, TASKS
from recollect.envs import EnvConfig

STEPS = ["--steps", "600", "--env.num-envs", "4", "--ppo.num-steps", "32", "--val-check-interval", "0"]


class Scene(gymnasium.Env):
    """A vector and a picture in a Dict, real actions, episodes of five steps; it can be rendered."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 5}
    observation_space = spaces.Dict(
        {"speed": spaces.Box(-1, 1, (2,), np.float32), "view": spaces.Box(0, 255, (36, 36, 3), np.uint8)}
    )
    action_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def look(self):
        return self.observation_space.sample()

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.t = 0
        return self.look(), {}

    def step(self, action):
        self.t += 1
        return self.look(), float(action[0]), self.t == 5, False, {"is_success": bool(action[0] > 0)}

    def render(self):
        return np.full((40, 60, 3), 10 * self.t, np.uint8)


class Unseen(Scene):
    """The same without a renderer."""

    metadata: ClassVar = {"render_modes": []}


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder of its own, with both environments registered, and matplotlib where it must be."""
    monkeypatch.chdir(tmp_path)
    for name, kind in (("Scene-v0", Scene), ("Unseen-v0", Unseen)):
        monkeypatch.setitem(gymnasium.registry, name, EnvSpec(name, kind, max_episode_steps=5))
    return tmp_path


def run_folder(folder):
    (config,) = folder.glob("runs/*/*/*/config.yaml")
    return config.parent


def test_pictures_dicts_and_real_actions_are_trained_drawn_and_filmed(here, capsys) -> None:
    image = pytest.importorskip("PIL.Image")
    pytest.importorskip("matplotlib")
    assert cli.main(["demo", "Scene-v0", *STEPS]) == 0
    out, folder = capsys.readouterr().out, run_folder(here)
    assert "trained  mean return" in out and "random   mean return" in out and "success" in out
    others = STEPS[STEPS.index("600") + 1 :]
    command = " ".join(["recollect compare -e Scene-v0 -m ppo", *others, "--seeds 5 --steps 600"])
    assert "One seed (1)" in out and command in out
    with image.open(folder / "curve.png") as picture:
        assert picture.width > 900
    with image.open(folder / "episode.gif") as film:
        assert film.n_frames == 6


@pytest.mark.thorough
def test_an_environment_that_cannot_be_rendered_has_a_picture_and_no_film(here, capsys) -> None:
    pytest.importorskip("matplotlib")
    assert cli.main(["demo", "Unseen-v0", *STEPS]) == 0
    out, folder = capsys.readouterr().out, run_folder(here)
    assert out.startswith("no film: the environment has no rgb_array render mode")
    assert (folder / "curve.png").is_file() and not (folder / "episode.gif").exists()


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="the extra plot")
def test_what_only_envpool_has_cannot_be_rendered() -> None:
    pytest.importorskip("envpool")
    assert demo.check_requirements(EnvConfig(id="AcrobotSwingup-v1")) == "EnvPool cannot render"


def test_too_few_episodes_for_a_curve_are_stated_in_the_picture(here, monkeypatch) -> None:
    axes = pytest.importorskip("matplotlib.axes").Axes
    texts = []
    monkeypatch.setattr(axes, "text", lambda self, x, y, text, **how: texts.append(text))
    short = ["--rollouts", "1", "--env.num-envs", "2", "--ppo.num-steps", "8"]
    assert cli.main(["demo", "Unseen-v0", *short]) == 0
    assert texts == ["fewer than 100 episodes ended in training"]


def never(*_args, **_more):
    raise AssertionError("training began")


MISSING = {
    "matplotlib": (["demo", "Scene-v0"], "matplotlib", "needs matplotlib: pip install 'recollect-rl[plot]'"),
    "pillow": (["demo", "Scene-v0"], "PIL", "needs Pillow: pip install 'recollect-rl[video]'"),
    "envpool": (
        ["demo", "CartPole-v1", "--env.backend", "envpool"],
        "envpool",
        "EnvPool is not installed; pip install 'recollect-rl[fast]'",
    ),
    "minigrid": (
        ["demo", "minigrid:MiniGrid-MemoryS7-v0", "--env.kwargs.pictures", "true"],
        "minigrid",
        "MiniGrid is not installed; pip install 'recollect-rl[minigrid]'",
    ),
    "popgym": (
        ["demo", "popgym:CountRecallEasy", "--env.backend", "gymnasium"],
        "popgym",
        "pip install 'recollect-rl[popgym]'",
    ),
}


@pytest.mark.parametrize("case", MISSING)
def test_what_is_not_installed_is_one_line_before_training(case, monkeypatch, capsys) -> None:
    arguments, module, message = MISSING[case]
    if case not in ("matplotlib", "envpool"):
        pytest.importorskip("matplotlib")
    find, loaded = (
        importlib.util.find_spec,
        [name for name in sys.modules if name.partition(".")[0] == module],
    )
    for name in loaded or [module]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == module else find(name, *a)
    )
    monkeypatch.setattr("recollect.envs.suites.envpool._envpool", lambda: None)
    monkeypatch.setattr("recollect.run.session.train", never)
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


BAD_INPUT = {
    "id": (["demo", "CartPol-v1"], "CartPol-v1 is unknown; did you mean CartPole-v1"),
    "module": (["demo", "no_such_module:Env-v0"], "module no_such_module does not import"),
    "model": (["demo", "CartPole-v1", "-m", "ppoo"], "model 'ppoo' is unknown; did you mean ppo"),
    "option": (["demo", "--step", "5"], "unknown option --step; did you mean --steps"),
    "steps": (["demo", "CartPole-v1", "--steps", "0"], "steps is 0, at least 1 is needed"),
    "two": (
        ["demo", "CartPole-v1", "Acrobot-v1"],
        "unexpected argument 'Acrobot-v1': this command takes ENV",
    ),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_line_before_training(case, monkeypatch, capsys) -> None:
    arguments, message = BAD_INPUT[case]
    monkeypatch.setattr("recollect.run.session.train", never)
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_a_file_in_the_way_is_one_line_before_training(here, monkeypatch, capsys) -> None:
    pytest.importorskip("matplotlib")
    (here / "runs").write_text("in the way")
    monkeypatch.setattr("recollect.run.session.train", never)
    assert cli.main(["demo", "CartPole-v1", *STEPS]) != 0
    error = capsys.readouterr().err
    assert "runs" in error and error.count("\n") == 1


def config_of(*arguments):
    return demo.run_config(parse(demo.DemoOptions, arguments, "recollect demo").settings)


def test_every_task_with_a_preset_has_a_budget() -> None:
    assert set(TASKS) <= {*demo.STEPS, "LunarLanderNoVel", *POPGYM_CARDS}  # these have that of popgym


@pytest.mark.parametrize(
    ("arguments", "model", "steps"),
    [
        (["LunarLander-v3"], "ppo", 500_000),
        (["Acrobot-v1", "-m", "ppo_lstm"], "ppo_lstm", 500_000),
        (["CartPole-v1", "--steps", "3000"], "ppo", 3000),
        (["poc"], "ppo_gru", 100_000),
        (["poc", "-m", "ppo"], "ppo", 100_000),
        (["poc", "-m", "ppo_trxl"], "ppo_trxl", 20_000),
        (["CartPoleNoVel-v1"], "ppo_gru", 100_000),
        (["minigrid:MiniGrid-MemoryS7-v0"], "ppo_gru", 400_000),
        (["popgym:RepeatFirstHard"], "ppo_gru", 500_000),
        (["my_module:Mine-v0"], "ppo", 100_000),
    ],
)
def test_model_and_budget_follow_the_task_unless_they_are_given(arguments, model, steps) -> None:
    config = config_of(*arguments)
    assert (config.model, config.steps, config.rollouts) == (model, steps, None)


def test_the_default_is_the_lander_as_train_has_it() -> None:
    config = config_of()
    wanted = preset("ppo", "LunarLander-v3")
    assert (config.env, config.actor, config.critic, config.ppo) == (
        wanted.env,
        wanted.actor,
        wanted.critic,
        wanted.ppo,
    )


def test_a_run_of_rollouts_keeps_them() -> None:
    config = config_of("CartPole-v1", "--rollouts", "3")
    assert config.rollouts == 3 and config.steps is None
    assert demo.scope_note(config, ()).endswith("--seeds 5 --rollouts 3")


def test_the_command_for_more_seeds_has_the_options_of_the_demo() -> None:
    settings = parse(demo.DemoOptions, ["CartPole-v1", "--actor", "gru", "--steps", "9"], "demo").settings
    note = demo.scope_note(demo.run_config(settings), settings)
    assert note.endswith("  recollect compare -e CartPole-v1 -m ppo --actor gru --seeds 5 --steps 9")


@pytest.mark.parametrize(("status", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_demo_that_is_stopped_ends_as_train_does(status, code, monkeypatch) -> None:
    pytest.importorskip("matplotlib")

    class Stopped:
        summary: ClassVar = {"status": status}

    monkeypatch.setattr("recollect.commands.demo.start_run", lambda config, where: Stopped())
    assert cli.main(["demo", "Unseen-v0"]) == code
