"""Options: from flags and from files to typed values, with errors that say what is taken."""

import json
import re
from dataclasses import dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import ClassVar, Literal, get_args

import numpy as np
import pytest
import yaml

import recollect
from recollect import cli
from recollect.agent.agent import BranchConfig
from recollect.commands.train import TrainOptions
from recollect.common.errors import UsageError
from recollect.common.option_values import Setting, Words, describe, members, value_of
from recollect.config.assembly import PARTS, assemble, from_dict
from recollect.config.command import help_of, parse
from recollect.config.config import RunConfig
from recollect.config.data import config_hash, read_yaml, to_dict, write_yaml
from recollect.config.flags import ALIASES, options_of, values_in
from recollect.config.help import descriptions
from recollect.encoder.nature import NatureConfig
from recollect.envs.base import EnvConfig, Scalar
from recollect.learn.settings import PPOConfig
from recollect.memory.rnn import GruConfig
from recollect.run.bench import BenchOptions

COMMANDS = {
    name: getattr(import_module(f"recollect.{place.module}"), place.options)
    for name, place in cli.COMMANDS.items()
}


def of_words(kind, *words):
    return value_of(Setting("x", Words(words), "--x"), kind)


def of_data(kind, value):
    return value_of(Setting("x", value, "file: x"), kind)


# Values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "words", "wanted"),
    [
        (int | None, ["1e5"], 100_000),
        (int | None, ["1E5"], 100_000),
        (int, ["-3"], -3),
        (int | None, ["none"], None),
        (int | None, ["Null"], None),
        (float, ["1e-4"], 1e-4),
        (float | None, ["3"], 3.0),
        (bool, [], True),
        (bool, ["False"], False),
        (bool, ["off"], False),
        (str, ["007"], "007"),
        (str | None, ["true"], "true"),
        (Path, ["a/b"], Path("a/b")),
        (Literal["minibatch", "off"], ["off"], "off"),
        (int | Literal["episode"] | None, ["episode"], "episode"),
        (int | Literal["episode"] | None, ["0"], 0),
        (tuple[int, ...], [], ()),
        (tuple[int, ...], ["none"], ()),
        (tuple[int, ...], ["None"], ()),
        (tuple[int, ...], ["64", "32"], (64, 32)),
        (tuple[str, ...], ["none"], ()),
        (Scalar, ["1e5"], 1e5),
        (Scalar, ["2.0"], 2.0),
        (Scalar, ["2"], 2),
        (Scalar, ["off"], "off"),
        (Scalar, ["true"], True),
        (Scalar, ["none"], None),
    ],
)
def test_words_of_the_command_line_are_read_by_the_type(kind, words, wanted):
    value = of_words(kind, *words)
    assert value == wanted and type(value) is type(wanted)


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (Scalar, "7", "7"),
        (Scalar, "true", "true"),
        (Scalar, "none", "none"),
        (Scalar, 7, 7),
        (Scalar, 7.0, 7.0),
        (str, "1e5", "1e5"),
        (str | None, "none", "none"),
        (float, 1, 1.0),
        (float, "1e-4", 1e-4),
        (int | None, 1.0e5, 100_000),
        (int | None, "none", None),
        (int | None, None, None),
        (bool, "True", True),
        (tuple[int, ...], None, ()),
        (tuple[int, ...], [], ()),
        (tuple[int, ...], 64, (64,)),
        (tuple[int, ...], (64, 32), (64, 32)),
        (Path, "a", Path("a")),
    ],
)
def test_data_keeps_its_type(kind, value, wanted):
    typed = of_data(kind, value)
    assert typed == wanted and type(typed) is type(wanted)


NUMBERS = "--x takes whole numbers, or none for an empty list"


@pytest.mark.parametrize(
    ("kind", "words", "error"),
    [
        (int | None, ["x"], "--x takes a whole number or none, not 'x'"),
        (int, ["1.5"], "--x takes a whole number, not '1.5'"),
        (int, ["15e-1"], "--x takes a whole number, not '15e-1'"),
        (int, ["1e999"], "--x takes a whole number, not '1e999'"),
        (int, ["9223372036854775808"], "--x takes a whole number, not '9223372036854775808'"),
        (float, [], "--x needs a value: a number"),
        (tuple[int, ...], ["1,3"], f"{NUMBERS}, not '1,3'; separate values by spaces: 1 3"),
        (tuple[int, ...], ["[6,", "4]"], f"{NUMBERS}, not '[6, 4]'; separate values by spaces: 6 4"),
        (bool, ["2"], "--x takes true or false, not '2'"),
        (tuple[int, ...], ["1", "x"], "--x takes whole numbers, or none for an empty list, not '1 x'"),
        (Literal["stored", "zero"], ["store"], "--x takes stored or zero, not 'store'; did you mean stored?"),
        (Literal["a", "b", "c"], ["zzz"], "--x takes a, b or c, not 'zzz'"),
    ],
)
def test_a_wrong_word_is_named_with_what_is_taken(kind, words, error):
    with pytest.raises(UsageError) as caught:
        of_words(kind, *words)
    assert str(caught.value) == error


