"""Packing real environments: what is read, asked and sent."""

from __future__ import annotations

import asyncio
import dataclasses
import os
from pathlib import Path

import pytest
from environment_tools import install, layer_named, make_venv, make_wheel
from pack_tools import CountingStore, FarStore, extract, files_opened, settle, write_tree

from j2c_lab.pack.bundle import PackResult, pack_bundle, preview
from j2c_lab.pack.environment import plan_environment
from j2c_lab.pack.plan import EnvironmentPlan
from j2c_lab.pack.project import plan_project
from j2c_lab.store import layout

# Versions that the environment of the tests has not got: it is their base image.
PACKAGES = ("six==1.16.0", "idna==3.10", "certifi==2025.1.31")


@pytest.fixture
def store(tmp_path: Path) -> CountingStore:
    return CountingStore(tmp_path / "store")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A venv that tests do not change."""
    venv = make_venv(tmp_path_factory.mktemp("installed") / "venv", "uv")
    install(venv, *PACKAGES)
    settle()
    return venv


def test_a_cold_pack_asks_once_and_reads_each_file_once(installed: Path, store: CountingStore):
    plan = plan_environment(str(installed))
    with files_opened(installed) as opened:
        result = pack(plan, store)
    assert len(store.asked) == 1 and len(store.asked[0]) == len(plan.layers)
    assert len(opened) == len(set(opened))
    assert len(result.sent) == len(plan.layers)
    names = {d.name for d in result.manifest.environment.distributions}
    assert names == {"six", "idna", "certifi"}
    layers = {layer.digest for layer in result.manifest.layers}
    assert {d.layer for d in result.manifest.environment.distributions} <= layers


def test_what_is_packed_comes_out_again(installed: Path, store: CountingStore, tmp_path: Path):
    extract(pack(plan_environment(str(installed)), store), store, tmp_path / "out")
    (library,) = (installed / "lib").glob("python*/site-packages")
    for name in ("six.py", "idna/core.py", "certifi/cacert.pem"):
        packed = tmp_path / "out" / "site-packages" / name
        assert packed.read_bytes() == (library / name).read_bytes()


def test_an_unchanged_environment_opens_nothing_and_asks_once(
    installed: Path, store: CountingStore
):
    first = pack(plan_environment(str(installed)), store)
    plan = plan_environment(str(installed))
    store.asked.clear()
    with files_opened(installed) as opened:
        second = pack(plan, store)
    assert opened == [] and second.digest == first.digest
    layers = {layout.layer(layer.digest) for layer in first.manifest.layers}
    (asked,) = store.asked
    # The layers too, where that costs nothing: somebody may have removed one by hand.
    assert set(asked) == {layout.bundle(first.digest), *layers} and len(asked) == len(layers) + 1
    assert second.sent_bytes == 0 and len(second.reused) == len(plan.layers)


def test_one_added_package_alone_is_read_and_sent(tmp_path: Path, store: CountingStore):
    venv = make_venv(tmp_path / "venv", "uv")
    install(venv, *PACKAGES[:2])
    settle()
    pack(plan_environment(str(venv)), store)
    # Before all others in the alphabet, so that nothing may rest on the order.
    install(venv, make_wheel(tmp_path, "aaa", {"aaa/__init__.py": "x = 1\n", "aaa/b.py": "y\n"}))
    plan = plan_environment(str(venv))
    with files_opened(venv) as opened:
        result = pack(plan, store)
    assert [layer.name for layer in result.sent if layer.name.startswith("aaa")] == ["aaa 1.0"]
    others = [layer for layer in result.sent if not layer.name.startswith("aaa")]
    assert all(layer.unpacked_size < 20_000 for layer in others), "only the small common layer"
    packages = [path for path in opened if b"/idna" in path or b"/six" in path]
    assert [path for path in packages if b"dist-info" not in path] == []


@pytest.mark.parametrize("second", ["pip", "uv"])
def test_the_same_packages_in_another_venv_send_no_package_bytes(
    installed: Path, store: CountingStore, tmp_path: Path, second: str
):
    pack(plan_environment(str(installed)), store)
    other = make_venv(tmp_path / "a second place" / "venv", "venv", system_site=False)
    install(other, *PACKAGES, tool=second)
    store.given.clear()
    result = pack(plan_environment(str(other)), store)
    packages = {d.layer for d in result.manifest.environment.distributions}
    assert len(packages) == 3
    assert packages.isdisjoint(layer.digest for layer in result.sent)
    assert packages.isdisjoint(key.split("/")[-1].split(".")[0] for key in store.given)


def test_an_edited_package_is_sent_as_it_is(tmp_path: Path, store: CountingStore):
    venv = make_venv(tmp_path / "venv", "uv")
    install(venv, "six==1.16.0")
    pack(plan_environment(str(venv)), store)
    (six,) = venv.glob("lib/python*/site-packages/six.py")
    content = six.read_bytes()
    six.unlink()
    six.write_bytes(content + b"\nedited = True\n")
    result = pack(plan_environment(str(venv)), store)
    assert [layer.name for layer in result.sent] == ["six 1.16.0"]
    extract(result, store, tmp_path / "out")
    assert (tmp_path / "out/site-packages/six.py").read_bytes() == six.read_bytes()


def test_an_edit_that_keeps_the_size_is_seen_although_record_says_otherwise(
    tmp_path: Path, store: CountingStore, monkeypatch: pytest.MonkeyPatch
):
    venv = make_venv(tmp_path / "venv", "uv")
    install(venv, "six==1.16.0")
    pristine = pack(plan_environment(str(venv)), store)
    (six,) = venv.glob("lib/python*/site-packages/six.py")
    content = six.read_bytes()
    six.unlink()
    six.write_bytes(content.replace(b"1.16.0", b"9.99.9"))
    # With nothing remembered, RECORD alone foretells the layer that the store has.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    result = pack(plan_environment(str(venv)), store)
    assert result.digest != pristine.digest
    assert [layer.name for layer in result.sent] == ["six 1.16.0"]


def test_what_the_base_holds_in_the_same_content_stays_out(installed: Path, store: CountingStore):
    plan = plan_environment(str(installed))
    full = pack(plan, store)
    digests = {d.name: d.layer for d in full.manifest.environment.distributions}
    # The base has idna as it is here, and another build of six.
    held = {"idna": digests["idna"], "six": "0" * 64}
    result = pack(dataclasses.replace(plan, held=held), store)
    environment = result.manifest.environment
    assert [d.name for d in environment.base_distributions] == ["idna"]
    assert environment.base_distributions[0].layer == digests["idna"]
    assert {d.name for d in environment.distributions} == {"six", "certifi"}
    assert digests["idna"] not in {layer.digest for layer in result.manifest.layers}
    assert ("idna 3.10", "in the base image") in {(e.path, e.rule) for e in result.left_out}


def test_a_cold_pack_with_a_base_reads_but_does_not_send_what_it_holds(
    installed: Path, store: CountingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    plan = plan_environment(str(installed))
    digests = {d.name: d.layer for d in pack(plan, store).manifest.environment.distributions}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    second = CountingStore(tmp_path / "second")
    result = pack(dataclasses.replace(plan, held={"six": digests["six"]}), second)
    assert layout.layer(digests["six"]) not in second.given
    assert [d.name for d in result.manifest.environment.base_distributions] == ["six"]
    # And once more, from memory alone.
    again = pack(dataclasses.replace(plan, held={"six": digests["six"]}), second)
    assert again.digest == result.digest and not again.new


def test_a_preview_tells_what_would_be_sent_and_writes_nothing(
    installed: Path, store: CountingStore, root: Path
):
    write_tree(root, {"train.py": "x\n"})
    project, plan = plan_project(str(root)), plan_environment(str(installed))
    before = asyncio.run(preview(project, plan, store))
    assert {layer.name for layer in before.sent} == {
        "project",
        *(layer.name for layer in plan.layers),
    }
    assert before.digest == "" and store.given == [] and not store.directory.exists()
    packed = asyncio.run(pack_bundle(project, plan, store))
    assert [layer.digest for layer in before.sent] == [layer.digest for layer in packed.sent]
    after = asyncio.run(preview(project, plan, store))
    assert after.sent == [] and after.digest == packed.digest


def test_the_layers_of_a_far_store_are_staged_in_the_cache_and_removed(
    installed: Path, tmp_path: Path, cache: Path
):
    far = FarStore(tmp_path / "far")
    near = CountingStore(tmp_path / "near")
    plan = plan_environment(str(installed))
    assert pack(plan, far).digest == pack(plan, near).digest
    assert list((cache / "staging").iterdir()) == []


def test_a_layer_that_another_pack_sent_meanwhile_is_kept(installed: Path, tmp_path: Path):
    class Raced(CountingStore):
        async def put_file(self, key: str, path: Path, **options: object) -> bool:
            target = self.directory / key
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(b"another's, of another size")
            return await super().put_file(key, path, **options)  # type: ignore[arg-type]

    store = Raced(tmp_path / "store")
    result = pack(plan_environment(str(installed)), store)
    assert result.sent == []
    for layer in result.manifest.layers:
        assert layer.packed_size == os.stat(store.directory / layout.layer(layer.digest)).st_size


def test_layers_of_the_plan_have_the_digests_of_the_bundle(installed: Path, store: CountingStore):
    plan = plan_environment(str(installed))
    result = pack(plan, store)
    six = layer_named(plan, "six")
    (packed,) = [layer for layer in result.manifest.layers if layer.name == six.name]
    assert packed.files == len(six.files)


def pack(plan: EnvironmentPlan, store: CountingStore) -> PackResult:
    return asyncio.run(pack_bundle(None, plan, store))
