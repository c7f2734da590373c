"""What is printed: text that chunks cut anywhere, numbers, the last lines of a log."""

from __future__ import annotations

import base64
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from j2c_lab.cli.run_verbs import last_lines
from j2c_lab.cli.text import duration, size, table
from j2c_lab.formats.events import Utf8Joiner
from j2c_lab.formats.journal import LOG, JournalRecord


def chunks_of(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in itertools.pairwise(places)] or [b""]


def bytes_of(event: dict[str, object]) -> bytes:
    if "text" in event:
        return str(event["text"]).encode()
    return base64.b64decode(str(event["data"]))


@given(text=st.text(min_size=1), cuts=st.lists(st.integers(0, 500)))
def test_text_cut_anywhere_arrives_as_text(text: str, cuts: list[int]) -> None:
    joiner = Utf8Joiner()
    at = 0
    got = ""
    for chunk in chunks_of(text.encode(), cuts):
        event = joiner.feed(chunk, at)
        assert event["at"] == len(got.encode())
        got += event["text"]
        at += len(chunk)
    assert (got, joiner.rest) == (text, b"")


@given(data=st.binary(min_size=1), cuts=st.lists(st.integers(0, 500)))
def test_any_bytes_cut_anywhere_arrive_byte_for_byte(data: bytes, cuts: list[int]) -> None:
    joiner = Utf8Joiner()
    at = 0
    got = b""
    for chunk in chunks_of(data, cuts):
        event = joiner.feed(chunk, at)
        assert event["at"] == len(got)
        got += bytes_of(event)
        at += len(chunk)
    assert got + bytes_of(joiner.end()) == data


@given(
    text=st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\n\n"]), max_size=30).map(b"".join),
    cuts=st.lists(st.integers(0, 60)),
    lines=st.integers(0, 40),
)
def test_the_last_lines_are_those_of_the_whole(text: bytes, cuts: list[int], lines: int) -> None:
    records = []
    at = 0
    for number, chunk in enumerate(chunks_of(text, cuts), 1):
        records.append(JournalRecord(number, 0.0, LOG, chunk, "output", at))
        at += len(chunk)
    kept = last_lines(records, lines)
    expected = b"".join(text.splitlines(keepends=True)[-lines:] if lines else [])
    assert b"".join(record.payload for record in kept) == expected
    for record in kept:
        assert text[record.at :].startswith(record.payload)


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0 B"), (999, "999 B"), (1200, "1.2 kB"), (999_600, "1.0 MB"), (850_000_000, "850 MB")],
)
def test_sizes_are_short(number: int, shown: str) -> None:
    assert size(number) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.25, "0.2 s"), (12.3, "12 s"), (59.6, "1 m 00 s"), (7805, "2 h 10 m"), (273600, "3 d 4 h")],
)
def test_durations_are_short(seconds: float, shown: str) -> None:
    assert duration(seconds) == shown


def test_columns_stand_below_their_headers() -> None:
    shown = table([["a", "", "last"], ["long", "b", ""]], ["ONE", "TWO", ""])
    assert shown.splitlines() == ["ONE   TWO", "a          last", "long  b"]
