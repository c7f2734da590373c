"""JupyterLab with the extension, as a person uses it: a real server, a real browser, real runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab_tools import LabServer
from tests.real.lab_browser import LabPage, need_browser, open_browser

TRAIN = """
import math, sys, time
print("\\x1b[1;34mtraining\\x1b[0m with", sys.argv[1:])
for step in range(25):
    loss = math.exp(-step / 8) + 0.02 * math.sin(step * 2)
    accuracy = 1 - loss / 1.3
    print('::j2c-metrics {"step": %d, "loss": %.4f, "accuracy": %.4f}' % (step, loss, accuracy))
    for done in range(21):
        print("\\repoch %2d  %3d %% |%-20s| loss %.3f" % (step, done * 5, "#" * done, loss), end="")
        sys.stdout.flush(); time.sleep(0.003)
    print()
print("\\x1b[32mfinished\\x1b[0m")
"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with open_browser(need_browser()) as opened:
        yield opened


CONFIG = {
    "LabApp": {"expose_app_in_browser": True},
    "J2CServer": {
        "profiles": {"1 × A100, 4 h": {"gpus": 1, "cpus": 8, "memory": "4G", "time": "4h"}}
    },
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabServer]:
    need_browser()
    started = LabServer(tmp_path_factory.mktemp("lab"), app="lab", config=CONFIG).start()
    started.script(TRAIN)
    yield started
    started.stop()


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[LabServer]:
    need_browser()
    started = LabServer(tmp_path, app="lab", config=CONFIG).start()
    started.script(TRAIN)
    yield started
    started.stop()


@pytest.fixture
def lab(chromium: Any, server: LabServer) -> Iterator[LabPage]:
    page = LabPage(chromium, server)
    yield page
    page.close()


def test_first_submit_from_an_empty_panel_to_a_plotted_metric(
    chromium: Any, new_server: LabServer
) -> None:
    lab = LabPage(chromium, new_server)
    page = lab.open().page
    page.get_by_text("Run your code on the cluster").wait_for()
    lab.shot("empty")
    page.get_by_role("button", name="Run on cluster…").click()
    page.get_by_label("What to run").fill("project/train.py")
    page.get_by_label("Arguments").fill("--lr 3e-4")
    preview = page.get_by_role("region", name="What will be sent")
    preview.get_by_text("new, in 1 layer").wait_for()
    preview.get_by_text("%j2c submit train.py -- --lr 3e-4").wait_for()
    page.get_by_label("Profile").select_option("1 × A100, 4 h")
    assert page.get_by_label("Memory").input_value() == "4G"
    page.get_by_text("--gpus 1").wait_for()
    lab.shot("form")
    page.get_by_label("Profile").select_option("")
    page.get_by_role("button", name="Run", exact=True).click()
    # The log opens by itself, and the run is in the panel.
    page.locator(".j2c-LogViewer .xterm-rows").wait_for()
    lab.row("train").wait_for()
    page.locator('.j2c-Plot[data-metric="loss"] path.j2c-Plot-line').wait_for()
    page.locator('.j2c-LogBar-state:has-text("Succeeded")').wait_for(timeout=60_000)
    page.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget.content.text.includes('finished')"
    )
    text = lab.log_text()
    # What is plotted is not shown twice.
    assert "j2c-metrics" not in text
    assert "training with ['--lr', '3e-4']" in text
    assert text.count("epoch 24") == 1
    assert "epoch 24  100 % |####################|" in text
    assert page.locator('.j2c-Plot[data-metric="accuracy"]').is_visible()
    assert lab.row("train").get_attribute("data-state") == "succeeded"
    page.wait_for_timeout(200)
    page.locator(".Toastify__toast").first.get_by_role("button", name="Open log").wait_for()
    for close in page.get_by_label("Hide notification").all():
        close.click()
    lab.shot("log")
    assert lab.violations(".j2c-LogViewer") == []
    assert lab.violations("#j2c-lab-panel") == []
    lab.close()


def test_everything_goes_by_keyboard(lab: LabPage) -> None:
    page = lab.open().page
    lab.run_command("j2c-lab:submit")
    page.get_by_label("What to run").wait_for()
    page.wait_for_function("() => document.activeElement.placeholder === 'train.py'")
    page.keyboard.type("project/train.py")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type("by keyboard")
    page.keyboard.press("Control+Enter")
    page.locator(".j2c-LogViewer .xterm-rows").wait_for()
    row = page.locator(".j2c-Run-open").first
    row.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.className") == "j2c-IconButton"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    menu = page.locator(".lm-Menu")
    menu.wait_for()
    assert "Copy as %j2c line" in menu.inner_text()
    page.keyboard.press("Escape")


