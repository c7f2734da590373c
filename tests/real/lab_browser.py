"""JupyterLab in Debian's Chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.lab_tools import TOKEN, LabServer

ROOT = Path(__file__).resolve().parents[2]
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
#: Where the pictures of the README come from: J2C_SCREENSHOTS=docs/images
SCREENSHOTS = os.environ.get("J2C_SCREENSHOTS")


def need_browser() -> str:
    """Return Chromium's path, or skip."""
    pytest.importorskip("jupyterlab", reason="needs the extra test-lab")
    pytest.importorskip("playwright", reason="needs the extra test-lab")
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("there is no Chromium (apt-get install chromium)")
    if not (ROOT / "j2c_lab/labextension/package.json").is_file():
        pytest.skip("the JupyterLab extension is not built (python scripts/labextension.py)")
    return found


@contextmanager
def open_browser(path: str) -> Iterator[Any]:
    """Start Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


class LabPage:
    """One page with JupyterLab, and what went wrong in it."""

    def __init__(self, browser: Any, server: LabServer, **options: Any) -> None:
        options = {"viewport": {"width": 1280, "height": 800}, "locale": "en-GB", **options}
        self.context = browser.new_context(**options)
        self.context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.page = self.context.new_page()
        self.page.set_default_timeout(30_000)
        self.server = server
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))

    def open(self, path: str = "lab?reset") -> LabPage:
        separator = "&" if "?" in path else "?"
        self.page.goto(f"{self.server.url}{path}{separator}token={TOKEN}")
        self.show_panel()
        return self

    def show_panel(self) -> None:
        panel = self.page.locator("#j2c-lab-panel")
        if not panel.is_visible():
            self.page.locator('.jp-SideBar [data-id="j2c-lab-panel"]').click(timeout=60_000)
        panel.locator("h2").wait_for()

    def run_command(self, command: str, **arguments: Any) -> None:
        self.page.evaluate(
            "([id, args]) => { window.jupyterapp.commands.execute(id, args) }",
            [command, arguments],
        )

    def row(self, name: str) -> Any:
        return self.page.locator(".j2c-Run", has_text=name).first

    def log_text(self) -> str:
        """The text that the open log has drawn."""
        return str(self.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.text"))

    def shot(self, name: str) -> None:
        """Take a picture for the README, when they are wanted."""
        if SCREENSHOTS:
            Path(SCREENSHOTS).mkdir(parents=True, exist_ok=True)
            self.page.wait_for_timeout(300)
            self.page.screenshot(path=f"{SCREENSHOTS}/{name}.png")

    def violations(self, selector: str) -> list[str]:
        """What axe-core holds for serious within an element."""
        axe = ROOT / "labextension/node_modules/axe-core/axe.min.js"
        if not axe.is_file():
            pytest.skip("axe-core is not installed (python scripts/labextension.py)")
        self.page.evaluate(axe.read_text())
        found = self.page.evaluate("(where) => axe.run(where)", selector)
        return [
            f"{v['id']}: {v['help']}: {[n['html'][:160] for n in v['nodes']][:3]}"
            for v in found["violations"]
            if v["impact"] in ("serious", "critical")
        ]

    def close(self) -> None:
        self.context.close()
        assert self.errors == []
