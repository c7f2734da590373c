"""The command in a home of its own, with a project and a real venv."""

from cli_tools import lab, venv

__all__ = ["lab", "venv"]
