"""Every test of packing has a cache and a store of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from j2c_lab.store.local import LocalStore


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "j2c"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "experiment"
    path.mkdir()
    return path
