"""Metric lines in a stream cut anywhere."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from j2c_lab.unpack.metrics import MetricLines

STREAM = (
    b'::j2c-metrics {"step": 1, "loss": 0.5}\n'
    b'no ::j2c-metrics {"loss": 9}\n'
    b"epoch 1\r"
    b'::j2c-metrics {"loss": 0.25, "text": "x", "nan": NaN}\r\n'
    b"::j2c-metrics not json\n::j2c-metrics []\n::j2c-"
    b'\n\n::j2c-metrics {"a": 1}\n::j2c-metrics {"cut": 1}'
)
FOUND = [{"values": {"loss": 0.5}, "step": 1}, {"values": {"loss": 0.25}}, {"values": {"a": 1}}]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_metrics_are_found_wherever_the_stream_is_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    lines = MetricLines()
    found = []
    for start, end in itertools.pairwise(places):
        found += lines.feed(STREAM[start:end])
    assert found == FOUND


def test_line_without_an_end_is_not_kept() -> None:
    lines = MetricLines()
    for _ in range(300):
        assert lines.feed(b'::j2c-metrics {"a": ' + b"1" * 1000) == []
    assert len(lines._kept) <= 1 << 16
    assert lines.feed(b'\n::j2c-metrics {"b": 2}\n') == [{"values": {"b": 2}}]
