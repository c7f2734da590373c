"""What the base image holds is not sent, and is proved and linked where the run starts."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path

import pytest
from environment_tools import (
    install,
    make_venv,
    make_wheel,
    manifest_of,
    move,
    place_layers,
    run_in,
)

from j2c_lab.errors import UnpackError
from j2c_lab.formats.inventory import Inventory
from j2c_lab.formats.manifest import Distribution
from j2c_lab.installed.base import base_distributions, digest_of
from j2c_lab.installed.interpreter import ask
from j2c_lab.pack.base_image import take_inventory
from j2c_lab.pack.environment import plan_environment
from j2c_lab.unpack.environment import make_environment


def inventory_of(venv: Path) -> Inventory:
    """Return the inventory of a base image whose Python is the venv's."""
    python = ask(os.fspath(venv / "bin" / "python"))
    found = [
        Distribution(name=one.name, version=one.version, layer=digest_of(one.read(python).files))
        for one in base_distributions(python).values()
    ]
    return Inventory(
        python=python.python,
        python_full=python.python_full,
        implementation=python.implementation,
        platform=python.platform,
        libc=python.libc,
        distributions=found,
    )


def test_what_the_local_base_holds_is_linked_not_sent(tmp_path: Path) -> None:
    version = importlib.metadata.version("pluggy")
    venv = make_venv(tmp_path / "venv", system_site=False)
    install(venv, f"pluggy=={version}", make_wheel(tmp_path, "mine", {"mine.py": "import pluggy"}))

    plan, environment = move(venv, tmp_path / "root")

    assert list(plan.held) == ["pluggy"]
    where = run_in(environment, "python", "-c", "import mine, pluggy; print(pluggy.__file__)")
    assert Path(where).is_relative_to(tmp_path / "root" / "env")
    assert Path(where).is_symlink()
    found = "import importlib.metadata as m; print(m.version('pluggy'), len(m.files('pluggy')) > 5)"
    assert run_in(environment, "python", "-c", found) == f"{version} True"


def test_libraries_find_each_other_by_origin_through_links(tmp_path: Path) -> None:
    base = make_venv(tmp_path / "base", system_site=False)
    install(base, "numpy")
    venv = make_venv(tmp_path / "venv", "uv", system_site=False)
    install(venv, "numpy", tool="pip")
    plan = plan_environment(os.fspath(venv), base=inventory_of(base))
    manifest = manifest_of(plan)
    assert [d.name for d in manifest.environment.base_distributions] == ["numpy"]
    root = tmp_path / "root"
    place_layers(plan, manifest, root)

    environment = make_environment(manifest, os.fspath(root), os.fspath(base / "bin" / "python"))

    code = "import numpy; print(numpy.linalg.inv(numpy.eye(2)).sum())"
    assert run_in(environment, "python", "-c", code) == "2.0"
    assert run_in(environment, "f2py", "-v")
    # Again, as after a kill: everything is there already.
    make_environment(manifest, os.fspath(root), os.fspath(base / "bin" / "python"))


def test_what_the_base_has_compiled_is_used_and_is_no_content(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "compiled", {"compiled.py": "x = 1", "pack_/__init__.py": ""})
    base = make_venv(tmp_path / "base", system_site=False)
    install(base, wheel, tool="pip")
    (cached,) = base.glob("lib/*/site-packages/__pycache__/compiled.*.pyc")
    venv = make_venv(tmp_path / "venv", system_site=False)
    install(venv, wheel, tool="uv")
    plan = plan_environment(os.fspath(venv), base=inventory_of(base))
    manifest = manifest_of(plan)
    assert [d.name for d in manifest.environment.base_distributions] == ["compiled"]
    before = cached.read_bytes()

    python = os.fspath(base / "bin" / "python")
    environment = make_environment(manifest, os.fspath(tmp_path / "root"), python)

    code = "import compiled; print(compiled.__cached__)"
    used = Path(run_in(environment, "python", "-v", "-c", code))
    assert used.is_symlink()
    assert used.is_relative_to(tmp_path / "root")
    assert cached.read_bytes() == before


def test_a_base_with_other_content_is_refused(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "common", {"common.py": "value = 1"})
    base = make_venv(tmp_path / "base", system_site=False)
    venv = make_venv(tmp_path / "venv", system_site=False)
    for each in (base, venv):
        install(each, wheel)
    plan = plan_environment(os.fspath(venv), base=inventory_of(base))
    manifest = manifest_of(plan)
    (common,) = base.glob("lib/*/site-packages/common.py")
    common.write_text("value = 2")
    python = os.fspath(base / "bin" / "python")

    with pytest.raises(UnpackError) as refused:
        make_environment(manifest, os.fspath(tmp_path / "root"), python)
    assert refused.value.details == ["common 1.0: its files are not the same"]

    common.unlink()
    for note in base.glob("lib/*/site-packages/common-1.0.dist-info/*"):
        note.unlink()
    next(base.glob("lib/*/site-packages/common-1.0.dist-info")).rmdir()
    with pytest.raises(UnpackError) as refused:
        make_environment(manifest, os.fspath(tmp_path / "root"), python)
    assert refused.value.details == ["common 1.0: not there"]


def test_an_edited_package_is_sent_though_the_base_has_its_version(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, "common", {"common.py": "value = 1"})
    base = make_venv(tmp_path / "base", system_site=False)
    venv = make_venv(tmp_path / "venv", system_site=False)
    for each in (base, venv):
        install(each, wheel)
    (common,) = venv.glob("lib/*/site-packages/common.py")
    common.write_text("value = 2")

    plan = plan_environment(os.fspath(venv), base=inventory_of(base))

    assert manifest_of(plan).environment.base_distributions == []


def test_the_inventory_lists_this_python_and_its_packages() -> None:
    inventory = take_inventory(digests=False)

    assert inventory.python_full == ".".join(map(str, sys.version_info[:3]))
    versions = {d.name: d.version for d in inventory.distributions}
    assert versions["pytest"] == pytest.__version__
    assert Inventory.from_json(inventory.to_json()) == inventory
    if sys.platform == "linux":
        assert any(name.startswith("libc.so") for name in inventory.libraries)
        assert inventory.libc.startswith("glibc") or inventory.libc == ""
