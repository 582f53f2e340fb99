"""Completion in the shell: the words of commands and their flags; of values the shell completes files.

`robolearn --install-completion` writes one small file for bash, zsh or fish. It asks the program itself for each Tab
(`robolearn --complete WORDS`), so that it never differs from the commands that there are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from robolearn.cli.registry import Entry
from robolearn.core import BadInput
from robolearn.io.atomic import write_text

BASH = """_robolearn() {
  local IFS=$'\\n'
  COMPREPLY=($("${COMP_WORDS[0]}" --complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _robolearn robolearn
"""
ZSH = """#compdef robolearn
local -a found
found=(${(f)"$(${(Q)words[1]} --complete "${(@Q)words[2,$CURRENT]}" 2>/dev/null)"})
if (( $#found )); then compadd -a found; else _files; fi
"""
FISH = """function __robolearn_complete
  set -l words (commandline -opc)
  set -l program $words[1]
  set -e words[1]
  set -l now (commandline -ct)
  $program --complete $words "$now" 2>/dev/null
end
complete -c robolearn -a '(__robolearn_complete)'
"""


def install_completion(shell: str, home: Path) -> tuple[Path, str]:
    """Write the completion of `shell` (its name or path) below the folder `home`: the file, and what is left to do.
    Raises `BadInput`: no completion of this shell is known."""
    bash = ".local/share/bash-completion/completions/robolearn"
    made = {
        "bash": (bash, BASH, f"open a new shell; without the package bash-completion, in ~/.bashrc: . ~/{bash}"),
        "zsh": (".zfunc/_robolearn", ZSH, "in ~/.zshrc: fpath+=~/.zfunc; autoload -Uz compinit && compinit"),
        "fish": (".config/fish/completions/robolearn.fish", FISH, "open a new shell"),
    }  # fmt: skip
    name = os.path.basename(shell)
    if name not in made:
        raise BadInput("--install-completion", got=name or "no shell in SHELL", available=made)
    where, text, rest = made[name]
    path = home / where
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path, rest


def candidates(words: Sequence[str], entries: Sequence[Entry]) -> list[str]:
    """Completions of the last of `words`, which follow ``robolearn``; none where a value or a file is due."""
    *before, begun = words or ("",)
    if begun.startswith("-"):
        from robolearn.cli.flags import flags_of

        named = {entry.name: entry for entry in entries}
        for count in (3, 2, 1):
            if entry := named.get(" ".join(before[:count])):
                return sorted(flag for flag in flags_of(entry.load()) if flag.startswith(begun))
        return [flag for flag in ("--help", "--version", "--install-completion") if flag.startswith(begun)]
    said = [*before, begun]
    longer = [entry.name.split() for entry in entries if len(entry.name.split()) >= len(said)]
    return sorted(
        {name[len(before)] for name in longer if name[: len(before)] == before and name[len(before)].startswith(begun)}
    )
