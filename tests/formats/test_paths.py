"""Which paths and links may stand in a layer."""

from __future__ import annotations

import os
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from j2c_lab.errors import UnsafePathError
from j2c_lab.formats.paths import check_entry_path, from_text, link_stays_inside, show, to_text


@pytest.mark.parametrize(
    "path",
    [b"", b"/", b"/etc/passwd", b"..", b"../x", b"project/../x", b"project/..", b".", b"./x",
     b"project/./x", b"project//x", b"project/", b"//x", b"project/x\0y"],
)  # fmt: skip
def test_unsafe_paths_are_refused(path: bytes):
    with pytest.raises(UnsafePathError):
        check_entry_path(path)


@pytest.mark.parametrize(
    "path", [b"project", b"project/...", b"project/ ", b"project/\xff", b"a/..b", b"a/b..", b"-"]
)
def test_odd_but_safe_paths_are_taken(path: bytes):
    check_entry_path(path)


@pytest.mark.parametrize(
    ("path", "target", "inside"),
    [
        (b"project/a/b", b"../c", True),
        (b"project/a/b", b"..", True),
        (b"project/a/b", b"../..", False),
        (b"project/b", b"../site-packages", False),
        (b"project/b", b"../project/x", False),
        (b"project/b", b".", True),
        (b"project/b", b"/project/x", False),
        (b"project/b", b"", False),
        (b"project/b", b"x\0y", False),
        (b"project/b", b"x/../../project/y", False),
        (b"project/b", b"x/../y", True),
        (b"project/a/b", b"./.././x", True),
    ],
)
def test_links_are_judged_by_their_names(path: bytes, target: bytes, inside: bool):
    assert link_stays_inside(path, target) is inside


_part = st.sampled_from([b"..", b".", b"a", b"b", b""])


@given(st.lists(_part, min_size=1, max_size=8), st.integers(0, 3))
def test_links_that_stay_inside_resolve_to_a_place_inside(parts, depth):
    target = b"/".join(parts)
    path = b"project/" + b"d/" * depth + b"link"
    if not link_stays_inside(path, target):
        return
    with tempfile.TemporaryDirectory() as root:
        top = os.fsencode(os.path.realpath(root))
        os.makedirs(os.path.join(top, os.path.dirname(path)))
        os.symlink(target, os.path.join(top, path))
        resolved = os.path.normpath(os.path.join(top, os.path.dirname(path), target))
        inside = os.path.join(top, b"project")
        assert resolved == inside or resolved.startswith(inside + b"/")


@given(st.binary())
def test_every_path_survives_a_json_document(path: bytes):
    import json

    assert from_text(json.loads(json.dumps(to_text(path)))) == path


@given(st.binary())
def test_what_is_shown_is_printable(path: bytes):
    assert show(path).isprintable()
