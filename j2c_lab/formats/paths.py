"""Which paths may stand in a layer. The one place that decides; used when packing and unpacking."""

from __future__ import annotations

from j2c_lab.errors import UnsafePathError


def check_entry_path(path: bytes) -> None:
    """Raise `UnsafePathError` unless `path` is relative, canonical, and stays below its root."""
    if not path or path.startswith(b"/") or b"\0" in path:
        raise UnsafePathError(f"the archive holds the unsafe path {show(path)}")
    for part in path.split(b"/"):
        if part in (b"", b".", b".."):
            raise UnsafePathError(f"the archive holds the unsafe path {show(path)}")


def link_stays_inside(path: bytes, target: bytes) -> bool:
    """Whether a link at `path`, pointing at `target`, stays below the first component of `path`.

    Judged by the names alone, never by what is on disk: `project/a/b -> ../c` stays in `project`,
    `project/b -> ../site-packages` and every absolute target leave it.
    """
    if not target or target.startswith(b"/") or b"\0" in target:
        return False
    depth = path.count(b"/") - 1
    for part in target.split(b"/"):
        if part == b"..":
            depth -= 1
            if depth < 0:
                return False
        elif part not in (b"", b"."):
            depth += 1
    return True


def show(path: bytes) -> str:
    """Return `path` as text for a person: undecodable bytes and control characters escaped."""
    text = path.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def to_text(path: bytes) -> str:
    """Return `path` for a JSON document, whatever its bytes (surrogate escapes, PEP 383)."""
    return path.decode("utf-8", "surrogateescape")


def from_text(text: str) -> bytes:
    """Return the bytes of a path that `to_text` wrote."""
    return text.encode("utf-8", "surrogateescape")
