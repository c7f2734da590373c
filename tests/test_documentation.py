"""The documents say what is so: commands exist, links lead somewhere, versions agree."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from j2c_lab.config import SETTINGS

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")], key=lambda path: path.as_posix()
)


def fenced(path, *languages):
    blocks = re.findall(r"^```(\w+)\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
    return [text for language, text in blocks if language in languages]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_inside_the_repository_lead_somewhere(path):
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", text)
    for link in (first or second for first, second in links):
        if re.match(r"[a-z]+:", link):
            continue
        place, _, anchor = link.partition("#")
        target = path.parent / place if place else path
        assert target.exists(), f"{path.name} links to {link}"
        if anchor:
            heads = re.findall(r"^#+ (.+)$", target.read_text(), re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in heads}
            assert anchor in anchors, f"{path.name} links to {link}"


def test_every_make_target_that_is_named_exists():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
    for path in DOCUMENTS:
        named = re.findall(r"(?:^|`)make (?:[A-Z]+=\S+ )?([a-z]+)", path.read_text(), re.MULTILINE)
        assert set(named) <= targets, path.name


def test_every_verb_that_is_named_exists():
    shown = subprocess.run(
        [sys.executable, "-m", "j2c_lab", "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for path in [ROOT / "README.md", ROOT / "docs" / "magics.md"]:
        for block in fenced(path, "sh", "python"):
            for verb in re.findall(r"^(?:\w+ = )?(?:%*j2c) (\w+)", block, re.MULTILINE):
                assert re.search(rf"\b{verb}\b", shown), f"{path.name} names {verb}"


def test_every_setting_and_its_variable_is_described():
    text = (ROOT / "docs" / "settings.md").read_text()
    for name, setting in SETTINGS.items():
        row = rf"^\|[^|]*`{name.replace('_', '-')}`[^|]*\|[^|]*{setting.variable}[^|]*\|"
        assert re.search(row, text, re.MULTILINE), name
    for example in fenced(ROOT / "docs" / "settings.md", "toml"):
        for name in re.findall(r"^([\w-]+) =", example.split("[tool.j2c.env]")[0], re.MULTILINE):
            assert name.replace("-", "_") in SETTINGS


def test_the_changelog_follows_the_version():
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    text = (ROOT / "CHANGELOG.md").read_text()
    assert "## [Unreleased]" in text or f"## [{version[1]}]" in text


def test_the_readme_is_short_and_its_pictures_are_light():
    assert len((ROOT / "README.md").read_text().splitlines()) < 100
    for picture in (ROOT / "docs").glob("*.png"):
        assert picture.stat().st_size < 200_000
    assert "http" not in (ROOT / "docs" / "flow.svg").read_text().replace(
        "http://www.w3.org/2000/svg", ""
    )


def test_the_demo_notebook_is_kept_without_outputs():
    notebook = nbformat.read(ROOT / "binder" / "demo.ipynb", as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in code)
    sources = [cell.source for cell in code]
    assert any(re.search(r"^run = %j2c submit", source, re.MULTILINE) for source in sources)
    assert any(source.startswith("%%j2c submit") for source in sources)


def test_scripts_of_the_shell_are_read_by_a_plain_shell():
    for script in ("scripts/setup.sh", ".ci/run", "binder/postBuild"):
        subprocess.run(["sh", "-n", ROOT / script], check=True)