@pytest.mark.parametrize(
    ("kind", "value", "error"),
    [
        (float, True, "file: x takes a number, not True"),
        (bool, 1, "file: x takes true or false, not 1"),
        (str, 7, "file: x takes text, not 7; write text that looks like something else in quotes"),
        (Scalar, [1], "file: x takes true or false, a whole number, a number, text or none, not [1]"),
        (tuple[int, ...], ["a"], "file: x takes whole numbers, or none for an empty list, not ['a']"),
        (int, 2**63, "file: x takes a whole number, not 9223372036854775808"),
        (float, 10**400, f"file: x takes a number, not {10**400}"),
        (int | None, 2.5, "file: x takes a whole number or none, not 2.5"),
        (int, float("inf"), "file: x takes a whole number, not inf"),
    ],
)
def test_wrong_data_is_named_with_what_is_taken(kind, value, error):
    with pytest.raises(UsageError) as caught:
        of_data(kind, value)
    assert str(caught.value) == error


# Files ----------------------------------------------------------------------------------------


def test_arguments_of_an_environment_come_back_as_they_were(tmp_path):
    """Strings that look like something else stay strings."""
    kwargs = {
        "a": "7",
        "b": "1e5",
        "c": "true",
        "d": "none",
        "e": 7,
        "f": 0.5,
        "g": None,
        "h": False,
        "i": "off",
    }
    config = assemble(["-e", "poc"])
    config = RunConfig(env=type(config.env)(id="poc", kwargs=kwargs))
    write_yaml(config, tmp_path / "config.yaml")
    for again in (
        from_dict(read_yaml(tmp_path / "config.yaml")),
        from_dict(json.loads(json.dumps(to_dict(config)))),
        assemble(["--config", str(tmp_path / "config.yaml")]),
    ):
        assert again.env.kwargs == kwargs
        assert [type(value) for value in again.env.kwargs.values()] == [type(x) for x in kwargs.values()]


@pytest.mark.parametrize("word", ["off", "OFF", "no", "on", "yes"])
def test_a_word_of_yaml_is_a_word_where_words_are_taken_and_else_a_boolean(tmp_path, word):
    file = tmp_path / "c.yaml"
    file.write_text(f"env: {{id: poc, normalize_obs: {word}, kwargs: {{x: {word}}}}}\nmodel: ppo\n")
    config = assemble(["--config", str(file)])
    switched_on = yaml.safe_load(word)
    assert config.env.normalize_obs is switched_on and config.env.kwargs == {"x": switched_on}


