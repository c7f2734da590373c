"""Parses the command line, runs the verb, and turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import errno
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import NoReturn

from j2c_lab import errors
from j2c_lab.errors import J2CError, UsageError

_DESCRIPTION = """\
Move a running experiment to the compute cluster: send only what it lacks, start it, follow it,
and bring the results back."""

_EPILOG = """\
RUN is a run's id, the beginning or end of one, its name, or `last`.

  j2c submit train.py --gpus 2 -- --lr 3e-4     pack, send, start, follow to the end
  j2c submit -m package.train --detach          start only; j2c logs -f last comes back
  j2c fetch last -o results                     bring the outputs

Settings: options, then [tool.j2c] in pyproject.toml, then J2C_STORE and the like, then c.J2C in
the Jupyter config. Exit code: 0; the run's own where it is followed (128 + signal); 2 for wrong
usage; 125 when j2c itself could not do it."""


#: Errors of the machine and not of j2c, wherever they come from.
_OF_THE_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE)

#: In the order of `j2c --help`.
_MODULES = {
    "submit": "submit_verb",
    "resume": "submit_verb",
    "list": "run_verbs",
    "status": "run_verbs",
    "logs": "run_verbs",
    "cancel": "run_verbs",
    "fetch": "run_verbs",
    "pack": "pack_verbs",
    "store": "store_verbs",
    "gc": "store_verbs",
    "rm": "store_verbs",
    "base": "cluster_verbs",
    "unpack": "cluster_verbs",
    "completion": "cluster_verbs",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    _prepare_streams()
    _leave_pythonpath()
    if arguments[:1] == ["unpack"]:
        # The cluster's command must start fast: nothing of the other verbs is loaded.
        from j2c_lab.unpack.main import main as unpack

        return int(unpack(arguments[1:]) or 0)
    own, rest = _split(arguments)
    json_wanted = "--json" in own
    try:
        if not own:
            make_parser().print_help(sys.stderr)
            return 2
        _check_verb(own[0])
        _check_directory()
        namespace, unknown = make_parser(own[0] if own else None).parse_known_args(own)
        if unknown:
            remedy = f"j2c {namespace.verb} --help shows what there is"
            if namespace.verb == "submit":
                remedy = "put the script's own arguments after --"
            if near := _near(unknown[0], re.findall(r"--[a-z-]+", namespace.parser.format_help())):
                remedy = f"did you mean {near}? {remedy[0].upper()}{remedy[1:]}"
            raise UsageError(f"unrecognized arguments: {' '.join(unknown)}", remedy)
        if rest is not None and namespace.verb != "submit":
            raise UsageError(f"j2c {namespace.verb} takes nothing after --")
        namespace.args = rest or []
        run: Callable[[argparse.Namespace], int] = namespace.run
        return run(namespace)
    except J2CError as error:
        if "--debug" in own:
            raise
        return _report(error, json_wanted)
    except BrokenPipeError:
        return _closed_pipe()
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if "--debug" in own:
            raise
        if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
            what = error.filename or "standard output, or another open file"
            return _report(J2CError(f"{what}: {error.strerror}"), json_wanted)
        internal = J2CError(
            f"j2c failed: {type(error).__name__}: {error}",
            "this is a bug: repeat the command with --debug and report what it shows",
        )
        return _report(internal, json_wanted)


def make_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser of the whole command, or one that knows `only` this verb.

    A call loads what its own verb needs and no more: that is half of the command's start.
    """
    parser = _Parser(
        prog="j2c",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, help="show the version and exit")
    verbs = parser.add_subparsers(
        title="verbs", dest="verb", metavar="VERB", required=True, parser_class=_Parser
    )
    modules = {_MODULES[only]} if only in _MODULES else dict.fromkeys(_MODULES.values())
    for name in modules:
        import_module(f"j2c_lab.cli.{name}").add(verbs)
    return parser


def _prepare_streams() -> None:
    # Started with a closed stream, Python has none; what is written there goes nowhere.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        # Names of files and runs may hold what the terminal's encoding, or any, cannot say.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _leave_pythonpath() -> None:
    """Do not import from `PYTHONPATH`: it is for the user's Python, which may be another one.

    `module load` on a cluster, for example, sets it to packages compiled for its own Python.
    """
    given = os.environ.get("PYTHONPATH")
    if not given:
        return
    own = (sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(errors.__file__)))
    left = {
        os.path.abspath(entry)
        for entry in given.split(os.pathsep)
        if entry and not any(f"{os.path.abspath(entry)}/".startswith(f"{keep}/") for keep in own)
    }
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") not in left]


def _check_directory() -> None:
    try:
        os.getcwd()
    except OSError:
        raise UsageError(
            "the current directory is not there any more", "change to another one"
        ) from None


def _check_verb(name: str) -> None:
    if name not in _MODULES and not name.startswith("-"):
        near = _near(name, _MODULES)
        remedy = f"did you mean j2c {near}?" if near else "j2c --help shows the verbs"
        raise UsageError(f"there is no verb {name!r}", remedy)


def _near(word: str, known: Iterable[str]) -> str | None:
    import difflib

    return next(iter(difflib.get_close_matches(word, list(known), 1, 0.75)), None)


def _split(arguments: list[str]) -> tuple[list[str], list[str] | None]:
    """Split at the first `--`: what follows is the run's own, byte for byte."""
    if "--" not in arguments:
        return arguments, None
    place = arguments.index("--")
    return arguments[:place], arguments[place + 1 :]


def _report(error: J2CError, json_wanted: bool) -> int:
    from j2c_lab.cli.output import open_output

    try:
        open_output(json_wanted).error(error)
    except BrokenPipeError:
        return _closed_pipe()
    return error.exit_code


def _closed_pipe() -> int:
    # What is still buffered has no reader; without this the interpreter would complain at exit.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    return 141


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, f"{self.prog} --help shows what there is")


class _Version(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str, help: str | None = None) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help=help)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"j2c-lab {version('j2c-lab')}")
        parser.exit()
