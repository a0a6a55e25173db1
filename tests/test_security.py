"""Lines of docs/security.md that have no test elsewhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recollect.common.errors import UsageError
from recollect.reporting import figures
from recollect.reporting.blocks import Bullets, Code, Section, Table, Text
from recollect.reporting.page import render_page
from recollect.run import api, hub
from recollect.run.run_folder import new_folder

from .helpers import small_config

HOSTILE = "</script><img src=x onerror=alert(1)>&\"'$HOME"


@pytest.mark.parametrize("name", ["..", ".", "../../x", "/etc/x", "a/../../b", "C:\\x", "a\0b", "x/.."])
def test_no_name_leads_out_of_the_folder_of_runs(name, tmp_path):
    out = tmp_path / "runs"
    for config, run_id in ((small_config(), name), (small_config(env_id=name), "run")):
        try:
            folder = new_folder(config, out, run_id)
        except UsageError:
            continue
        assert out in Path(os.path.normpath(folder)).parents
        assert len(folder.relative_to(out).parts) == 3


def test_pages_escape_every_text():
    blocks = [Text(HOSTILE), Bullets([HOSTILE]), Code(HOSTILE), Table(HOSTILE, [HOSTILE], [[HOSTILE]])]
    page = render_page(HOSTILE, HOSTILE, HOSTILE, [Section(HOSTILE, blocks)], {HOSTILE: 0})
    assert "<img" not in page and page.count("</script>") == page.count("<script")


def test_figures_take_labels_as_text():
    """Dollar signs would be a formula, whose errors end a report."""
    assert figures.STYLE["text.parse_math"] is False


def test_a_download_is_loaded_by_the_rules_of_files(tmp_path, monkeypatch):
    file = tmp_path / "agent.safetensors"
    file.write_bytes(b"\x80\x04cos\nsystem\n.")
    monkeypatch.setattr(hub, "download", lambda _: file)
    with pytest.raises(UsageError, match="is not a whole safetensors file"):
        api.load("hf:a/b")


def test_training_opens_no_port(tmp_path):
    """A process that trains with workers listens nowhere."""
    code = (
        "import socket\n"
        "def refuse(*_): raise AssertionError('a port was opened')\n"
        "socket.socket.bind = socket.socket.listen = refuse\n"
        "import recollect\n"
        "options = {'env.backend': 'workers', 'env.num_envs': 2, 'ppo.num_steps': 16, 'rollouts': 1,"
        " 'ppo.num_minibatches': 1}\n"
        f"recollect.train('CartPole-v1', options=options, out={str(tmp_path)!r}, quiet=True)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
