"""Which files are saved, by globs as a shell understands them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from unpack_tools import Prepare

from j2c_lab.errors import StoreError
from j2c_lab.unpack.outputs import find_outputs, save_outputs

FILES = [
    "a.txt",
    "b.pt",
    ".hidden.txt",
    "logs/x.txt",
    "logs/deep/y.txt",
    "logs/.tmp/z.txt",
    "w[1].txt",
    "out/model.bin",
]


@pytest.mark.parametrize(
    ("glob", "expected"),
    [
        ("*.txt", ["a.txt", "w[1].txt"]),
        (".*.txt", [".hidden.txt"]),
        ("**/*.txt", ["a.txt", "logs/deep/y.txt", "logs/x.txt", "w[1].txt"]),
        ("logs", ["logs/.tmp/z.txt", "logs/deep/y.txt", "logs/x.txt"]),
        ("logs/**", ["logs/.tmp/z.txt", "logs/deep/y.txt", "logs/x.txt"]),
        ("./logs/*.txt", ["logs/x.txt"]),
        ("?.[pt]*", ["a.txt", "b.pt"]),
        ("?.[!p]*", ["a.txt"]),
        ("w[[]1].txt", ["w[1].txt"]),
        ("[z-a]", []),
        ("../*", []),
        ("/*", []),
        ("nothing", []),
    ],
)
def test_globs_choose_as_in_a_shell(tmp_path: Path, glob: str, expected: list[str]) -> None:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    output = os.fsencode(tmp_path / "out")
    found, left_out = find_outputs(output, os.fsencode(tmp_path), [glob.encode()])
    assert [os.fsdecode(f.name) for f in found] == sorted([*expected, "model.bin"])
    assert left_out == []


def test_file_that_cannot_be_saved_does_not_keep_others_back(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    sent = []

    def put(digest: str, path: Path) -> None:
        if path.name == "b":
            raise StoreError("no space")
        sent.append(path.name)

    found, _ = find_outputs(os.fsencode(tmp_path), os.fsencode(tmp_path), [])
    (tmp_path / "c").chmod(0o755)
    saved = save_outputs(found, put)
    assert sent == ["a", "c"]
    assert [(f.path, f.size, f.executable) for f in saved.files] == [
        ("a", 1, False),
        ("c", 1, True),
    ]
    assert saved.failed == ["b: no space"]


def test_a_later_attempt_finds_what_an_earlier_one_saved(prepare: Prepare) -> None:
    unpack = prepare(
        "import os\n"
        "for path in (os.environ['J2C_OUTPUT_DIR'] + '/deep/step', 'ckpt/last.pt'):\n"
        "    os.makedirs(os.path.dirname(path), exist_ok=True)\n"
        "    step = int(open(path).read()) if os.path.exists(path) else 0\n"
        "    print(step)\n"
        "    open(path, 'w').write(str(step + 1))\n",
        outputs=["ckpt/*.pt"],
    )
    for attempt in (1, 2, 3):
        assert unpack.run() == (0, "")
        assert unpack.log(attempt) == b"%d\n%d\n" % (attempt - 1, attempt - 1)
    restored = [e for e in unpack.events(3) if e["event"] == "restored"]
    assert [(e["from_attempt"], e["files"], e["bytes"]) for e in restored] == [(2, 2, 2)]
