"""A whole report: what is written, that it needs neither torch nor a network, and that it shows."""

import itertools
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from benchmarks.report import evaluation, invent_run
from PIL import Image

from recollect import cli
from recollect.reporting import figures
from recollect.reporting.blocks import Chart, Code, Section, Text, slug, slugs
from recollect.reporting.curves import Curve, ModelCurves, Panel
from recollect.reporting.groups import shorten
from recollect.reporting.report import write_report
from recollect.reporting.runs import read_runs
from recollect.reporting.sections import rename
from recollect.reporting.summary import as_json, summarise

from ..audit import audit
from ..helpers import seen_by_a_browser

ENVS = ("CartPole-v1", "CartPoleNoVel-v1")
MODELS = {"CartPole-v1": ("ppo", "ppo_lstm", "ppo_gru"), "CartPoleNoVel-v1": ("ppo", "ppo_lstm")}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """Two models with three seeds in two environments, one run that goes on, one broken, one random."""
    out = tmp_path_factory.mktemp("runs")
    for env, model, seed in itertools.product(ENVS, ("ppo", "ppo_lstm"), (1, 2, 3)):
        invent_run(out, env, model, seed, lines=30)
    going = invent_run(out, "CartPole-v1", "ppo_gru", 1, lines=30, evaluated=False)
    summary = json.loads((going / "summary.json").read_text())
    (going / "summary.json").write_text(json.dumps({**summary, "status": "running"}))
    (out / "broken").mkdir()
    (out / "broken" / "metrics.jsonl").write_text('{"st')
    (out / "random").mkdir()
    by_chance = evaluation("CartPole-v1", "random", 22.0, np.random.default_rng(0))
    (out / "random" / "evaluation.json").write_text(json.dumps(by_chance))
    return out


@pytest.fixture(scope="module")
def report(runs, tmp_path_factory) -> Path:
    """The folder of a report, made as a user makes it, with a curve of another program."""
    folder = tmp_path_factory.mktemp("report")
    other = folder / "sb3.csv"
    other.write_text("step,return\n2000,20\n60000,400\n")
    wanted = [str(runs), "-o", str(folder), "--import", f"<SB3>@CartPole-v1={other}"]
    assert cli.main(["report", *wanted]) == 0
    return folder


