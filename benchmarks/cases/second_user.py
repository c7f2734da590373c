"""The same packages in another user's environment, made by the other tool: counts."""

from __future__ import annotations

from benchmarks import ours
from benchmarks.harness import Case, Row, megabytes
from benchmarks.workspace import Workspace


def run(space: Workspace, repeats: int) -> list[Row]:
    """Pack the first user's, then the second's with caches of their own, into one store."""
    del repeats
    first = ours.fresh_lab(space, "second-user")
    second = ours.Lab(first.store, space.scratch / "second-user-home-2", first.base)
    second.forget()
    first.packed(space.project, space.venv)
    before = set(first.store.rglob("*.tar.zst"))
    event = second.packed(space.second_project, space.second_venv)
    new = sorted(set(first.store.rglob("*.tar.zst")) - before)
    sent = sum(path.stat().st_size for path in new)
    names = ", ".join(event.get("sent_names", [])) or f"{event['sent']['layers']} layers"
    first.forget()
    second.forget()
    return [
        Row(
            case="second user, other path, other tool",
            target="no package bytes sent",
            measured=f"**{len(new)} layers, {megabytes(sent)}** sent; "
            f"{event['reused']['layers']} layers, {megabytes(event['reused']['bytes'])} reused",
            holds=len(new) <= 1 and sent < 1e6,
            figures=f"sent: {names}",
        )
    ]


CASE = Case(
    name="second_user",
    run=run,
    repeats=1,
    about="The first environment is made by uv, the second by pip at another path, with bytecode.",
)