def test_an_advantage_that_is_not_normalised_needs_no_quotes(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("env: {id: poc}\nppo: {normalize_advantage: off}\n")
    assert assemble(["--config", str(file)]).ppo.normalize_advantage == "off"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("ppo: {gamma: high}", "c.yaml: ppo.gamma takes a number, not 'high'"),
        ("ppo: {gama: 1}", "unknown option c.yaml: ppo.gama; did you mean ppo.gamma"),
        ("ppo.gama: 1", "unknown option c.yaml: ppo.gama; did you mean ppo.gamma"),
        (
            "actor: {memory: {name: gru, widht: 3}}",
            "c.yaml: actor.memory.widht; did you mean actor.memory.width",
        ),
        ("steps: [1, 2]", "c.yaml: steps takes a whole number or none, not [1, 2]"),
        ("ppo: 3", "unknown option c.yaml: ppo"),
        ("model: 3", "c.yaml: model takes text, not 3; write text that looks like"),
        (
            "actor: {hidden: wide}",
            "c.yaml: actor.hidden takes whole numbers, or none for an empty list, not 'wide'",
        ),
        ("ppo: {normalize_advantage: false}", "takes minibatch, rollout or off, not False"),
    ],
)
def test_a_mistake_in_a_file_names_file_key_and_value(tmp_path, text, error, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("c.yaml").write_text(f"{text}\n")
    with pytest.raises(UsageError) as caught:
        assemble(["--config", "c.yaml", "-e", "poc"])
    assert error in str(caught.value)


# Flags ----------------------------------------------------------------------------------------


def test_short_names_of_the_options_people_use():
    names = ["--steps", "1e5", "--lr", "3e-4", "--gamma", "0.9", "--entropy", "0.01", "--num-envs", "4"]
    config = assemble(["-e", "poc", *names, "--actor", "gru", "--critic", "gru"])
    assert (config.steps, config.env.num_envs, config.actor.memory.name) == (100_000, 4, "gru")
    assert (config.ppo.learning_rate, config.ppo.gamma, config.ppo.ent_coef) == (3e-4, 0.9, 0.01)


@pytest.mark.parametrize(
    ("unit", "kept"), [("ppo.batch-size", ("ppo", "num_minibatches")), ("rollouts", ("steps",))]
)
def test_none_in_one_unit_keeps_the_other(unit, kept):
    plain, config = assemble(["-e", "CartPole-v1"]), assemble(["-e", "CartPole-v1", f"--{unit}", "none"])
    for name in kept:
        plain, config = getattr(plain, name), getattr(config, name)
    assert config == plain is not None


LISTS = [name for name, value in values_in(RunConfig()).items() if isinstance(value, tuple)]


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("words", [[], ["none"], ["None"]])
def test_every_list_can_be_empty(name, words):
    config = assemble(["-e", "poc", f"--{name.replace('_', '-')}", *words])
    assert values_in(config)[name] == ()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("--ppo.gama 1", "unknown option --ppo.gama; did you mean --ppo.gamma"),
        # No alias of another option.
        ("--ppo.num-epochs 3", "unknown option --ppo.num-epochs; did you mean --ppo.num-steps"),
        ("--gama 1", "unknown option --gama; did you mean --gamma"),
        ("--GAMMA 1", "unknown option --GAMMA; did you mean --gamma"),
        ("--actor LSTM", "memory 'LSTM' is unknown; did you mean lstm"),
        ("--actor mlp --actor.width 3", "another memory: name one of these, as in --actor gru"),
        ("--critic lru --critic.memory.heads 3", "--critic.memory.heads is an option of deltanet, gpt2"),
        ("--actor.widht 3", "unknown option --actor.widht; did you mean --actor.width"),
        ("--actor.memory.widht 3", "unknown option --actor.memory.widht; did you mean --actor.memory.width"),
        ("--ppo.lr-decay.finl 3", "unknown option --ppo.lr-decay.finl; did you mean --ppo.lr-decay.final"),
        ("--env.normalise-obs", "unknown option --env.normalise-obs; did you mean --env.normalize-obs"),
        ("--lr fast", "--lr takes a number, not 'fast'"),
        ("-lr 3", "unknown option -lr"),
    ],
)
def test_a_mistake_names_the_flag_as_it_was_written(arguments, error):
    with pytest.raises(UsageError) as caught:
        assemble(["-e", "poc", "-m", "ppo_gru", *arguments.split()])
    assert error in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("--critic shared --critic.width 8", "--critic.width has no effect on a shared critic, which takes"),
        ("-m ppo_trxl --critic.prev-action", "--critic.prev-action has no effect on a shared critic"),
        (
            "--critic.log-std 2",
            "--critic.log-std has no effect: only an actor has actions; set actor.log_std",
        ),
        ("--env.trial 3 --actor.prev-action false", "--actor.prev-action is false, but trials always have"),
        ("--ppo.predict-coef 0.5", "--ppo.predict-coef weighs predictions, and the agent makes none"),
    ],
)
def test_an_option_that_another_one_leaves_without_effect_is_refused(arguments, error):
    with pytest.raises(UsageError, match=re.escape(error)):
        parse(TrainOptions, ["poc", "-m", "ppo_gru", *arguments.split()], "recollect train")


def test_an_option_of_python_that_has_no_effect_is_refused():
    with pytest.raises(UsageError, match=r"critic\.width has no effect on a shared critic"):
        recollect.train("poc", "ppo_gru", options={"critic": "shared", "critic.width": 8})


@pytest.mark.parametrize("options", [["--critic", "shared"], ["--env.trial", "3"], ["--critic", "gru"]])
def test_a_file_may_list_options_without_effect(options, tmp_path):
    config = assemble(["-e", "poc", "-m", "ppo_gru", *options])
    write_yaml(config, tmp_path / "config.yaml")
    words = ["--config", str(tmp_path / "config.yaml"), "--critic.head-hidden", "8", "--critic.init", "torch"]
    read = parse(TrainOptions, words, "recollect train").config
    assert read.critic.head_hidden == (8,) and read.critic.shared == config.critic.shared


