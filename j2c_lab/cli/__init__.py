"""The `j2c` command: one file for each group of verbs, `output` for how things are shown."""

from j2c_lab.cli.main import main

__all__ = ["main"]
