"""`recollect completion`: a script that completes commands and options in a shell."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import ClassVar, Literal

from ..config.flags import ALIASES, FILLED_IN, flag_of, options_of, resolve
from . import COMMANDS

# Complete words of the first argument from the commands, and the rest from the options of that command.
SCRIPT = """_recollect() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" options
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W "{commands}" -- "$word")); return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  case "$word" in
    -*) COMPREPLY=($(compgen -W "$options --help" -- "$word")) ;;
    *) COMPREPLY=($(compgen -f -- "$word")) ;;
  esac
}}
complete -o filenames -F _recollect recollect
"""


@dataclass(frozen=True, kw_only=True)
class CompletionOptions:
    """Print a script that completes commands and options in a shell.

    source <(recollect completion bash)
    source <(recollect completion zsh)
    """

    POSITIONAL: ClassVar = ("shell",)

    shell: Literal["bash", "zsh"]
    """bash or zsh."""


def run_completion(options: CompletionOptions) -> int:
    """Print the script; the exit code."""
    # zsh completes by the functions of bash.
    head = "autoload -U +X bashcompinit && bashcompinit\n" if options.shell == "zsh" else ""
    flags = {
        name: _flags(getattr(import_module(f"..{place.module}", __package__), place.options))
        for name, place in COMMANDS.items()
    }
    print(head + _script(flags), end="")
    return 0


def _flags(kind: type) -> list[str]:
    """The options of a command, with those of a run where it takes them."""
    names = set(options_of(kind))
    if {"config", "settings"} & set(kind.__dataclass_fields__):  # type: ignore[attr-defined]
        from ..config.assembly import OPTIONS

        names |= set(OPTIONS) | {"config"}
    aliases = {name for name in ALIASES if resolve(name, names) in names and len(name) > 2}
    return sorted(flag_of(name) for name in (names | aliases) - {*FILLED_IN[1:]})


def _script(flags: Mapping[str, list[str]]) -> str:
    cases = "\n".join(f'    {name}) options="{" ".join(words)}" ;;' for name, words in flags.items())
    return SCRIPT.format(commands=" ".join(flags), cases=cases)
