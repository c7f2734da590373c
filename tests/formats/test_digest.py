"""The digest that names a layer."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from j2c_lab.formats.digest import Entry, layer_digest

_entry = st.builds(
    Entry,
    path=st.binary(min_size=1, max_size=20),
    type=st.sampled_from("fdl"),
    executable=st.booleans(),
    size=st.integers(0, 1 << 40),
    content=st.binary(max_size=40),
)
_entries = st.lists(_entry, max_size=6, unique_by=lambda entry: entry.path)


def test_the_digest_of_a_known_listing_never_changes():
    content = hashlib.sha256(b"hello\n").digest()
    entries = [
        Entry(b"project/run.sh", "f", True, 6, content),
        Entry(b"project/link", "l", False, 0, b"run.sh"),
        Entry(b"project/logs", "d", False, 0, b""),
    ]
    # Written down from the format's description, with nothing of the implementation.
    fields = [
        [b"project/link", b"l", b"0", b"0", b"run.sh"],
        [b"project/logs", b"d", b"0", b"0", b""],
        [b"project/run.sh", b"f", b"1", b"6", content],
    ]
    listing = b"j2c-layer-1\n"
    for entry in fields:
        for field in entry:
            listing += len(field).to_bytes(8, "big") + field
    assert layer_digest(entries) == hashlib.sha256(listing).hexdigest()
    assert layer_digest(entries) == (
        "d7a216e1ab1e1ea94f1101c4d7d679d427c72fc69292e3a3437b8cf78bb8fbc2"
    )


def test_an_empty_layer_has_a_digest():
    assert layer_digest([]) == hashlib.sha256(b"j2c-layer-1\n").hexdigest()


@given(_entries, st.randoms())
def test_the_order_of_the_entries_is_of_no_account(entries, random):
    shuffled = list(entries)
    random.shuffle(shuffled)
    assert layer_digest(shuffled) == layer_digest(entries)


@given(_entries, _entries)
def test_two_listings_have_one_digest_only_if_they_are_one(one, other):
    assert (layer_digest(one) == layer_digest(other)) == (sorted(one) == sorted(other))


@given(_entry, st.integers(1, 19))
def test_bytes_moved_from_one_field_to_the_next_change_the_digest(entry, cut):
    path, content = entry.path[:cut], entry.path[cut:] + entry.content
    moved = entry._replace(path=path, content=content)
    assert (layer_digest([moved]) == layer_digest([entry])) == (moved == entry)
