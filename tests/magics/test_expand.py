import json
import shlex
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from j2c_lab.magics.expand import ExpansionError, split_line

NAMESPACE = {
    "lr": 0.1,
    "name": "two words",
    "layers": [64, "a b"],
    "options": {"key": "a b"},
    "csv": json,
    "a": 3,
}


def split(line):
    return split_line(line, NAMESPACE)


# No NUL: no argument of any process can hold one.
arguments = st.lists(st.text(st.characters(blacklist_characters="\0", codec="utf-8")))


@given(arguments)
def test_what_a_shell_quotes_arrives_byte_for_byte(words):
    assert split_line(shlex.join(words), {}) == words


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.dictionaries(st.text(), json_values))
def test_json_in_quotes_arrives_untouched(value):
    text = json.dumps(value)
    assert split_line(f"submit t.py -- --config {shlex.quote(text)}", {"x": 1}) == [
        *("submit", "t.py", "--", "--config"),
        text,
    ]


@given(st.dictionaries(st.text(string.ascii_letters + " :,"), json_values))
def test_json_without_quotes_arrives_untouched(value):
    text = json.dumps(value)
    assert split_line(f"--config {text} --config={text}", {}) == [
        *("--config", text),
        f"--config={text}",
    ]


@given(st.text(string.printable))
def test_without_names_nothing_is_expanded_whatever_the_text(text):
    try:
        words = split_line(text, {})
    except ExpansionError as error:
        assert "quotation" in str(error)
    else:
        assert all(word in text or set("'\"\\~") & set(text) for word in words)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("--lr {lr} $lr", ["--lr", "0.1", "0.1"]),
        ("--lr={lr} x$lr.csv", ["--lr=0.1", "x0.1.csv"]),
        ('{lr * 2} {options["key"]} "{options["key"]}"', ["0.2", "a b", "a b"]),
        ("{name} $name '{name}'", ["two words"] * 3),
        ("{max(layers[:1])} {[i for i in layers][0]}", ["64", "64"]),
        ("{layers} x", ["64", "a b", "x"]),
        ("--layers={layers}", ["--layers=[64, 'a b']"]),
        ('\'{"lr": {lr}}\' {"lr": {lr}}', ['{"lr": 0.1}', '{"lr": 0.1}']),
    ],
)
def test_known_names_are_expanded_and_values_never_split(line, words):
    assert split(line) == words


@pytest.mark.parametrize(
    "word",
    [
        *("{}", "${HOME}", "$HOME", "${lr}", "{unknown}", "$unknown", "{id}", "$", "{", "}"),
        *("a{2,3}", "{csv,txt}", "{{lr}}", "{lr:.2f}", "{lr!r}", "{1}", "{lr:", "$$lr", "#x"),
        *('{"lr":1}', '{"lr": lr}', "{'lr': [1, 2]}", '{"a": {"b": null}}', '["a", "b"]', "*.py"),
    ],
)
def test_everything_else_arrives_as_typed(word):
    assert split(f"a {word} b") == ["a", word, "b"]


def test_escapes_and_single_quotes_stop_an_expansion():
    assert split(r"\{lr} \$lr '$lr' \"$lr\"") == ["{lr}", "$lr", "$lr", '"0.1"']
    assert split(r"""'\{lr}' "\{lr}" "\$lr" """) == [r"\{lr}", r"\{lr}", "$lr"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (r"""a\ b 'c d'"e f" \\ '' "" """, ["a b", "c de f", "\\", "", ""]),
        ("a\nb\tc", ["a", "b", "c"]),
        ("a \\\n b", ["a", "", "b"]),
        ("'a\nb'", ["a\nb"]),
        ('"a\\"b" "\\x" "\\`"', ['a"b', "\\x", "`"]),
        ("", []),
        ("  ", []),
        ("x\\", ["x\\"]),
    ],
)
def test_words_are_split_as_a_shell_does(line, words):
    assert split(line) == words


def test_home_is_expanded_where_a_shell_does(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert split("~ ~/x '~' a~ ~x \\~") == ["/home/me", "/home/me/x", "~", "a~", "~x", "~"]


@pytest.mark.parametrize("line", ["'a", '"a b', 'x "y'])
def test_a_quotation_without_end_is_said(line):
    with pytest.raises(ExpansionError, match="no closing quotation mark"):
        split(line)


def test_an_expression_that_fails_says_why():
    with pytest.raises(ExpansionError, match="KeyError: 'none'"):
        split('--lr {options["none"]}')