# Commands -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PlayOptions:
    """Play.

    recollect play RUN
    """

    POSITIONAL: ClassVar = ("run", "others")

    run: str
    """The run. There is one."""
    others: tuple[Path, ...] = ()
    """More runs."""
    quiet: bool = False
    """Print nothing."""
    episodes: int = 3
    """Episodes."""
    imports: tuple[str, ...] = ()
    """Modules."""


def test_words_that_belong_to_no_option_are_positional():
    arguments = ["--quiet", "a", "--episodes", "5", "b", "--import", "x", "c", "--import", "y"]
    options = parse(PlayOptions, arguments, "play")
    wanted = PlayOptions(run="a", others=(Path("b"), Path("c")), quiet=True, episodes=5, imports=("x", "y"))
    assert options == wanted
    assert parse(PlayOptions, ["a", "--quiet=no", "-ne", "2"], "play") == PlayOptions(run="a", episodes=2)


def test_what_is_missing_is_named_by_its_first_sentence():
    with pytest.raises(UsageError, match="play needs RUN, the run; see play --help"):
        parse(PlayOptions, [], "play")


def test_options_of_train_are_refused_where_there_are_none():
    with pytest.raises(UsageError, match="unknown option --episdes; did you mean --episodes"):
        parse(PlayOptions, ["a", "--episdes", "5"], "play")
    with pytest.raises(UsageError, match="unknown option --steps"):
        parse(PlayOptions, ["a", "--steps", "5"], "play")


@dataclass(frozen=True, kw_only=True)
class QuietOptions:
    """Do nothing."""

    quiet: bool = False
    """Print nothing."""


@dataclass(frozen=True, kw_only=True)
class LearnOptions:
    """Learn."""

    config: RunConfig
    out: Path = Path("runs")
    """Folder."""
    imports: tuple[str, ...] = ()
    """Modules."""


@pytest.mark.parametrize(
    ("kind", "flag", "suggested"),
    [
        (PlayOptions, "--num-epoch", "--num-epochs or --num-episodes or "),
        (PlayOptions, "--impot", "--import or --imports"),
        (LearnOptions, "--actr", "--actor or "),
        (LearnOptions, "--actor.memry.name", "--actor.memory.name or "),
        (LearnOptions, "--ou", "--out or -o or "),
        (LearnOptions, "--impot", "--import or --imports or "),
    ],
)
def test_suggested_are_options_of_the_command_and_their_aliases(kind, flag, suggested):
    with pytest.raises(UsageError, match=f"unknown option {flag}; did you mean {suggested}"):
        parse(kind, ["--env.id", "poc", flag, "5"] if kind is LearnOptions else ["a", flag, "5"], "do")


@pytest.mark.parametrize(
    ("kind", "flag"),
    [
        (QuietOptions, "--num-epochs"),
        (QuietOptions, "-ne"),
        (QuietOptions, "--steps"),
        (LearnOptions, "--num-episodes"),
        (LearnOptions, "--actor.name"),
    ],
)
def test_no_option_that_the_command_lacks_is_suggested(kind, flag):
    words = ["--env.id", "poc"] if kind is LearnOptions else []
    with pytest.raises(UsageError, match=f"unknown option {flag}; ") as caught:
        parse(kind, [*words, flag, "5"], "do")
    suggested = re.findall(r"(-[\w.-]+)", str(caught.value).partition("; ")[2])
    assert suggested and flag not in suggested
    for other in suggested:
        try:
            parse(kind, [*words, other, "5"], "do")
        except UsageError as error:
            assert "unknown option" not in str(error)


