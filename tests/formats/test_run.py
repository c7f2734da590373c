"""Run ids, amounts of memory and times."""

from __future__ import annotations

import pytest

from j2c_lab.errors import UsageError
from j2c_lab.formats.run import RUN_ID, new_run_id, parse_memory, parse_time


def test_run_ids_sort_by_time_and_differ() -> None:
    ids = [new_run_id(now) for now in (0, 0.25, 0.9999, 1, 1.5, 59, 3600, 1764557428, 4102444800)]
    assert ids == sorted(ids)
    assert all(RUN_ID.fullmatch(run_id) for run_id in ids)
    assert new_run_id(0) != new_run_id(0)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16G", 16 << 30),
        ("16gb", 16 << 30),
        ("16GiB", 16 << 30),
        ("512m", 512 << 20),
        ("1.5T", 3 << 39),
        (" 4096 ", 4096),
    ],
)
def test_memory(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1G", "0", "16X", "1e9", "16 G B", "nan"])
def test_no_memory(text: str) -> None:
    with pytest.raises(UsageError):
        parse_memory(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("2h", 7200), ("90m", 5400), ("1h30m", 5400), ("3D", 259200), ("01:02:03", 3723), ("45", 45)],
)
def test_time(text: str, seconds: int) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "-2h", "0", "0s", "2 hours", "1:2", "99:99:99", "2h!"])
def test_no_time(text: str) -> None:
    with pytest.raises(UsageError):
        parse_time(text)
