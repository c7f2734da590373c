"""From URLs to stores, and what a job is told of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from j2c_lab.errors import UsageError
from j2c_lab.store.local import LocalStore
from j2c_lab.store.opener import job_settings, open_store
from j2c_lab.store.s3 import S3Store


def test_each_kind_of_url_opens_its_store(tmp_path: Path) -> None:
    assert isinstance(open_store(str(tmp_path)), LocalStore)
    assert isinstance(open_store(tmp_path.as_uri()), LocalStore)
    store = open_store("s3://bucket/some/prefix/")
    assert isinstance(store, S3Store)
    assert store.url == "s3://bucket/some/prefix"
    assert open_store("s3://bucket").url == "s3://bucket"


@pytest.mark.parametrize("url", ["ftp://host/x", "s3://", "s3:///x", "s3://bucket/x?region=eu"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(UsageError):
        open_store(url)


def test_a_job_is_told_where_the_store_is_and_no_secret() -> None:
    environ = {
        "AWS_ENDPOINT_URL_S3": "https://s3.example.org",
        "AWS_REGION": "eu-1",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "token",
        "AWS_CA_BUNDLE": "/only/here.pem",
    }
    assert job_settings("s3://bucket/runs/ann/1", environ) == {
        "AWS_ENDPOINT_URL_S3": "https://s3.example.org",
        "AWS_REGION": "eu-1",
    }
    assert job_settings("file:///x", environ) == {}


def test_the_client_is_not_imported_before_it_is_needed() -> None:
    code = (
        "import sys; from j2c_lab.store.opener import open_store; open_store('s3://b/p');"
        "assert not {'botocore', 'aiohttp'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
