"""One file for each row of the table; `CASES` is the order they run and stand in."""

from __future__ import annotations

from benchmarks.cases import (
    cold_pack,
    cold_unpack,
    memory,
    one_package,
    second_user,
    start,
    unchanged,
    warm_unpack,
)
from benchmarks.harness import Case

CASES: dict[str, Case] = {
    case.name: case
    for case in (
        cold_pack.CASE,
        unchanged.CASE,
        one_package.CASE,
        second_user.CASE,
        cold_unpack.CASE,
        warm_unpack.CASE,
        memory.CASE,
        start.CASE,
    )
}