def test_torch_is_not_imported(runs, tmp_path):
    code = f"""
import sys
from recollect import cli
assert cli.main(["report", {str(runs)!r}, "-o", {str(tmp_path / "r")!r}]) == 0
print([name for name in ("torch", "tensorboard", "gymnasium") if name in sys.modules])
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


# What is written ------------------------------------------------------------------------------


def test_the_numbers_are_all_in_the_json(runs, report):
    data = json.loads((report / "report.json").read_text())
    expected = as_json(summarise(read_runs([runs])))
    assert data["finals"] == expected["finals"] and data["differences"] == expected["differences"]
    assert {group["label"] for group in data["groups"]} == {"ppo", "ppo_lstm", "ppo_gru"}
    assert [scale["low_is"] for scale in data["scales"]] == ["random", "worst"]
    assert [scale["high_is"] for scale in data["scales"]] == ["reference", "reference"]
    assert [Path(item["folder"]).name for item in data["left_out"]] == ["broken"]
    score = json.loads((runs / "ppo" / "CartPole-v1" / "s2" / "evaluation.json").read_text())["mean"]
    (mine,) = [f for f in data["finals"] if (f["env"], f["label"]) == ("CartPole-v1", "ppo")]
    assert mine["scores"][1] == pytest.approx(score, rel=1e-11) and mine["seeds"] == [1, 2, 3]


def test_the_text_holds_every_part(report):
    text = (report / "report.md").read_text()
    for words in (
        "## Verdict\n\n**CartPole-v1.** ppo",
        "3 seeds",
        "is running or has died",
        "0 is a random agent in CartPole-v1; 0 is the worst run",
        "| random agent | - | - |",
        "means | P(A beats B) |",
        "## Difference to the best\n\nThe mean score of the best model minus that of each other model",
        "| ppo | 1 2 3 |",
        "Probability of improvement",
        "90 % of the way",
        "| actor.memory.name | mlp | gru | lstm |",
        "ppo/CartPole-v1/s1/config.yaml --seed $seed; done",
        "for seed in 1 2 3; do recollect train --config ",
        "recollect report ",
        "| torch | 2.13.0+cpu | 13 |",
        "broken: has no summary.json",
        "\\<SB3\\> (imported)",
    ):
        assert words in text, words
    pictures = re.findall(r"!\[[^]]*\]\(([^)]*)\)", text)
    assert len(pictures) == 8
    for picture in pictures:
        drawn = (report / picture).read_text()
        assert drawn.startswith("<?xml") and (report / picture).with_suffix(".png").stat().st_size > 1000


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("axis", "name", "last"), [("epochs", "epochs (rollouts)", 30), ("steps", "steps", None)]
)
def test_curves_can_be_drawn_over_epochs(axis, name, last, runs, tmp_path, monkeypatch):
    """An epoch is a rollout and its update: a line of metrics.jsonl."""
    drawn = []
    draw = figures._curves
    monkeypatch.setattr(figures, "_curves", lambda *inputs: drawn.append(draw(*inputs)) or drawn[-1])
    assert cli.main(["report", str(runs), "-o", str(tmp_path), "--x", axis]) == 0
    lines = [
        json.loads(line) for line in (runs / "ppo/CartPole-v1/s1/metrics.jsonl").read_text().split("\n")[:-1]
    ]
    values = [line["iteration" if axis == "epochs" else "step"] for line in lines]
    assert len(drawn) == len(ENVS) and (last is None or values[-1] == last)
    for figure in drawn:
        assert figure.get_supxlabel() == name
        for axes in figure.axes:
            x = axes.lines[0].get_xdata()
            assert (x[0], x[-1]) == (values[0], values[-1])
    figure = (tmp_path / "figures" / "curves-CartPole-v1.svg").read_text()
    assert f">{name}</text>" in figure
    assert "$" not in figure  # the source of a formula, as 10 to the power of 2


def test_the_same_report_twice_is_the_same(runs, report, tmp_path):
    again = tmp_path / "again"
    shutil.copytree(report, again)
    other = report / "sb3.csv"
    wanted = [str(runs), "-o", str(again), "--import", f"<SB3>@CartPole-v1={other}"]
    assert cli.main(["report", *wanted]) == 0
    for name in ("report.json", "figures/curves-CartPole-v1.svg"):
        assert (again / name).read_bytes() == (report / name).read_bytes()


class Page(HTMLParser):
    """Every tag of a page, and that all are closed in order."""

    EMPTY = ("meta", "link", "wbr")

    def __init__(self, text):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_loads_nothing_and_says_what_it_shows(report):
    text = (report / "report.html").read_text()
    page = Page(text)
    loaded = [a for tag, a in page.tags if {"src", "srcset"} & a.keys() or tag in ("link", "img", "iframe")]
    assert loaded == [{"rel": "icon", "href": "data:,"}]
    script = text[text.rindex("<script>") :]
    assert not re.search(r"fetch\(|XMLHttpRequest|import\(|@import|url\(", text)
    assert re.findall(r"https?://[^\"']*", script) == ["http://www.w3.org/2000/svg"]  # a name, not an address
    assert all(a["href"].startswith("#") for tag, a in page.tags if tag == "a")
    named = {a["id"] for _, a in page.tags if "id" in a}
    assert {a["href"][1:] for tag, a in page.tags if tag == "a"} <= named
    assert all("<SB3>" not in part for part in (text.split("<script")[0], script))
    assert len(text) < 500_000


def test_players_and_probes_of_runs_are_linked(runs, tmp_path):
    copy = tmp_path / "the runs"
    shutil.copytree(runs / "ppo_lstm" / "CartPole-v1", copy)
    (one, *_) = sorted(copy.iterdir())
    (one / "probe").mkdir()
    for name in ("watch.html", "probe/probe.html"):
        (one / name).write_text("a page")
    (one / "probe" / "probe.json").write_text(
        json.dumps({"uses": "It uses about 4 steps of memory.", "episodes": 9, "seed": 1})
    )
    write_report([copy], tmp_path / "out" / "report")
    page = (tmp_path / "out" / "report" / "report.html").read_text()
    text = (tmp_path / "out" / "report" / "report.md").read_text()
    assert "seed 1: It uses about 4 steps of memory." in page and "seed 1: It uses" in text
    for name in ("watch.html", "probe/probe.html"):
        address = f"../../the%20runs/{one.name}/{name}"
        assert f'href="{address}"' in page and f"({address})" in text
        assert (tmp_path / "out" / "report" / unquote(address)).is_file()
    assert page.count(">player</a>") == 1


def test_text_cannot_end_its_element(runs, tmp_path):
    """A label is a stranger's text."""
    shutil.copytree(runs / "ppo", tmp_path / "a")
    for config in tmp_path.rglob("config.yaml"):
        config.write_text(config.read_text().replace("model: ppo", "model: </script><b>&"))
    assert cli.main(["report", str(tmp_path / "a"), "-o", str(tmp_path / "out")]) == 0
    page = Page((tmp_path / "out" / "report.html").read_text())
    assert sum(tag == "script" for tag, _ in page.tags) == 2
    assert "b" not in [tag for tag, _ in page.tags]


