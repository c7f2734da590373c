"""A store and a clean place for each test."""

from __future__ import annotations

from pathlib import Path

import pytest
from unpack_tools import Made, Prepare, Unpack, make_run, project

from j2c_lab.store.local import LocalStore


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def prepare(store: LocalStore, tmp_path: Path) -> Prepare:
    """Return a function that makes a run of `main.py` (text) and further layers."""

    def prepare_run(main: str = "", *layers: Made, files: dict | None = None, **options) -> Unpack:
        all_layers = [project({"main.py": main, **(files or {})}), *layers]
        url = make_run(store, all_layers, **options)
        return Unpack(store, url, tmp_path / "work", tmp_path / "cache")

    return prepare_run
