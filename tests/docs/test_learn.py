"""The lessons quote the library: every quoted line is in the source, every command can be run."""

import ast
import itertools
import re
import shlex
import textwrap
from itertools import pairwise

import pytest
import torch

from benchmarks import drawings
from recollect.commands.train import TrainOptions
from recollect.comparison import study
from recollect.comparison.compare import CompareOptions, study_of
from recollect.config.command import parse
from recollect.config.config import RunConfig
from recollect.config.presets import preset
from recollect.envs import make
from tests.docs.test_docs import ROOT, blocks, commands, unknown_flags

LESSONS = sorted((ROOT / "docs" / "learn").glob("[0-9]*.md"))
ORDER = [ROOT / "docs" / "learn" / "index.md", *LESSONS]
TEXTS = {page.name: page.read_text() for page in ORDER}
LONGEST = 130
# From [`src/recollect/FILE`](../../src/recollect/FILE), `NAME`: and the lines, as the source has them.
QUOTE = re.compile(
    r"^From \[`(src/recollect/[\w/]+\.py)`\]\(\.\./\.\./\1\), `([\w.]+)`:\n\n```python\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def definition(source, name):
    """The lines of a function or a class, a method as Class.method; None where there is none."""
    body = ast.parse(source).body
    for part in name.split("."):
        named = (ast.FunctionDef, ast.ClassDef)
        found = [node for node in body if isinstance(node, named) and node.name == part]
        if not found:
            return None
        body = found[0].body
    return source.splitlines()[found[0].lineno - 1 : found[0].end_lineno]


def is_quoted_from(lines, quote):
    """Whether these lines stand in a definition one after another, but for their indentation."""
    wanted = quote.rstrip("\n").split("\n")
    windows = (lines[i : i + len(wanted)] for i in range(len(lines) - len(wanted) + 1))
    flat = textwrap.dedent("\n".join(wanted))
    return any(textwrap.dedent("\n".join(window)) == flat for window in windows)


def wrong_quotes(text, root=ROOT):
    """Quotes of lines that are not there, and blocks of Python that say not where they are from."""
    quotes = QUOTE.findall(text)
    wrong = ["a block without its source"] * (len(blocks(text, "python")) - len(quotes))
    for path, name, quote in quotes:
        file = root / path
        lines = definition(file.read_text(), name) if file.exists() else None
        if lines is None or not is_quoted_from(lines, quote):
            wrong.append(f"{path}, {name}")
    return wrong


def last_section(text):
    """What stands under the last heading."""
    return re.split(r"^## .*$", text, flags=re.MULTILINE)[-1]


def configs(line):
    """The runs that a line of `recollect train` or `recollect compare` asks for, by their own parsers."""
    _, name, *arguments = shlex.split(line)
    if name == "train":
        return [parse(TrainOptions, arguments, "recollect train").config]
    return study_of(parse(CompareOptions, arguments, "recollect compare")).configs()


def fragile(text):
    """Signs in equations that a Markdown reader may take for its own: escapes and emphasis."""
    found = re.findall(r"\$\$(.+?)\$\$", text, re.DOTALL)
    found += re.findall(r"\$([^$\n]+)\$", re.sub(r"\$\$.+?\$\$", "", text, flags=re.DOTALL))
    return [x for x in found if re.search(r"\\[^a-zA-Z]|[}\])]_|\*", x)]


# The checks fire ------------------------------------------------------------------------------

SOURCE = "def f(x):\n    if x:\n        y = 1\n        return y\n\n\nclass A:\n    def g(self): ...\n"
PAGE = "From [`src/recollect/a.py`](../../src/recollect/a.py), `f`:\n\n```python\ny = 1\nreturn y\n```\n"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (("", ""), []),
        (("y = 1", "y = 2"), ["src/recollect/a.py, f"]),  # a line that is not there
        (("y = 1\n", "if x:\n"), ["src/recollect/a.py, f"]),  # lines that are not neighbours
        (("y = 1\nreturn y", "y = 1\n    return y"), ["src/recollect/a.py, f"]),  # another indentation
        (("`f`", "`A.g`"), ["src/recollect/a.py, A.g"]),  # in the file, and not in what is named
        (("`f`", "`A.h`"), ["src/recollect/a.py, A.h"]),
        (("a.py", "b.py"), ["src/recollect/b.py, f"]),
        (("From", "By"), ["a block without its source"]),
    ],
)
def test_a_quote_that_is_wrong_is_found(tmp_path, change, found):
    (tmp_path / "src" / "recollect").mkdir(parents=True)
    (tmp_path / "src" / "recollect" / "a.py").write_text(SOURCE)
    assert wrong_quotes(PAGE.replace(*change), tmp_path) == found


