"""What the shells complete: files, directories, and the runs that there are."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

# As shtab knows them; said here so that shtab is not imported for every call.
FILE = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}
DIRECTORY = {"bash": "_shtab_compgen_dirs", "zsh": "_files -/", "tcsh": "d"}
RUN = {"bash": "_j2c_runs", "zsh": "_j2c_runs", "tcsh": "`j2c list --names`"}

#: Shell functions that the completion script begins with.
PREAMBLE = {
    "bash": """
_j2c_runs() {
  compgen -W "$(j2c list --names 2>/dev/null)" -- "$1"
}
""",
    "zsh": """
_j2c_runs() {
  local -a runs
  runs=(${(f)"$(j2c list --names 2>/dev/null)"})
  compadd -a runs
}
""",
}


def mark(action: argparse.Action, what: Mapping[str, str]) -> None:
    """Say what an argument is completed with."""
    action.complete = what  # type: ignore[attr-defined]