def test_without_matplotlib_only_the_figures_are_missing(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert cli.main(["report", str(runs / "ppo"), "-o", str(tmp_path)]) == 0
    assert "figures need matplotlib: pip install 'recollect-rl[plot]'" in capsys.readouterr().err
    assert (tmp_path / "report.html").exists() and not (tmp_path / "figures").exists()
    assert "![" not in (tmp_path / "report.md").read_text()


# Few runs -------------------------------------------------------------------------------------


def test_one_seed_has_a_curve_without_an_interval_and_says_so(runs, tmp_path, capsys):
    one = runs / "ppo" / "CartPole-v1" / "s1"
    assert cli.main(["report", str(one), "-o", str(tmp_path)]) == 0
    assert "There is no other model to compare it with" in capsys.readouterr().out
    text = (tmp_path / "report.md").read_text()
    assert "only one seed of ppo. There is no interval" in text and "## Differences" not in text
    ((panel),) = json.loads((tmp_path / "report.json").read_text())["panels"]
    assert panel["lines"][0]["curves"]["return"]["step"]["low"] is None


def test_one_environment_has_no_aggregate_scores(runs, tmp_path):
    for model in ("ppo", "ppo_lstm"):
        shutil.copytree(runs / model / "CartPole-v1", tmp_path / "runs" / model)
    assert cli.main(["report", str(tmp_path / "runs"), "-o", str(tmp_path / "out")]) == 0
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Aggregate scores" not in page and "Difference to the best" in page


@pytest.mark.parametrize(
    ("scores", "said"),
    [((500.0, 500.0, 400.0), True), ((500.0, 499.0, 400.0), False), ((500.0, 400.0), False)],
)
def test_a_ceiling_is_named(scores, said, runs, tmp_path):
    """Not where only one seed is there: some seed has the highest score of any set."""
    for model in ("ppo", "ppo_lstm"):
        shutil.copytree(runs / model / "CartPole-v1", tmp_path / "runs" / model)
    folders = sorted((tmp_path / "runs" / "ppo").iterdir())
    for folder in folders[len(scores) :]:
        shutil.rmtree(folder)
    for folder, score in zip(folders, scores, strict=False):
        path = folder / "evaluation.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "mean": score}))
    assert cli.main(["report", str(tmp_path / "runs"), "-o", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "report.md").read_text()
    words = "500 looks like the highest possible score: ppo 2 of 3 seeds have exactly this score."
    assert (words in text) == ("highest possible" in text) == said


def test_labels_are_shortened_to_what_differs():
    labels = ["ppo, critic.memory.name gru", "ppo, ppo.clip 0.1", "ppo, ppo.clip 0.15", "ppo"]
    assert shorten(labels) == dict(zip(labels, ["critic gru", "clip 0.1", "clip 0.15", "ppo"], strict=True))
    ambiguous = ["a, ppo.gamma 1", "a, env.gamma 1"]
    assert shorten(ambiguous) == {label: label for label in ambiguous}
    assert shorten(["ppo, ppo.clip 1"]) == {"ppo, ppo.clip 1": "ppo, clip 1"}
    text = Text('"ppo, ppo.clip 0.15" beats "ppo, ppo.clip 0.1"; ppo does not')
    code = Code("recollect train ppo, ppo.clip 0.1")
    (section,) = rename([Section("Verdict", [text, code])], shorten(labels))
    assert section.blocks == [Text('"clip 0.15" beats "clip 0.1"; ppo does not'), code]


def test_the_screen_has_the_short_names(tmp_path, capsys):
    for clip in ("0.1", "0.3"):
        invent_run(tmp_path / "runs", lines=5, flags=("--ppo.clip", clip))
    assert cli.main(["report", str(tmp_path / "runs"), "-o", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert "clip 0.1" in shown and "ppo.clip" not in shown


def test_without_evaluations_training_counts_and_it_is_said(runs, tmp_path):
    for seed, model in itertools.product((1, 2), ("ppo", "ppo_lstm")):
        shutil.copytree(runs / model / "CartPole-v1" / f"s{seed}", tmp_path / "runs" / f"{model}{seed}")
    (tmp_path / "runs" / "ppo1" / "evaluation.json").unlink()
    summary = summarise(read_runs([tmp_path / "runs"]))
    assert {final.source for final in summary.finals} == {"training"}
    assert any("not every run has an evaluation" in note for note in summary.notes)


def test_successes_count_where_all_evaluations_report_them(runs, tmp_path):
    shutil.copytree(runs / "ppo" / "CartPole-v1", tmp_path / "runs")
    for seed, share in ((1, 0.5), (2, 0.25), (3, 1.0)):
        path = tmp_path / "runs" / f"s{seed}" / "evaluation.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "success": share}))
    assert cli.main(["report", str(tmp_path / "runs"), "-o", str(tmp_path / "out")]) == 0
    ((final),) = json.loads((tmp_path / "out" / "report.json").read_text())["finals"]
    assert (final["source"], final["scores"]) == ("success", [0.5, 0.25, 1.0])
    text = (tmp_path / "out" / "report.md").read_text()
    assert "success rate of the final weights" in text and "| mean return |" in text


def test_a_run_without_a_score_is_left_out(runs, tmp_path):
    shutil.copytree(runs / "ppo" / "CartPole-v1" / "s1", tmp_path / "a")
    (tmp_path / "a" / "evaluation.json").unlink()
    lines = (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()[:2]  # fewer than 100 episodes
    (tmp_path / "a" / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    summary = summarise(read_runs([tmp_path]))
    assert summary.finals == [] and "no return is known" in summary.left_out[0].reason
    assert summary.verdict[0].text.startswith("No run has a score")


def test_seeds_and_budgets_that_do_not_match_are_said(runs, tmp_path):
    shutil.copytree(runs / "ppo", tmp_path / "ppo")
    invent_run(tmp_path, "CartPole-v1", "ppo_gru", 7, lines=15)
    notes = " ".join(summarise(read_runs([tmp_path])).notes)
    assert "have different seeds: ppo has 1 2 3; ppo_gru has 7" in notes
    assert "different numbers of steps" in notes and "only one seed of ppo_gru" in notes


def test_evaluations_of_different_lengths_are_said(runs, tmp_path):
    shutil.copytree(runs / "ppo" / "CartPole-v1", tmp_path / "runs")
    assert not any("evaluation episodes" in note for note in summarise(read_runs([tmp_path])).notes)
    path = tmp_path / "runs" / "s2" / "evaluation.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "episodes": 5}))
    notes = summarise(read_runs([tmp_path])).notes
    assert "CartPole-v1: the runs have different numbers of evaluation episodes: 5, 100." in notes


# The command ----------------------------------------------------------------------------------

BAD = {
    "nothing": (["report"], "recollect report needs RUNS, run folders"),
    "nowhere": (["report", "no/such/folder"], "nothing to report: no/such/folder does not exist"),
    "option": (["report", "x", "--impot", "y"], "unknown option --impot; did you mean --import"),
    "a file": (["report", "x", "-o", __file__], "is a file, and a folder is needed"),
}


@pytest.mark.parametrize("kind", BAD)
def test_mistakes_are_one_line(kind, capsys):
    arguments, message = BAD[kind]
    assert cli.main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_the_help_teaches(capsys):
    assert cli.main(["report", "--help"]) == 0
    text = capsys.readouterr().out
    assert "recollect report runs" in text and "LABEL@ENV=PATH" in text and "report.html" in text


# The look -------------------------------------------------------------------------------------

# Machado, Oliveira and Fernandes (2009): what is left of red, green and blue.
SIGHT = {
    "all": np.eye(3),
    "no red": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "no green": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "no blue": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour):
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def seen(colour, sight):
    """A colour in CIELAB, where distances are those that are seen."""
    xyz = TO_XYZ @ np.clip(np.array(sight) @ linear(colour), 0, 1) / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(one, other):
    low, high = sorted(TO_XYZ[1] @ linear(colour) for colour in (one, other))
    return (high + 0.05) / (low + 0.05)


STYLE = (Path(figures.__file__).parent / "page.css").read_text()
THEMES = dict(zip(("light", "dark"), STYLE.split("prefers-color-scheme: dark"), strict=True))


@pytest.mark.parametrize("theme", THEMES)
def test_colours_are_told_apart_by_all_eyes_and_from_the_ground(theme):
    colours = re.findall(r"--c\d: (#\w{6})", THEMES[theme])
    ground, ink, soft = (
        re.search(rf"--{name}: (#\w{{6}})", THEMES[theme])[1] for name in ("ground", "ink", "soft")
    )
    assert len(colours) == 7
    for sight in SIGHT.values():
        places = [seen(colour, sight) for colour in colours]
        assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(places, 2)) > 24
    assert min(contrast(colour, ground) for colour in colours) > 3
    assert contrast(ink, ground) > 12 and contrast(soft, ground) > 4.5


def test_fifty_models_leave_room_for_their_curves(tmp_path):
    """Where they do not, matplotlib warns."""
    grid = np.linspace(0, 1, 20)
    curve = Curve(grid, *[None] * 5)
    names = [f"a model with a long name, {number}" for number in range(50)]
    lines = [ModelCurves(name, "finished", 1, {"return": {"step": curve}}) for name in names]
    chart = Chart("curves-x", "curves", "x", "", panel=Panel("x", {"step": grid}, lines))
    figures.draw_figures([chart], dict(zip(names, range(50), strict=True)), tmp_path)
    with Image.open(tmp_path / "curves-x.png") as picture:
        assert picture.height > picture.width


def test_figures_have_the_colours_of_the_page():
    assert list(figures.COLOURS) == re.findall(r"--c\d: (#\w{6})", THEMES["light"])


def test_figures_and_page_bands_are_those_of_the_default_statistic(runs, tmp_path, monkeypatch):
    """The band of the interquartile mean, and titles and legends outside of the plots."""
    drawn = []
    draw = figures._curves
    monkeypatch.setattr(figures, "_curves", lambda *inputs: drawn.append(draw(*inputs)) or drawn[-1])
    assert cli.main(["report", str(runs), "-o", str(tmp_path)]) == 0
    (line, *_) = json.loads((tmp_path / "report.json").read_text())["panels"][0]["lines"]
    axes = drawn[0].axes[0]
    expected = np.array(line["curves"]["return"]["step"]["iqm"], dtype=np.float64)
    np.testing.assert_allclose(axes.lines[0].get_ydata(), expected, rtol=1e-5)
    assert axes.get_legend() is None and len(drawn[0].legends) == 1
    assert [a.get_ylabel() for a in drawn[0].axes] == list(figures.FIGURE_METRICS.values())
    drawn[0].draw_without_rendering()
    title = drawn[0].texts[0].get_window_extent()
    assert title.x0 >= 0 and title.x1 <= drawn[0].bbox.width


def test_ticks_are_short():
    assert [figures._tick(x, 0) for x in (0, 500, 12_000, 1_500_000)] == ["0", "500", "12k", "1.5M"]


def test_names_of_files_are_plain():
    assert slug("popgym:RepeatPrevious, env.mask 1 3") == "popgym-RepeatPrevious-env.mask-1-3"
    assert slugs(["X, wind -1", "X, wind 1", "Y"]) == {
        "X, wind -1": "X-wind-1",
        "X, wind 1": "X-wind-1-2",
        "Y": "Y",
    }


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1400])
def test_the_page_passes_an_audit(report, tmp_path, width, dark):
    assert audit(report / "report.html", tmp_path, width, dark) == []


def test_the_audit_finds_what_is_wrong(tmp_path):
    bad = tmp_path / "bad.html"
    bad.write_text(
        "<!doctype html><h1>A</h1><h3>B</h3><p style='color:#aaa;background:#fff'>pale</p><button></button>"
        "<img src='data:,'><input><div style='width:9px;overflow-x:auto'><p style='width:99px'>x</p></div>"
        "<p style='width:2000px'>wide</p>"
    )
    found = " ".join(audit(bad, tmp_path, 390, dark=False))
    for words in (
        "wide in",
        "language",
        "contrast 2.3: P",
        "no name: BUTTON",
        "no name: INPUT",
        "without alt",
    ):
        assert words in found, words
    assert "scrolls without a keyboard" in found and "headings 1,3" in found and "a target of" in found


# In a browser ---------------------------------------------------------------------------------

# What a reader does, in a window as narrow as a small phone; what came of it is printed as JSON.
VISIT = """
const page = document.querySelector("iframe").contentWindow;
const all = (what) => [...page.document.querySelectorAll(what)];
const curves = () => all("figure[data-kind=curves]").map((f) => f.querySelectorAll("path.line").length);
const first = (what) => all(what)[0];
function says(node, type, more = {}) {
  const kind = page[more.key ? "KeyboardEvent" : "Event"];
  node.dispatchEvent(new kind(type, { bubbles: true, cancelable: true, ...more }));
}
function choose(place, value) {
  const select = all(".controls select")[place];
  select.value = value;
  says(select, "change");
}
function visit() {
  const seen = { errors, drawn: Number(page.document.documentElement.dataset.drawn), curves: curves() };
  seen.wide = page.document.documentElement.scrollWidth;
  seen.profiles = all("figure[data-kind=lines] path.line").length;
  seen.marks = all("figure[data-kind=dots] circle.mark").length;
  seen.seeds = all("figure[data-kind=dots] circle.dot").map((dot) => Number(dot.getAttribute("cy")));
  seen.mean = Number(first("circle.mark").getAttribute("cy"));
  seen.hollow = all("circle.mark.hollow").length;
  seen.zero = all("line.zero").length;
  const profile = first("figure[data-kind=lines] path.line").getAttribute("d").slice(1).split("L");
  seen.profile = profile.map((point) => point.split(",").map(Number));
  seen.caption = first("figcaption small").textContent;
  seen.scroll = all(".table.wide").map((table) => page.getComputedStyle(table, "::before").content);
  seen.overprinted = all("figure svg").flatMap((svg) => {
    const boxes = [...svg.querySelectorAll("text")].map((text) => text.getBoundingClientRect());
    return boxes.filter((a, i) => boxes.slice(i + 1).some((b) =>
      a.left < b.right && b.left < a.right && a.top < b.bottom - 2 && b.top < a.bottom - 2)).length;
  });
  seen.words = all("svg[role=img], div[role=img]").map((node) => node.getAttribute("aria-label"));
  seen.metrics = [...all(".controls select")[0].options].map((option) => option.value);
  seen.bands = all("figure[data-kind=curves] path.band").length;
  first(".legend button").click();
  seen.hidden = [curves(), first(".legend button").getAttribute("aria-pressed")];
  first(".legend button").click();
  const before = first("path.line").getAttribute("d");
  const drawn = () => first("path.line").getAttribute("d") !== before;
  choose(1, "time");
  seen.time = [curves(), drawn(), first("figure svg[role=img]").textContent.includes("wall-clock time")];
  choose(1, "step");
  choose(2, "seeds");
  seen.range = [curves(), drawn()];
  seen.recaptioned = first("figcaption small").textContent;
  seen.reworded = first("figure[data-kind=curves] svg[role=img]").getAttribute("aria-label");
  choose(2, "iqm");
  choose(0, "entropy");
  seen.entropy = [curves(), drawn()];
  choose(0, "return");
  const [smooth] = all("input[type=range]");
  smooth.value = 5;
  says(smooth, "input");
  seen.smooth = [curves(), drawn()];
  smooth.value = 0;
  says(smooth, "input");
  first("input[type=checkbox]").click();
  seen.log = [curves(), drawn()];
  first("input[type=checkbox]").click();
  seen.back = !drawn();
  const svg = first("figure[data-kind=curves] svg[role=img]");
  says(svg, "keydown", { key: "End" });
  const tip = first("figure[data-kind=curves] .tip");
  seen.tip = tip.innerText;
  says(svg, "keydown", { key: "ArrowLeft" });
  seen.moved = tip.innerText !== seen.tip;
  says(svg, "keydown", { key: "Escape" });
  seen.gone = tip.hidden;
  const finger = { pointerType: "touch", bubbles: true };
  const touch = (type) => svg.dispatchEvent(new page.PointerEvent(type, finger));
  touch("pointerdown");
  touch("pointerleave");
  seen.touched = tip.hidden ? "" : tip.innerText;
  const buttons = all("figure[data-kind=lines] .legend button");
  buttons.forEach((button) => button.click());
  seen.none = first("figure[data-kind=lines] .plot").innerText;
  buttons.forEach((button) => button.click());
  const details = first("details");
  details.open = true;
  setTimeout(() => {
    seen.table = details.querySelectorAll("tbody tr").length;
    document.querySelector("pre").textContent = JSON.stringify(seen);
  }, 50);
}
const errors = [];
document.querySelector("iframe").addEventListener("load", () => {
  page.addEventListener("error", (event) => errors.push(event.message));
  setTimeout(visit, 100);
});
"""


@pytest.fixture(scope="module")
def visited(report, tmp_path_factory):
    """What a browser saw."""
    return seen_by_a_browser(report / "report.html", VISIT, tmp_path_factory.mktemp("browser"))


def test_the_page_shows_a_curve_for_every_group(visited):
    assert visited["errors"] == []
    assert visited["curves"] == [5, 2]  # one of CartPole's is imported
    assert (visited["profiles"], visited["marks"], visited["bands"]) == (2, 9, 4)
    assert visited["drawn"] < 2000


def test_the_page_fits_a_small_phone(visited):
    assert visited["wide"] <= 360


def test_the_page_says_in_words_what_it_draws(visited):
    assert len(visited["words"]) == 8 and all(visited["words"])
    assert visited["words"][0].startswith("CartPole-v1: mean score of ppo")
    assert visited["words"][2].startswith(
        "Learning curves over steps in CartPole-v1. Return at the end: ppo "
    )


def test_the_caption_of_the_curves_follows_the_statistic(visited):
    assert visited["caption"].startswith("interquartile mean (IQM) over seeds; the band is its 95 %")
    assert visited["recaptioned"] == "mean over seeds; the band is from the lowest to the highest seed"
    assert visited["reworded"].startswith("return in CartPole-v1. At the end: ")


def test_seeds_are_drawn_beside_the_mean(visited):
    assert len(visited["seeds"]) == 12 and min(visited["seeds"]) > visited["mean"] + 6


def test_differences_are_marked_at_zero_and_hollow_where_not_detectable(report, visited):
    differences = json.loads((report / "report.json").read_text())["differences"]
    assert visited["hollow"] == sum(d["p"] >= 0.05 for d in differences) and visited["zero"] == 2


def test_profiles_are_steps_that_do_not_end_with_a_fall(visited):
    corners = list(itertools.pairwise(visited["profile"]))
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in corners)
    assert corners[-1][0][1] == corners[-1][1][1] and corners[-1][0][0] < corners[-1][1][0]


def test_wide_tables_say_that_they_scroll_and_no_label_hides_another(visited):
    assert visited["scroll"] and all("scroll sideways" in text for text in visited["scroll"])
    assert not any(visited["overprinted"])


def test_a_reader_chooses_what_the_curves_show(visited):
    assert visited["metrics"] == [
        "return",
        "length",
        "value_loss",
        "policy_loss",
        "entropy",
        "explained_variance",
    ]
    assert visited["hidden"] == [[4, 1], "false"]
    assert visited["time"] == [[4, 2], True, True]  # the imported curve knows no time
    assert visited["entropy"] == [[3, 2], True]
    for change in ("range", "smooth", "log"):
        assert visited[change] == [[5, 2], True], change
    assert visited["back"]


def test_a_reader_reads_values_by_keyboard(visited):
    assert visited["tip"].startswith("steps 60k") and "ppo_lstm" in visited["tip"]
    assert visited["moved"] and visited["gone"] and visited["table"] == 11


def test_a_reader_reads_values_by_finger(visited):
    assert visited["touched"].startswith("steps ") and "(imported) " in visited["touched"]


def test_a_chart_whose_lines_are_all_hidden_says_so(visited):
    assert visited["none"] == "All lines are hidden." and visited["errors"] == []
