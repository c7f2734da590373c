"""Where an input comes from, and where a lab's path is on the cluster."""

from __future__ import annotations

import os

import pytest

from j2c_lab.errors import UsageError
from j2c_lab.formats.inputs import Source, on_cluster, parse_source

DIGEST = "0" * 64


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("/data", Source("path", "/data")),
        ("file:///da%20ta", Source("path", "/da ta")),
        ("s3://bucket/a/b c?#", Source("s3", "bucket/a/b c?#")),
        (f"s3://bucket/a#sha256={DIGEST}", Source("s3", "bucket/a", DIGEST)),
        ("https://host/a?b=c", Source("http", "https://host/a?b=c")),
    ],
)
def test_sources_are_told_apart(text: str, source: Source) -> None:
    assert parse_source("DATA", text) == source


@pytest.mark.parametrize(
    "text", ["ftp://host/a", "s3://bucket", "s3:///key", "file://host/a", "http://a:b@host/c"]
)
def test_what_cannot_be_fetched_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="input DATA"):
        parse_source("DATA", text)


def test_the_longest_mapped_directory_wins_and_names_are_whole() -> None:
    paths = {"/home/jovyan/data": "/mnt/data", "/home/jovyan/data/big/": "/scratch/big/", "/": "/x"}
    assert on_cluster("/home/jovyan/data", paths) == "/mnt/data"
    assert on_cluster("/home/jovyan/data/a/b", paths) == "/mnt/data/a/b"
    assert on_cluster("/home/jovyan/data/big/c", paths) == "/scratch/big/c"
    assert on_cluster("/home/jovyan/data2", paths) == "/x/home/jovyan/data2"
    assert on_cluster("/srv", {}) == "/srv"
    assert on_cluster("a", {os.getcwd(): "/w"}) == "/w/a"
    assert on_cluster("~/a", {}) == "~/a"
