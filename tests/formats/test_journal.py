"""A reader sees each record once and whole, however the segments' bytes reach it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from j2c_lab.errors import FormatError
from j2c_lab.formats import journal
from j2c_lab.formats.journal import JournalRecord, SegmentParser, encode_record

payloads = st.binary(max_size=300) | st.sampled_from([b"\n", b"{}\n", b"\r", b"\xd0", b"\0" * 9])
logs = st.builds(
    JournalRecord,
    number=st.integers(1, 2**53),
    time=st.integers(0, 2**40).map(lambda ms: round(ms / 1000, 3)),
    kind=st.just(journal.LOG),
    payload=payloads,
    stream=st.sampled_from([journal.OUTPUT, journal.STDOUT, journal.STDERR]),
    at=st.integers(0, 2**53),
)


def segment_of(records: list[JournalRecord], *, sealed: bool = False) -> bytes:
    data = journal.encode_segment_start(1, 1, 0) + b"".join(map(encode_record, records))
    if sealed:
        data += encode_record(JournalRecord(0, 0.0, journal.SEAL))
    return data


@given(st.lists(logs, max_size=8), st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_records_arrive_exact_for_any_cut_of_the_bytes(
    records: list[JournalRecord], cuts: list[int]
) -> None:
    data = segment_of(records, sealed=True)
    parser, place, seen = SegmentParser(), 0, []
    while place < len(data):
        step = cuts[place % len(cuts)]
        seen += parser.feed(data[place : place + step])
        place += step
    assert seen == records
    assert parser.sealed
    assert parser.offset == len(data)


def test_half_a_record_waits_for_its_rest() -> None:
    data = segment_of([JournalRecord(1, 1.5, journal.LOG, b"hello", journal.OUTPUT, 0)])
    parser = SegmentParser()
    assert parser.feed(data[:-1]) == []
    assert [record.payload for record in parser.feed(data[-1:])] == [b"hello"]
    assert not parser.sealed


@pytest.mark.parametrize(
    "data",
    [
        b"not a journal\n",
        b'{"j2c-journal":2}\n',
        b"[1]\n",
        segment_of([]) + b'{"n":1,"k":"log"}\n',
        segment_of([]) + b'{"n":1,"k":"log","len":-1}\n',
        segment_of([]) + b"x" * 5000,
    ],
)
def test_damage_is_an_error_and_not_a_hang(data: bytes) -> None:
    with pytest.raises(FormatError):
        SegmentParser().feed(data)


def test_event_payload_must_be_an_object() -> None:
    record = JournalRecord(1, 0.0, journal.EVENT, b"[]")
    with pytest.raises(FormatError):
        record.event()
