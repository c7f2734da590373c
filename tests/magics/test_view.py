import pytest
from hypothesis import given
from hypothesis import strategies as st

from j2c_lab.magics import html, text
from j2c_lab.magics.metric_lines import MetricLineFilter
from j2c_lab.magics.view import RunView, format_bytes, format_seconds

METRICS = b'::j2c-metrics {"step": 1, "loss": 0.5}\n'


def view_of(*events, verb="submit", exit_code=None):
    view = RunView(verb, 100.0)
    for n, event in enumerate(events):
        view.feed(event, 100.0 + n)
    if exit_code is not None:
        view.end(exit_code, 100.0 + len(events))
    return view


pieces = st.lists(
    st.sampled_from(
        [
            METRICS,
            b"\r" + METRICS,
            b"\r 10%|#",
            b"a\n",
            b"::j2c-",
            b"::",
            b"\r",
            b"x",
            b"\xff",
            b"{}\n",
        ]
    )
)


@given(pieces, st.integers(1, 9))
def test_metric_lines_vanish_however_the_stream_is_cut(pieces, size):
    data = b"".join(pieces)
    whole, cut = MetricLineFilter(), MetricLineFilter()
    expected = whole.feed(data) + whole.end()
    shown = b"".join(cut.feed(data[n : n + size]) for n in range(0, len(data), size)) + cut.end()
    assert shown == expected
    assert METRICS not in shown


def test_a_bar_stays_whole_when_metrics_are_printed_behind_it():
    lines = MetricLineFilter()
    shown = lines.feed(b"\r10%|# " + METRICS + b"\r20%|##" + b"\r" + METRICS) + lines.end()
    assert shown == b"\r10%|# \r20%|##"


def test_a_line_without_end_is_not_held_for_ever():
    lines = MetricLineFilter()
    assert len(lines.feed(b"::j2c-metrics {" + b"x" * 100_000)) == 100_015


def test_everything_a_run_says_is_escaped():
    evil = "<img src=x onerror=alert(1)>&\"'"
    view = view_of(
        {"event": "run", "run": evil, "name": evil},
        {"event": "stage", "stage": evil},
        {"event": "progress", "stage": evil, "bytes": 1, "total_bytes": 2, "what": evil},
        {"event": "warning", "message": evil, "remedy": evil},
        {"event": "fetched", "directory": evil, "files": 1},
        {"event": "state", "run": evil, "state": evil, "reason": evil},
        {"event": "log", "text": evil + "\x1b[38;2;1;2;3m" + evil},
        {"event": "metrics", "values": {evil: 1, "b": "x"}, "step": evil},
        {"event": "error", "message": evil, "remedy": evil, "details": [evil]},
    )
    for shown in (html.render(view, 120.0), (view.end(125, 130.0), html.render(view, 130.0))[1]):
        assert "<img" not in shown
        assert "&lt;img src=x onerror=alert(1)&gt;&amp;" in shown


def test_size_is_bounded_whatever_comes():
    view = view_of(
        *[{"event": "stage", "stage": f"s{n}" * 50} for n in range(500)],
        *[{"event": "warning", "message": "w" * 9000} for _ in range(500)],
        *[{"event": "metrics", "values": {f"m{n}" * 90: n}} for n in range(500)],
        *[{"event": "fetched", "directory": "d" * 5000, "files": 1} for _ in range(50)],
        *[{"event": "log", "text": ("\x1b[31m<\x1b[32m&" * 500 + "\n") * 90} for _ in range(50)],
        {"event": "error", "message": "e" * 9999, "details": ["d" * 9999] * 500},
        exit_code=125,
    )
    assert len(html.render(view, 1.0)) < 150_000
    assert len(text.render(view)) < 60_000


def test_unknown_events_and_fields_are_ignored():
    view = view_of({"event": "novelty", "x": 1}, {"no": "event"}, {"event": "metrics"}, {})
    assert "starting" in text.render(view)


@pytest.mark.parametrize(
    ("events", "exit_code", "said"),
    [
        (
            [{"event": "result", "state": "succeeded", "duration": 65}],
            0,
            "succeeded after 1 min 05 s",
        ),
        (
            [{"event": "result", "state": "lost", "reason": "the node died", "duration": None}],
            125,
            "lost: the node died",
        ),
        ([{"event": "error", "message": "no", "remedy": "try"}], 2, "no; try"),
        (
            [{"event": "run", "run": "r"}, {"event": "detached", "remedy": "do"}],
            130,
            "detached, the run goes on; do",
        ),
        ([{"event": "submitted", "run": "r"}], 0, "submitted; follow it with %j2c logs r -f"),
        ([], 137, "j2c submit ended with exit code 137"),
    ],
)
def test_the_last_line_says_how_it_ended(events, exit_code, said):
    view = view_of(*events, exit_code=exit_code)
    assert text.render(view).splitlines()[0].endswith(said)
    assert said in html.render(view, 0.0)


def test_only_the_stage_that_failed_is_marked():
    view = view_of(
        *[{"event": "stage", "stage": s} for s in ("pack", "running", "saving", "finished")],
        {"event": "result", "state": "failed", "duration": 1},
        exit_code=1,
    )
    assert [line[0] for line in text.render(view).splitlines()[1:]] == ["✓", "✗", "✓"]


def test_a_log_read_later_shows_how_long_its_stages_took_then():
    stages = [("fetching", 50.0), ("running", 52.5), ("saving", 60.0), ("finished", 61.0)]
    view = view_of(
        {"event": "state", "run": "R1", "state": "failed", "reason": "exit code 1"},
        *({"event": "stage", "stage": name, "time": time} for name, time in stages),
        verb="logs",
        exit_code=0,
    )
    assert [stage.seconds for stage in view.stages] == [2.5, 7.5, 1.0]
    assert text.render(view).startswith("run R1: failed: exit code 1\n")


def test_a_live_view_says_as_of_when_it_is_true():
    view = view_of({"event": "run", "run": "r"})
    assert "as of " in html.render(view, 1000.0)
    view.end(0, 1000.0)
    assert "as of " not in html.render(view, 1000.0)


@pytest.mark.parametrize(
    ("size", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (1_234_567, "1.23 MB"), (850e6, "850 MB"),
     (5e12, "5 TB"), (999_999, "1 MB")],
)  # fmt: skip
def test_sizes_are_short(size, shown):
    assert format_bytes(size) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0.04, "0.0 s"), (9.96, "10 s"), (59.7, "1 min 00 s"), (7799, "2 h 09 min")],
)
def test_times_are_short(seconds, shown):
    assert format_seconds(seconds) == shown