def test_a_field_that_is_wrong_says_so_and_nothing_is_sent(lab: LabPage) -> None:
    page = lab.open().page
    before = len(lab.server.get("j2c/runs")["runs"])
    lab.run_command("j2c-lab:submit", path="project/train.py")
    page.get_by_label("Time limit").fill("soon")
    page.get_by_text("Write it like 2h, 90m or 1h30m.").wait_for()
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_label("Time limit").fill("2h")
    page.get_by_label("What to run").fill("project/none.py")
    page.get_by_role("button", name="Run", exact=True).click()
    page.get_by_role("alert").get_by_text("there is no file project/none.py").first.wait_for()
    assert lab.violations(".j2c-SubmitWidget") == []
    assert len(lab.server.get("j2c/runs")["runs"]) == before


def test_a_failed_run_shows_its_reason_at_once(lab: LabPage) -> None:
    page = lab.open().page
    entry = lab.server.script("import sys; print('no'); sys.exit(7)", "wrong.py")
    lab.server.submit(entry, name="wrong")
    row = lab.row("wrong")
    row.locator('.j2c-mod-failed:has-text("7")').wait_for()
    page.locator(".j2c-Chip", has_text="Failed").click()
    page.wait_for_function("() => document.querySelectorAll('.j2c-Run').length === 1")
    row.locator(".j2c-Run-open").click()
    page.locator(".j2c-LogBar-reason").wait_for()
    assert "7" in page.locator(".j2c-LogBar-reason").inner_text()
    lab.shot("failed")


def test_a_run_is_cancelled_from_the_panel_after_a_question(lab: LabPage) -> None:
    page = lab.open().page
    entry = lab.server.script("import time; print('up', flush=True); time.sleep(600)", "long.py")
    run_id = lab.server.submit(entry, name="endless")
    row = lab.row("endless")
    row.locator('text="Running"').wait_for()
    assert page.locator(".j2c-StatusItem").inner_text().strip() == "1"
    row.hover()
    row.get_by_label("Cancel").click()
    page.get_by_role("button", name="Cancel the run").click()
    row.locator("text=/Cancelled/").first.wait_for()
    assert lab.server.get(f"j2c/runs/{run_id}")["state"] == "cancelled"


def test_a_lost_connection_shows_and_heals_without_a_lost_or_doubled_line(lab: LabPage) -> None:
    page = lab.open().page
    entry = lab.server.script(
        "import time\nfor i in range(500): print('line', i, flush=True); time.sleep(0.02)",
        "steady.py",
    )
    run_id = lab.server.submit(entry, name="steady")
    lab.row("steady").locator('text="Running"').wait_for()
    lab.row("steady").locator(".j2c-Run-open").click()
    page.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget?.content?.text?.includes('line 3')"
    )
    lab.server.stop()
    page.get_by_text("Connection lost. The run goes on").wait_for()
    lab.server.start()
    page.locator('.j2c-LogBar-state:has-text("Succeeded")').wait_for(timeout=60_000)
    page.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget.content.text.includes('line 499')"
    )
    assert lab.log_text().splitlines() == [f"line {i}" for i in range(500)]
    assert lab.server.get(f"j2c/runs/{run_id}")["state"] == "succeeded"


def test_a_long_log_opens_at_its_end_and_older_parts_come_on_scrolling_up(lab: LabPage) -> None:
    page = lab.open().page
    entry = lab.server.script(
        "for i in range(40000): print(i, 'x' * 50)\nprint('\\x1b[?1049hthe end')", "big.py"
    )
    lab.server.wait(lab.server.submit(entry, name="big"))
    lab.row("big").locator(".j2c-Run-open").click()
    page.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget?.content?.text?.includes('the end')"
    )
    first = int(lab.log_text().split(" ", 1)[0])
    assert first > 25000
    terminal = page.locator(".j2c-LogViewer .xterm-screen")
    for _ in range(40):
        terminal.hover()
        page.mouse.wheel(0, -400_000)
        page.wait_for_timeout(100)
        if lab.log_text().startswith("0 "):
            break
    page.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget.content.text.endsWith('the end')"
    )
    lines = lab.log_text().splitlines()
    assert lines[0] == "0 " + "x" * 50
    assert len(lines) == 40001
    page.get_by_label("Search the log").fill("39999")
    page.locator(".j2c-Search-count", has_text="1/1").wait_for()


def test_every_way_in_leads_to_the_form_with_what_is_meant(lab: LabPage) -> None:
    page = lab.open().page
    notebook = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (lab.server.project / "demo.ipynb").write_text(json.dumps(notebook))
    lab.server.script("print(1)", "plain.py")

    def entry_then_close() -> str:
        field = page.locator(".j2c-SubmitWidget:visible").get_by_label("What to run")
        value = str(field.input_value())
        page.get_by_role("button", name="Close", exact=True).click()
        field.wait_for(state="detached")
        return value

    for name in ("plain.py", "demo.ipynb"):
        lab.run_command("docmanager:open", path=f"project/{name}")
        if name.endswith(".ipynb"):
            page.locator(".jp-Dialog").get_by_role("button", name="No Kernel").click()
        button = page.locator(".j2c-RunButton").locator("visible=true").first
        button.click()
        assert entry_then_close() == f"project/{name}"
    lab.run_command("filebrowser:go-to-path", path="project/plain.py")
    page.locator(".jp-DirListing-item", has_text="plain.py").click(button="right")
    page.locator(".lm-Menu-item", has_text="Run on Cluster…").click()
    assert entry_then_close() == "project/plain.py"
    page.keyboard.press("Control+Shift+C")
    page.locator(".lm-CommandPalette-input").fill("run on cluster")
    page.keyboard.press("Enter")
    entry_then_close()
    lab.run_command("launcher:create")
    page.locator(".jp-LauncherCard:visible", has_text="Run on cluster").click()
    entry_then_close()


