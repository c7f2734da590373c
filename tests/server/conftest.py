"""One real server for the tests of this directory; they tell their runs apart by id."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lab_tools import LabServer

CONFIG = {
    "J2CServer": {
        "profiles": {"small": {"gpus": 1, "time": "1h"}},
        "queues": {"local": ["night"]},
        "max_gpus": 4,
    }
}


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    pytest.importorskip("jupyterlab", reason="needs the extra test-lab")
    server = LabServer(tmp_path_factory.mktemp("lab"), config=CONFIG).start()
    yield server
    server.stop()