@pytest.mark.parametrize("page", LESSONS, ids=lambda page: page.name)
def test_one_changed_line_of_a_lesson_is_found(page):
    text = TEXTS[page.name]
    for quote in QUOTE.finditer(text):
        start, end = quote.span(3)
        first, newline, rest = text[start:end].partition("\n")
        changed = text[:start] + first.replace("=", "= 1 +", 1) + "  # and" + newline + rest + text[end:]
        assert len(wrong_quotes(changed)) == 1


def test_the_other_checks_fire():
    assert last_section("# A\n\n## B\n\nb\n\n## C\n\nc\n").strip() == "c"
    assert fragile(r"$a \, b$ and $x_t$ and $$\mathrm{a}_t$$ and $$a \left[ b \right]$$") == [
        r"\mathrm{a}_t",
        r"a \, b",
    ]
    with pytest.raises(Exception, match="gama"):
        configs("recollect train CartPole-v1 --ppo.gama 0.5 --run-id x")
    with pytest.raises(Exception, match="ppo_grü"):
        configs("recollect compare -e poc -m ppo_grü --seeds 3")


# The lessons keep them ------------------------------------------------------------------------


@pytest.mark.parametrize("page", TEXTS)
def test_every_quote_is_the_source(page):
    assert wrong_quotes(TEXTS[page]) == []


@pytest.mark.parametrize("page", LESSONS, ids=lambda page: page.name)
def test_a_lesson_has_equations_code_and_a_length(page):
    text = TEXTS[page.name]
    assert len(text.splitlines()) <= LONGEST
    assert len(re.findall(r"^\$\$.+\$\$$", text, re.MULTILINE)) >= 2
    assert len(QUOTE.findall(text)) >= 2


@pytest.mark.parametrize("page", TEXTS)
def test_equations_read_the_same_everywhere(page):
    assert fragile(TEXTS[page]) == []


def test_the_lessons_lead_from_first_to_last():
    for page, after in pairwise(ORDER):
        last = TEXTS[page.name].split("```{toctree}")[0].strip().splitlines()[-1]
        assert f"Next: [{title(after)}]({after.name})" in last
    for before, page in pairwise(LESSONS):
        assert f"Before: [{title(before)}]({before.name})" in TEXTS[page.name].strip().splitlines()[-1]
    listed = re.findall(r"^\| \d\. \[.*?\]\((.*?)\)", TEXTS["index.md"], re.MULTILINE)
    assert listed == [page.name for page in LESSONS]


def title(page):
    """The words of a page's heading, without its number."""
    return TEXTS[page.name].splitlines()[0].lstrip("#0123456789. ")


@pytest.mark.parametrize("page", LESSONS, ids=lambda page: page.name)
def test_a_lesson_ends_with_commands_that_can_be_run(page):
    ending = last_section(TEXTS[page.name])
    assert unknown_flags(ending) == []
    lines = [line for block in blocks(ending, "bash") for line in block.splitlines()]
    assert lines and all(line.startswith("recollect ") for line in lines)
    learning = [line for line in lines if next(commands(f"`{line}`"))[0] in ("train", "compare")]
    assert learning
    for line in learning:
        for config in configs(line)[:: study.Study().seeds[-1]]:
            assert isinstance(config, RunConfig)
            assert config.steps <= 200_000  # minutes, not hours
            assert make(config.env).num_envs == config.env.num_envs


def test_the_number_of_gradient_steps_is_that_of_the_preset():
    config = preset("ppo", "CartPole-v1")
    rows = config.env.num_envs * config.ppo.num_steps
    minibatches = -(-rows // config.ppo.chunks_per_minibatch(config.env.num_envs, 1))
    epochs = config.ppo.update_epochs
    sentence = f"has {epochs} epochs of {minibatches} minibatches: {epochs * minibatches} gradient steps"
    assert sentence in TEXTS["05-ppo.md"]


# What the lessons derive ----------------------------------------------------------------------


class TwoSteps:
    """A task of two steps with two states and two actions, small enough to sum over every trajectory."""

    reward = torch.tensor([[1.0, -2.0], [3.0, 0.5]], dtype=torch.float64)  # (state, action)
    opening = torch.tensor([0.3, 0.7], dtype=torch.float64)
    moves = torch.tensor([[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.6, 0.4]]], dtype=torch.float64)

    def __init__(self):
        self.weights = torch.tensor([[0.2, -0.4], [0.7, 0.1]], dtype=torch.float64, requires_grad=True)
        self.log_policy = self.weights.log_softmax(-1)

    def trajectories(self):
        """(probability, states, actions) of each."""
        policy = self.log_policy.exp()
        for s, a, after, b in itertools.product(range(2), repeat=4):
            p = self.opening[s] * policy[s, a] * self.moves[s, a, after] * policy[after, b]
            yield p, (s, after), (a, b)

    def gradient(self, credit):
        """The mean of the sum over t of credit(t, states, rewards) times the gradient of log pi."""
        total = 0.0
        for p, states, actions in self.trajectories():
            rewards = [self.reward[s, a] for s, a in zip(states, actions, strict=True)]
            chosen = [self.log_policy[s, a] for s, a in zip(states, actions, strict=True)]
            total = total + p.detach() * sum(credit(t, states, rewards) * x for t, x in enumerate(chosen))
        return torch.autograd.grad(total, self.weights)[0]


