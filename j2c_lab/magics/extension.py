"""The magics `%j2c` and `%%j2c`."""

from __future__ import annotations

import codecs
import os
import shutil
import sys
import time
from collections.abc import Mapping
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import (
    Magics,
    line_cell_magic,
    magics_class,
    needs_local_scope,
    no_var_expand,
)

from j2c_lab.magics import command as commands
from j2c_lab.magics.display import open_display
from j2c_lab.magics.expand import ExpansionError, split_line
from j2c_lab.magics.process import CommandProcess, EventLines
from j2c_lab.magics.result import MagicRun, RunDetachedError, RunFailedError, from_view
from j2c_lab.magics.view import RunView

#: Verbs that are shown live, from their events; the others print their text.
_LIVE = frozenset({"submit", "resume", "logs", "pack", "fetch"})
#: Options that ask for the command's own text.
_PLAIN = frozenset({"--json", "--dry-run", "--help", "-h"})


@magics_class
class J2CMagics(Magics):
    """Run experiments on a cluster: `%j2c VERB …` is the command `j2c VERB …`."""

    @no_var_expand
    @needs_local_scope
    @line_cell_magic
    def j2c(
        self, line: str, cell: str | None = None, local_ns: Mapping[str, Any] | None = None
    ) -> MagicRun | str | None:
        """Run the `j2c` command, with this kernel's environment and directory.

        ::

            %load_ext j2c_lab
            run = %j2c submit train.py --gpus 2 -- --lr {lr}
            %j2c list
            %j2c fetch {run}

            %%j2c submit --gpus 1
            print("this cell is the script")

        `{expr}` and `$name` are replaced where all their names exist; lists give several
        arguments. A run is returned, or raised when it fails; `%j2c pack` returns the bundle's
        digest. Interrupting the kernel detaches: the run goes on. `%j2c --help` lists the
        verbs.
        """
        shell: Any = self.shell
        namespace = {**shell.user_ns, **(local_ns or {})}
        try:
            arguments = split_line(line, namespace) or ["--help"]
        except ExpansionError as error:
            raise UsageError(str(error)) from None
        source = None if cell is None else _script(arguments, cell)
        try:
            command = commands.find_command(os.environ)
        except commands.CommandNotFoundError as error:
            raise UsageError(str(error)) from None
        return _call(shell, command, arguments, source)


def load(ipython: Any) -> None:
    """Register the magics in an IPython shell."""
    ipython.register_magics(J2CMagics)


def _script(arguments: list[str], cell: str) -> bytes:
    """Return the cell as a script, if it is one that can be run."""
    if arguments[0] != "submit":
        raise UsageError("only %%j2c submit takes a cell; write other verbs as %j2c")
    try:
        compile(cell, "<cell>", "exec", dont_inherit=True)
    except SyntaxError as error:
        hint = (
            "; a submitted cell is a plain Python script, without % and ! lines"
            if any(row.lstrip().startswith(("%", "!")) for row in cell.splitlines())
            else ""
        )
        raise UsageError(f"line {error.lineno} of the cell: {error.msg}{hint}") from None
    except ValueError as error:
        raise UsageError(f"the cell is no Python script: {error}") from None
    return cell.encode()


def _call(
    shell: Any, command: commands.Command, arguments: list[str], source: bytes | None
) -> MagicRun | str | None:
    verb, *rest = arguments
    options = rest[: rest.index("--")] if "--" in rest else rest
    live = verb in _LIVE and not _PLAIN.intersection(options)
    added = ["--json"] if live else []
    if source is not None:
        added.append("-")
        if not any(option.split("=")[0] == "--name" for option in options):
            added += commands.notebook_name(os.environ)
    argv = [*command.argv, verb, *added, *rest]
    env = commands.kernel_environment(os.environ, command)
    env.setdefault("COLUMNS", str(shutil.get_terminal_size((100, 24)).columns))
    try:
        process = CommandProcess(argv, env, os.getcwd(), source)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot start {command.argv[0]}: {error}") from None
    if live:
        return _follow(shell, verb, process)
    _print(verb, process)
    return None


def _follow(shell: Any, verb: str, process: CommandProcess) -> MagicRun | str | None:
    view = RunView(verb, time.time())
    display = open_display(view, shell)
    lines = EventLines()

    def on_output(data: bytes) -> None:
        for event in lines.feed(data):
            view.feed(event, time.time())
            display.event(event)

    code = process.run(on_output, display.tick)
    if code and not view.error and not view.result and not process.interrupted and process.errors:
        # It died before it could say so in an event: what it wrote is all there is.
        last = process.errors.splitlines()[-1]
        view.feed({"event": "error", "message": last}, time.time())
    if process.interrupted and not view.result and view.detached is None:
        view.detached = f"come back with %j2c logs {view.run} -f" if view.run else ""
    view.end(code, time.time())
    display.end()
    return _finish(view, interrupted=process.interrupted)


def _finish(view: RunView, *, interrupted: bool) -> MagicRun | str | None:
    run = from_view(view)
    if interrupted and not view.result:
        raise RunDetachedError(run.outcome, run)
    if run.exit_code:
        subject = f"run {run.id} " if run.id and view.result else ""
        raise RunFailedError(subject + run.outcome, run)
    if view.verb in ("pack", "fetch"):
        return view.bundle or None
    return run


def _print(verb: str, process: CommandProcess) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def on_output(data: bytes) -> None:
        sys.stdout.write(decoder.decode(data))

    code = process.run(on_output, sys.stdout.flush)
    sys.stdout.flush()
    if code == 0:
        if process.errors:
            print(process.errors, file=sys.stderr)
        return
    if process.interrupted:
        message = f"j2c {verb} was interrupted"
        raise RunDetachedError(message, MagicRun("", "", "", message, code, 0.0))
    *before, last = process.errors.splitlines() or [f"j2c {verb} ended with exit code {code}"]
    if before:
        print("\n".join(before), file=sys.stderr)
    if code == 2:
        raise UsageError(last)
    raise RunFailedError(last, MagicRun("", "", "", last, code, 0.0))