def test_what_runs_is_among_the_running_sessions(lab: LabPage) -> None:
    page = lab.open().page
    entry = lab.server.script("import time; time.sleep(600)", "sessions.py")
    run_id = lab.server.submit(entry, name="in sessions")
    lab.row("in sessions").locator('text="Running"').wait_for()
    page.locator('.jp-SideBar [data-id="jp-running-sessions"]').click()
    item = page.locator("#jp-running-sessions").get_by_text("in sessions")
    item.wait_for()
    item.click()
    page.locator(".j2c-LogViewer").wait_for()
    lab.server.call("POST", f"j2c/runs/{run_id}/cancel")


def test_layout_comes_back_after_a_reload(lab: LabPage) -> None:
    page = lab.open().page
    run_id = lab.server.submit("project/train.py", name="restored")
    lab.server.wait(run_id)
    lab.row("restored").locator(".j2c-Run-open").click()
    page.locator(".j2c-LogViewer .xterm-rows").wait_for()
    # Lab saves its layout a moment after it changed.
    page.wait_for_timeout(2500)
    page.reload()
    page.locator(".j2c-LogViewer .xterm-rows").wait_for(timeout=60_000)
    assert page.locator(".lm-TabBar-tabLabel", has_text="restored").is_visible()


def test_five_thousand_runs_are_a_window_and_found_by_filter(
    chromium: Any, new_server: LabServer
) -> None:
    some = new_server.submit("project/train.py", name="pattern")
    new_server.wait(some)
    base = new_server.home / ".local/share/j2c/store/runs/ada"
    document = (base / some / "run.json").read_text()
    for i in range(5000):
        run_id = f"20250101-{i // 60:04d}{i % 60:02d}-{i:06x}"
        folder = base / run_id
        folder.mkdir()
        text = document.replace(some, run_id).replace('"name":"pattern"', f'"name":"old-{i}"')
        (folder / "run.json").write_text(text)
        (folder / "cancel.json").write_text('{"at":1,"by":"ada"}')
    lab = LabPage(chromium, new_server)
    page = lab.open().page
    page.locator(".j2c-Run").first.wait_for()
    assert page.locator(".j2c-Run").count() < 40
    page.locator(".j2c-List").focus()
    page.get_by_label("Filter runs").fill("old-17")
    page.wait_for_function(
        "() => [...document.querySelectorAll('.j2c-Run-name')]"
        ".every(name => name.textContent.includes('old-17'))",
        timeout=60_000,
    )
    page.get_by_label("Filter runs").fill("")
    page.locator(".j2c-Chip", has_text="All 5001").wait_for(timeout=60_000)
    lab.close()


def test_russian_and_dark(chromium: Any, new_server: LabServer) -> None:
    server = new_server
    pytest.importorskip("jupyterlab_language_pack_ru_RU", reason="needs the extra test-lab")
    server.setting("@jupyterlab/translation-extension", "plugin", locale="ru_RU")
    server.setting("@jupyterlab/apputils-extension", "themes", theme="JupyterLab Dark")
    server.wait(server.submit("project/train.py"))
    lab = LabPage(chromium, server)
    page = lab.open().page
    page.get_by_role("heading", name="Запуски на кластере").wait_for()
    lab.row("train").locator(".j2c-Run-open").click()
    page.locator('.j2c-LogBar-state:has-text("Успешно")').wait_for()
    page.locator(".j2c-Plot").first.wait_for()
    page.wait_for_timeout(500)
    lab.shot("dark-russian")
    assert lab.violations(".j2c-LogViewer") == []
    assert lab.violations("#j2c-lab-panel") == []
    lab.run_command("j2c-lab:submit", path="project/train.py")
    page.get_by_text("Что будет отправлено").first.wait_for()
    page.get_by_text("уже там, в 1 слое").wait_for()
    lab.shot("form-dark-russian")
    assert lab.violations(".j2c-SubmitWidget") == []
    lab.close()


def test_the_browser_gets_little_until_a_log_is_opened(server: LabServer) -> None:
    from tests.real.lab_browser import ROOT

    static = ROOT / "j2c_lab/labextension/static"
    sizes = {path.name: path.stat().st_size for path in static.glob("*.js")}
    terminal = max(sizes.values())
    assert sum(sizes.values()) - terminal < 250_000
