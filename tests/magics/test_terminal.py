import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from j2c_lab.magics.terminal import Span, Style, TerminalText


def shown(data, **options):
    terminal = TerminalText(**options)
    terminal.feed(data)
    return terminal.text()


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("a\nb\n", "a\nb"),
        ("50%\r100%", "100%"),
        ("100%\r 50%", " 50%"),
        ("long line\rshort\x1b[K", "short"),
        ("abc\b\bX", "aXc"),
        ("a\r\nb", "a\nb"),
        ("one\ntwo\x1b[A\rONE\n", "ONE\ntwo"),
        ("x\nz\x1b[A\x1b[2K\ry\n\n", "y\nz"),
        ("a\tb", "a       b"),
        ("\x1b[5Cx\x1b[1Gy", "y    x"),
        ("\x1b]0;title\x07text\x1b(B", "text"),
        ("a\x1b[?25lb\x00\x07c", "abc"),
        ("\x1b[Jx", "x"),
    ],
)
def test_shows_what_a_terminal_would_show(data, text):
    assert shown(data) == text


def test_colours_become_styles():
    terminal = TerminalText()
    terminal.feed("a\x1b[1;31mb\x1b[0m\x1b[38;5;208mc\x1b[48;2;1;2;3md\x1b[m\n")
    assert terminal.spans() == [
        [
            Span("a", Style()),
            Span("b", Style(foreground=1, bold=True)),
            Span("c", Style(foreground="#ff8700")),
            Span("d", Style(foreground="#ff8700", background="#010203")),
        ]
    ]


pieces = st.lists(
    st.sampled_from(
        [
            "a",
            "é",
            "日本",
            "\r",
            "\n",
            "\b",
            "\x1b[K",
            "\x1b[A",
            "\x1b[31m",
            "\x1b[0m",
            "\x1b]0;t\x07",
        ]
    )
)


@given(pieces, st.integers(1, 7))
def test_chunks_may_be_cut_anywhere(pieces, size):
    data = "".join(pieces).encode()
    whole, cut = TerminalText(), TerminalText()
    whole.feed(data)
    for start in range(0, len(data), size):
        cut.feed(data[start : start + size])
    assert cut.spans() == whole.spans()


@given(st.binary())
def test_any_bytes_are_shown_without_control_characters(data):
    assert all(c >= " " or c == "\n" for c in shown(data))


def test_only_the_last_lines_are_kept_and_the_rest_counted():
    terminal = TerminalText(lines=10)
    for start in range(0, 1000, 7):
        terminal.feed("".join(f"{n}\n" for n in range(start, min(start + 7, 1000))))
    assert terminal.text(last=2) == "998\n999"
    assert terminal.line_count == 1000
    assert len(terminal.spans()) <= 10


def test_a_fast_writer_costs_memory_for_the_last_lines_only():
    terminal = TerminalText(lines=10, width=50)
    chunk = ("x" * 120 + "\n") * 5000
    for _ in range(20):
        terminal.feed(chunk)
    assert terminal.line_count == 100_000
    assert terminal.text() == "\n".join(["x" * 50] * len(terminal.spans()))


def test_a_line_of_twenty_megabytes_is_cut():
    terminal = TerminalText(width=50)
    for _ in range(20):
        terminal.feed(b"y" * 1_000_000)
    terminal.feed(b"\rdone\n")
    assert terminal.text() == "done" + "y" * 46


def test_tqdm_bars_end_as_one_line_each():
    script = (
        "import sys\n"
        "for i in range(101): sys.stderr.write(f'\\rfit: {i:3d}%|{chr(9608) * (i // 10):10}| ')\n"
        "sys.stderr.write('\\nend\\n')"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stderr
    terminal = TerminalText()
    for start in range(0, len(output), 5):
        terminal.feed(output[start : start + 5])
    assert terminal.text() == f"fit: 100%|{chr(9608) * 10}| \nend"
