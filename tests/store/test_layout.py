"""Keys are made in one place, and nobody's input can leave it."""

from __future__ import annotations

import pytest

from j2c_lab.errors import UsageError
from j2c_lab.store import layout

DIGEST = "ab" * 32
RUN = "20261201-025028-7f3a9c"


def test_keys() -> None:
    assert layout.layer(DIGEST) == f"layers/sha256/ab/{DIGEST}.tar.zst"
    assert layout.bundle(DIGEST) == f"bundles/{DIGEST}.json"
    assert (
        layout.journal_segment("ann", RUN, 2, 0, 7)
        == f"runs/ann/{RUN}/attempts/2/0/journal/0000000007"
    )


@pytest.mark.parametrize("url", ["file:///data/j2c", "s3://bucket/prefix", "s3://bucket"])
def test_run_url_round_trip(url: str) -> None:
    assert layout.split_run_url(layout.run_url(url, "ann", RUN)) == (url, "ann", RUN)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "file:///x",
        f"file:///x/runs/ann/{RUN}/more",
        f"file:///x/run/ann/{RUN}",
        "file:///x/runs/ann/..",
        f"file:///x/runs/../{RUN}",
        f"file:///x/runs//{RUN}",
    ],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(UsageError):
        layout.split_run_url(url)


@pytest.mark.parametrize("user", ["", ".", "..", "a/b", "-x", "a b", "é", "a" * 129, "a\n"])
def test_users_that_are_no_path_component(user: str) -> None:
    with pytest.raises(UsageError):
        layout.user_runs(user)


@pytest.mark.parametrize("digest", ["", "ab", "../" + "a" * 61, DIGEST.upper(), DIGEST + "\n"])
def test_digests_that_are_none(digest: str) -> None:
    with pytest.raises(UsageError):
        layout.layer(digest)