def test_a_config_file_may_say_where_a_run_is_kept(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text("env: {id: poc}\nout: elsewhere\nquiet: yes\nsteps: 5\n")
    options = parse(TrainOptions, ["--config", str(file), "--steps", "7"], "recollect train")
    assert (options.out, options.quiet, options.config.steps) == (Path("elsewhere"), True, 7)


def test_a_model_beside_a_file_with_another_memory_is_refused(tmp_path):
    """The memory of the file would win, under the name of the model."""
    file = tmp_path / "c.yaml"
    file.write_text("env: {id: poc}\nactor: {memory: {name: mlp}}\ncritic: {memory: {name: mlp}}\n")
    words = ["--config", str(file), "-m", "ppo_gru"]
    with pytest.raises(
        UsageError, match=r"actor\.memory\.name to mlp, and the model ppo_gru has gru: leave out"
    ):
        assemble(words)
    config = assemble([*words, "--actor", "gru", "--critic", "lstm"])
    assert (config.actor.memory.name, config.critic.memory.name) == ("gru", "lstm")
    assert assemble(words[:2]).actor.memory.name == "mlp"
    file.write_text("env: {id: poc}\nactor: {memory: {name: gru}}\nsteps: 5\n")
    assert assemble(words).steps == 5


def test_bench_and_train_read_the_same_config():
    words = ["poc", "-m", "ppo_gru", "--seed", "4"]
    assert (
        parse(BenchOptions, words, "").config
        == parse(TrainOptions, words, "").config
        == assemble(["-e", *words])
    )


def test_bench_imports_what_a_file_names_if_it_is_allowed(tmp_path):
    name = "recollect.memory.rnn:GruConfig"
    file = tmp_path / "config.yaml"
    file.write_text(f"env: {{id: poc}}\nactor: {{memory: {{name: '{name}'}}}}\n")
    with pytest.raises(UsageError, match="which imports a module: allow it with --imports"):
        parse(BenchOptions, ["--config", str(file)], "")
    allowed = parse(BenchOptions, ["--config", str(file), "--imports", name], "")
    assert allowed.config.actor.memory == GruConfig()


def test_every_meaning_of_an_alias_is_an_option():
    known = set(values_in(RunConfig())) | set(PARTS)
    known |= {field.name for kind in COMMANDS.values() for field in fields(kind)}
    assert {meaning for meanings in ALIASES.values() for meaning in meanings} <= known


# Help -----------------------------------------------------------------------------------------


def test_the_help_of_train_fits_on_a_screen_and_shows_what_people_use(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    lines = help_of(TrainOptions, ["--help"], "recollect train").splitlines()
    assert len(lines) <= 50 and max(map(len, lines)) <= 100
    shown = [line.split()[0].rstrip(",") for line in lines if line.startswith("  -")]
    run = ["--steps", "--seed", "-m", "--actor", "--critic", "--lr", "--gamma", "--num-envs"]
    assert shown == [*run, "-o", "--run-id"]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("columns", ["80", "120"])
def test_every_option_is_explained(command, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    kind = COMMANDS[command]
    text = help_of(kind, ["--help-all"], f"recollect {command}")
    assert text.startswith(f"usage: recollect {command}") and kind.__doc__.split()[0] in text
    given = [line.strip() for line in kind.__doc__.splitlines() if line.strip().startswith("recollect ")]
    assert {f"  {line}" for line in given} <= set(text.splitlines())  # each on a line of its own
    examples = re.compile("  (recollect|-)")  # which are not wrapped
    assert [x for x in text.splitlines() if len(x) > min(int(columns), 100) and not examples.match(x)] == []
    texts = descriptions(kind)
    for field in fields(kind):
        if field.name not in ("config", "settings", "command"):
            assert texts.get(field.name, "").endswith(".") and field.type
            assert field.name.replace("_", "-") in text.lower().replace("_", "-")


def test_help_shows_the_defaults_of_the_environment_and_the_model():
    text = help_of(TrainOptions, ["LunarLander-v3", "-m", "ppo_gru", "--help-all"], "recollect train")
    assert "(default 0.999)" in text and "--actor.memory.width" in text


@pytest.mark.parametrize("words", [["CartPole-v1", "--lrr", "3"], ["ppo_gru", "-e", "CartPole-v1"]])
def test_help_is_shown_beside_a_mistake_and_names_it(words):
    with pytest.raises(UsageError) as mistake:
        parse(TrainOptions, words, "recollect train")
    text = help_of(TrainOptions, [*words, "--help"], "recollect train")
    plain = help_of(TrainOptions, ["--help"], "recollect train")
    assert text == f"{plain}\nThe other arguments are ignored: {mistake.value}\n"


def test_every_type_of_the_config_can_be_described():
    for kind in (Scalar, tuple[str, ...], Path | None, *get_args(int | None)):
        assert describe(kind)


# Identity of a run -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["-e", "CartPole-v1"], "40db7dac7a57d319"),
        (["-e", "CartPole-v1", "-m", "ppo_gpt"], "d00c9243cee8a7d7"),
        (["-e", "CartPole-v1", "-m", "ppo_lstm"], "de1c6874e36eec9c"),
        (["-e", "MiniGrid-MemoryS9-v0", "-m", "ppo_gru"], "1fcd9dfd63eb8bab"),
    ],
    ids=str,
)
def test_options_that_are_new_leave_the_hash_of_earlier_runs(flags, expected):
    # Computed by the version of commit 4009b6f: comparisons find its runs instead of repeating them.
    assert config_hash(assemble(flags)) == expected


@pytest.mark.parametrize(
    "flags",
    [
        ["--amp", "bf16"],
        ["--compile"],
        ["--kernels", "torch"],
        ["--device", "cuda"],
        ["--env.action-mask"],
        ["--env.hidden"],
        ["--critic.sees", "hidden"],
        ["--critic.encoder.shrink", "2"],
    ],
    ids=str,
)
def test_options_that_are_new_are_part_of_the_hash(flags):
    plain = ["-e", "CartPole-v1"]
    assert config_hash(assemble(plain + flags)) != config_hash(assemble(plain))


FLOATS = [name for name, kind in options_of(RunConfig).items() if float in members(kind)]


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("name", [*FLOATS, "actor.keep", "critic.dropout"])
def test_numbers_that_are_not_finite_are_refused_by_name(name, value):
    usual = ["--actor", "gru", "--critic", "gpt2", "--ppo.lr-decay.final", "none"]  # which desired_kl needs
    with pytest.raises(UsageError, match=f"{name.rpartition('.')[2]}.* is {value}|of a decay is {value}"):
        assemble([*usual, f"--{name}={value}"])


def test_arguments_of_an_environment_may_be_infinite():
    assert assemble(["--env.kwargs.limit", "inf"]).env.kwargs == {"limit": float("inf")}


# Configs in Python -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RunConfig(steps="many"), "RunConfig: steps takes a whole number or none, not 'many'"),
        (lambda: RunConfig(seed=1.5), "RunConfig: seed takes a whole number, not 1.5"),
        (lambda: RunConfig(seed=True), "RunConfig: seed takes a whole number, not True"),
        (lambda: RunConfig(kernels=3), "RunConfig: kernels takes auto, native or torch, not 3"),
        (lambda: RunConfig(env="CartPole-v1"), "RunConfig: env takes EnvConfig, not 'CartPole-v1'"),
        (lambda: RunConfig(actor=None), "RunConfig: actor takes BranchConfig, not None"),
        (lambda: EnvConfig(kwargs=3), "EnvConfig: kwargs takes Mapping, not 3"),
        (lambda: PPOConfig(gamma="high"), "PPOConfig: gamma takes a number, not 'high'"),
        (lambda: PPOConfig(num_steps=12.5), "PPOConfig: num_steps takes a whole number, not 12.5"),
        (lambda: BranchConfig(hidden=("wide",)), "BranchConfig: hidden takes whole numbers"),
        (lambda: BranchConfig(memory="gru"), "BranchConfig: memory takes MemoryConfig, not 'gru'"),
        (lambda: GruConfig(width="64 units"), "GruConfig: width takes a whole number, not '64 units'"),
        (lambda: NatureConfig(features=2.5), "NatureConfig: features takes a whole number or none, not 2.5"),
    ],
)
def test_a_value_of_another_type_is_refused_in_python(make, message):
    with pytest.raises(UsageError, match=re.escape(message)):
        make()


def test_values_in_python_are_read_as_in_a_file():
    config = RunConfig(steps=1e5, seed=np.int64(7), actor=BranchConfig(hidden=[32], sees="obs"))
    assert (config.steps, config.seed) == (100_000, 7)
    assert type(config.steps) is type(config.seed) is int
    assert config.actor.hidden == (32,)
    assert config.actor.sees == ("obs",)
    assert config_hash(config) == config_hash(
        RunConfig(steps=100_000, seed=7, actor=BranchConfig(hidden=(32,), sees=("obs",)))
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps: 10\n  seed: 1\n", "line 2, column 7: mapping values are not allowed"),
        ("steps: 10\n\tseed: 1\n", "line 2, column 1: found a tab character that violates indentation"),
        ("actor: {width: 3\n", "expected ',' or '}'"),
    ],
)
def test_a_file_that_is_no_yaml_is_refused_with_its_place(text, message, tmp_path):
    (tmp_path / "file.yaml").write_text(text)
    with pytest.raises(UsageError, match=re.escape(message)):
        read_yaml(tmp_path / "file.yaml")