BASELINE = (4.0, -7.0)  # any function of the state


@pytest.mark.parametrize(
    "credit",
    [
        lambda t, states, rewards: sum(rewards),  # the return of the whole trajectory
        lambda t, states, rewards: sum(rewards[t:]),  # the reward to go
        lambda t, states, rewards: sum(rewards[t:]) - BASELINE[states[t]],
    ],
    ids=["return", "reward to go", "baseline"],
)
def test_the_policy_gradient_is_the_gradient_of_the_objective(credit):
    task = TwoSteps()
    objective = sum(
        p * sum(task.reward[s, a] for s, a in zip(*x, strict=True)) for p, *x in task.trajectories()
    )
    (wanted,) = torch.autograd.grad(objective, task.weights)
    torch.testing.assert_close(TwoSteps().gradient(credit), wanted, rtol=0, atol=1e-12)


def test_a_wrong_credit_is_another_gradient():
    """The rewards before an action alone have mean 0, and leaving out its own reward does not."""
    before = TwoSteps().gradient(lambda t, states, rewards: sum(rewards[:t]) if t else 0.0)
    torch.testing.assert_close(before, torch.zeros_like(before), rtol=0, atol=1e-12)
    assert TwoSteps().gradient(lambda t, states, rewards: sum(rewards[t + 1 :])).abs().max() > 0.1


def mean_of_finished(steps):
    """The mean return of the episodes that end within so many steps, weighed by how often they do."""
    total, count = 0.0, 0.0
    pending = [(0, 1.0)]  # where an episode starts, and with which probability
    while pending:
        start, p = pending.pop()
        for length in (1, 3):
            if start + length <= steps:
                total, count = total + p / 2 * length, count + p / 2
                pending.append((start + length, p / 2))
    return total / count


def test_finished_episodes_alone_are_a_biased_sample():
    """The numbers of lesson 2: episodes of 1 or 3 steps with a reward of 1 each, rollouts of 2 steps."""
    assert mean_of_finished(2) == 1
    assert mean_of_finished(2) < mean_of_finished(8) < mean_of_finished(16) < 2
    for sentence in ("The mean return is 2.", "so the estimate is 1."):
        assert sentence in TEXTS["02-reinforce.md"]


def test_values_that_broadcast_against_targets_have_the_gradient_of_lesson_3():
    values, targets = torch.randn(5, 1, requires_grad=True), torch.randn(5)
    (values - targets).square().mean().backward()
    torch.testing.assert_close(values.grad, 2 / 5 * (values - targets.mean()).detach())
    assert (values.grad - 2 / 5 * (values.squeeze() - targets).detach()[:, None]).abs().max() > 0.01


def test_such_values_differ_about_as_many_times_too_little_as_a_minibatch_has_rows():
    """The best value of a row is the mean, over all minibatches with that row, of their mean targets."""
    count, size = 12, 4
    targets = torch.randn(count, dtype=torch.float64)
    drawn = torch.tensor(list(itertools.combinations(range(count), size)))
    means = targets[drawn].mean(1)
    best = torch.stack([means[(drawn == row).any(1)].mean() for row in range(count)])
    shrunk = (count - size) / (count - 1) / size  # 1 / size where a rollout has many rows
    torch.testing.assert_close(best - best[0], shrunk * (targets - targets[0]))


@pytest.mark.parametrize("page", ORDER, ids=lambda page: page.name)
def test_a_heading_begins_a_line(page):
    assert [line for line in TEXTS[page.name].splitlines() if re.search(r"\S.* ##+ ", line)] == []


@pytest.mark.parametrize("name", drawings.DRAWINGS)
def test_a_drawing_is_what_its_script_draws(name):
    assert (ROOT / "docs" / "images" / f"{name}.svg").read_text() == drawings.DRAWINGS[name]()
