"""Lists the strings of the front end that are shown to people: singular, and plural or None."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_STRING = r"'((?:[^'\\]|\\.)*)'"
_CALL = re.compile(rf"trans\.(__|_n)\(\s*{_STRING}(?:\s*,\s*{_STRING})?")


def strings() -> dict[str, str | None]:
    """Return all strings that are passed to the translator."""
    found: dict[str, str | None] = {}
    for path in sorted((ROOT / "labextension" / "src").rglob("*.ts*")):
        for kind, singular, plural in _CALL.findall(path.read_text(encoding="utf-8")):
            found[_plain(singular)] = _plain(plural) if kind == "_n" else None
    return found


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


if __name__ == "__main__":
    for singular, plural in strings().items():
        print(singular if plural is None else f"{singular} | {plural}")
