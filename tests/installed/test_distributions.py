"""Who owns a file: RECORD in all its spellings, and what stands in for it."""

from __future__ import annotations

import csv
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from j2c_lab.installed.distributions import name_and_version, read_distribution, read_site
from j2c_lab.installed.records import Records

SITE = Path("lib", "python3.11", "site-packages")
NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters="\0/\r\n\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"),
    min_size=1,
    max_size=20,
).filter(lambda name: name not in (".", "..", "__pycache__") and not name.endswith("-info"))


def make_site(prefix: Path, files: dict[str, list[str]], **csv_options: object) -> Path:
    """Write distributions with the named files, each with a RECORD as the csv module writes it."""
    site = prefix / SITE
    for owner, names in files.items():
        info = site / f"{owner}-1.0.dist-info"
        info.mkdir(parents=True)
        with (info / "RECORD").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n", **csv_options)  # type: ignore[arg-type]
            for name in names:
                path = site / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("")
                writer.writerow((name, "sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU", "0"))
            writer.writerow((f"{info.name}/RECORD", "", ""))
    return site


@settings(deadline=None)
@given(st.sets(NAMES, min_size=1, max_size=6), st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
@example({'a,"b",c.py', "plain.py", '"'}, csv.QUOTE_MINIMAL)
def test_any_name_in_record_finds_its_owner(names: set[str], quoting: int) -> None:
    with tempfile.TemporaryDirectory() as directory:
        prefix = Path(directory)
        wanted = [f"pack/{name}" for name in names]
        site_path = make_site(prefix, {"owner": wanted}, quoting=quoting)

        site = read_site(os.fsencode(site_path), os.fsencode(prefix))

        (owner,) = site.distributions
        found = {os.fsdecode(f.path) for f in owner.files if f.source is not None}
        assert found == {f"site-packages/{name}" for name in wanted}
        assert site.loose == []
        (record,) = [f.data for f in owner.files if f.source is None]
        rows = list(csv.reader(record.decode("utf-8").splitlines()))
        assert {row[0] for row in rows} == {*wanted, "owner-1.0.dist-info/RECORD"}
        alone = read_distribution(os.fsencode(site_path), os.fsencode(prefix), owner.info, [])
        assert sorted(f.path for f in alone.files) == sorted(f.path for f in owner.files)


def test_a_file_of_two_distributions_goes_to_the_first(tmp_path: Path) -> None:
    shared = "google/__init__.py"
    site = make_site(tmp_path, {"beta": [shared, "beta.py"], "alpha": [shared, "alpha.py"]})

    found = read_site(os.fsencode(site), os.fsencode(tmp_path))

    owners = {
        one.name: {os.fsdecode(f.path) for f in one.files if f.source}
        for one in found.distributions
    }
    assert owners == {
        "alpha": {"site-packages/google/__init__.py", "site-packages/alpha.py"},
        "beta": {"site-packages/beta.py"},
    }


def test_names_outside_the_environment_are_never_taken(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("")
    prefix = tmp_path / "prefix"
    site = make_site(prefix, {"owner": ["owner.py"]})
    (prefix / "share").mkdir()
    (prefix / "share" / "data").write_text("")
    with (site / "owner-1.0.dist-info" / "RECORD").open("a") as file:
        file.write("../../../../secret,,\n../../../share/data,,\n")
        file.write(f"{tmp_path}/secret,,\n{prefix}/share/data,,\n../../../share/gone,,\n")

    (owner,) = read_site(os.fsencode(site), os.fsencode(prefix)).distributions

    assert {os.fsdecode(f.path) for f in owner.files if f.source} == {
        "site-packages/owner.py",
        "prefix/share/data",
    }


def test_damaged_records_only_lose_their_owners(tmp_path: Path) -> None:
    site = make_site(tmp_path, {"owner": ["one.py", "two.py"]})
    record = site / "owner-1.0.dist-info" / "RECORD"
    record.write_bytes(b'\n\n,,\n"\n"x\none.py,sha256=short,1\nno commas\n\xff\xfe,,\n')

    found = read_site(os.fsencode(site), os.fsencode(tmp_path))

    assert [os.fsdecode(f.path) for f in found.loose] == ["site-packages/two.py"]


def test_names_and_versions_are_read_from_directory_names(tmp_path: Path) -> None:
    (tmp_path / "bare.egg-info").mkdir()
    (tmp_path / "bare.egg-info" / "PKG-INFO").write_text("Name: Bare_Name\nVersion: 3\n\nText: x\n")
    cases = {
        "Foo_Bar.baz-1.0+local.dist-info": ("foo-bar-baz", "1.0+local"),
        "old-2.1-py3.11.egg-info": ("old", "2.1"),
        "bare.egg-info": ("bare-name", "3"),
    }
    for info, expected in cases.items():
        assert name_and_version(os.fsencode(tmp_path), info.encode()) == expected


def test_records_are_parsed_once_and_again_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "cache"))
    site = make_site(tmp_path / "prefix", {"owner": ["one.py"]})
    info = b"owner-1.0.dist-info"
    first = Records(os.fsencode(site))
    parsed = first.read(info)
    first.save()

    with monkeypatch.context() as patch:
        patch.setattr("j2c_lab.installed.records.parse_record", lambda _: pytest.fail("parsed"))
        assert Records(os.fsencode(site)).read(info) == parsed

    with (site / os.fsdecode(info) / "RECORD").open("a") as file:
        file.write("two.py,,\n")
    again = Records(os.fsencode(site)).read(info)
    assert set(again.hashes) - set(parsed.hashes) == {b"site-packages/two.py"}


@pytest.mark.parametrize("damage", [b"", b"junk", b"i\x01\x00\x00\x00"])
def test_a_damaged_memory_of_records_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", os.fspath(tmp_path / "cache"))
    site = make_site(tmp_path / "prefix", {"owner": ["one.py"]})
    records = Records(os.fsencode(site))
    parsed = records.read(b"owner-1.0.dist-info")
    records.save()
    (memory,) = (tmp_path / "cache" / "j2c" / "records").iterdir()
    memory.write_bytes(damage)

    assert Records(os.fsencode(site)).read(b"owner-1.0.dist-info") == parsed
