"""Shells complete the commands and the options that exist."""

import shutil
import subprocess
import sys

import pytest

from recollect import cli


@pytest.fixture(scope="module")
def script():
    result = subprocess.run(
        [sys.executable, "-m", "recollect", "completion", "bash"], capture_output=True, text=True, check=True
    )
    return result.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["tr"], ["train"]),
        ([""], sorted(cli.COMMANDS)),
        (["train", "--ppo.gam"], ["--ppo.gamma"]),
        (["train", "--actor.enc"], ["--actor.encoder", "--actor.encoder.name"]),
        (["eval", "--ep"], ["--episodes"]),
        (["eval", "--ppo"], []),
        (["probe", "--imp"], ["--import", "--imports"]),
    ],
    ids=" ".join,
)
def test_words_are_completed(script, words, wanted):
    call = f"COMP_WORDS=(recollect {' '.join(w or chr(34) * 2 for w in words)}); COMP_CWORD={len(words)}"
    shell = f'{script}\n{call}; _recollect; echo "${{COMPREPLY[@]}}"'
    result = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True)
    assert sorted(result.stdout.split()) == wanted


def test_zsh_takes_the_same_functions(capsys):
    assert cli.main(["completion", "zsh"]) == 0
    assert capsys.readouterr().out.startswith("autoload -U +X bashcompinit && bashcompinit\n_recollect() {")
