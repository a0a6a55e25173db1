"""The pages make a site without a warning, and reading it asks no other machine for anything."""

import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough  # half a minute; `make docs` builds the same site
DOCS = Path(__file__).parents[2] / "docs"


def build(docs, site):
    """What building says, and whether it went well."""
    flags = ["-q", "-W", "--keep-going", "-n", "-b", "html", "-d", str(site.parent / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *flags, str(docs), str(site)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=200)
    return result.returncode == 0, result.stderr


class Fetched(HTMLParser):
    """Everything that a browser gets by itself to show a page."""

    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        """Links of the head, scripts, pictures; not what a reader may click on."""
        wanted = {"link": "href"}.get(tag, "src")
        self.found += [value for name, value in attrs if name == wanted and tag != "a"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "site"
    ok, said = build(DOCS, folder)
    assert ok, said
    return folder


def test_what_a_browser_fetches_is_found():
    page = '<link href="a.css"><script src="https://b/c.js"></script><a href="d.html"><img src="e.png"></a>'
    assert Fetched(page).found == ["a.css", "https://b/c.js", "e.png"]


def test_every_page_is_there(site):
    pages = {p.relative_to(DOCS).with_suffix("") for p in DOCS.rglob("*.md")}
    assert len(pages) > 15
    assert [page for page in pages if not (site / page).with_suffix(".html").exists()] == []


def test_all_that_a_page_needs_is_on_the_site(site):
    for page in site.rglob("*.html"):
        for link in Fetched(page.read_text()).found:
            path = link.partition("?")[0].partition("#")[0].removeprefix("data:,")
            assert not re.match(r"[a-z]*:?//", link), f"{page.name} fetches {link}"
            assert (page.parent / path).exists(), f"{page.name} lacks {link}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", sheet.read_text()), sheet.name


def test_equations_are_drawn_by_the_browser(site):
    page = (site / "learn" / "05-ppo.html").read_text()
    assert page.count('<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">') == 4
    assert "$$" not in page
    assert "mathjax" not in "".join(p.read_text().lower() for p in site.rglob("*.html"))


def test_links_to_source_become_names_and_pages_stay_links(site):
    page = (site / "learn" / "05-ppo.html").read_text()
    assert "src/recollect/learn/ppo.py" in page
    assert "_downloads" not in page
    assert 'href="../algorithm.html"' in page
    files = {p.name for p in (site / "_downloads").rglob("*.*")}
    notebooks = {p.name for p in (DOCS / "notebooks").glob("*.ipynb")}
    earlier = {
        f"{study}_earlier.json"
        for study in (
            "critic_memory",
            "gpt2ppo",
            "gpt2ppo_context",
            "gpt2ppo_critics",
            "gpt2ppo_table1",
            "recurrent",
        )
    }
    kept = earlier | {"delays.json", "gpt2ppo_peer.json", "limits.json", "memory.html", "published.json"}
    kept |= {"analysis.json", "published_mujoco.json"}
    assert files == kept | notebooks


@pytest.mark.parametrize("link", ["nowhere.md", "../nowhere.py", "guide.md#nowhere"])
def test_a_link_that_leads_nowhere_stops_the_build(tmp_path, link):
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("*.md"))
    (tmp_path / "docs" / "guide.md").write_text("# Guide\n")
    (tmp_path / "docs" / "index.md").write_text(f"# Index\n\n[a]({link})\n\n```{{toctree}}\nguide\n```\n")
    ok, said = build(tmp_path / "docs", tmp_path / "site")
    assert not ok
    assert "nowhere" in said


def test_a_link_to_a_file_beside_docs_names_it(tmp_path):
    shutil.copytree(DOCS, tmp_path / "docs", ignore=shutil.ignore_patterns("*.md"))
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies" / "a.yaml").touch()
    (tmp_path / "MORE.md").touch()
    study = "[`a.yaml`](../studies/a.yaml), [this study](../studies/a.yaml), [all](../studies/)"
    (tmp_path / "docs" / "index.md").write_text(f"# Index\n\n[MORE.md](../MORE.md#part), {study}\n")
    ok, said = build(tmp_path / "docs", tmp_path / "site")
    assert ok, said
    page = re.sub(r"<[^>]+>", "", (tmp_path / "site" / "index.html").read_text())
    assert "MORE.md, a.yaml, this study (studies/a.yaml), all (studies)" in page


@pytest.mark.parametrize("stems", ["hyperparamet", "callback", "hidden state", "atari", "window", "mujoco"])
def test_a_search_finds_the_usual_words(site, stems):
    """The search of the site looks for the stems of words, in texts and in headings."""
    text = (site / "searchindex.js").read_text().strip()
    index = json.loads(text.removeprefix("Search.setIndex(").removesuffix(")"))
    assert all(stem in {**index["terms"], **index["titleterms"]} for stem in stems.split())
