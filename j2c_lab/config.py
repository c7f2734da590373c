"""Settings: flags, then [tool.j2c], then the environment, then Jupyter's config, then defaults.

The Jupyter config (`c.J2C.store = "…"` in `jupyter_config.py`, `jupyter_server_config.py` or
`j2c_config.py`, or their `.json`) is read with traitlets, which is imported only when one of those
files mentions J2C: most never do, and the import would be half of the command's start.
"""

from __future__ import annotations

import dataclasses
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from j2c_lab.errors import UsageError
from j2c_lab.homes import user_directory

_CONFIG_NAMES = ("jupyter_config", "jupyter_server_config", "jupyter_lab_config", "j2c_config")


class Setting:
    """One setting: its type, its default, and what it means."""

    def __init__(self, kind: type, default: Any, help: str, variable: str = "") -> None:
        self.kind = kind
        self.default = default
        self.help = help
        self.variable = variable


#: Everything that can be set; names as in `[tool.j2c]`, with `_` for `-`.
SETTINGS: dict[str, Setting] = {
    "store": Setting(str, "", "where layers and runs live: a directory or a URL", "J2C_STORE"),
    "user": Setting(str, "", "whose runs these are in the store", "J2C_USER"),
    "scheduler": Setting(str, "local", "what starts the jobs", "J2C_SCHEDULER"),
    "venv": Setting(str, None, "environment to pack (a prefix)", "J2C_VENV"),
    "base": Setting(str, "", "file with the base image's inventory (j2c base -o)", "J2C_BASE"),
    "name": Setting(str, None, "the run's name"),
    "gpus": Setting(int, 0, "GPUs"),
    "cpus": Setting(int, None, "CPUs"),
    "memory": Setting(str, None, "memory for each node: 16G"),
    "nodes": Setting(int, 1, "nodes"),
    "time": Setting(str, None, "time limit: 2h"),
    "image": Setting(str, None, "base image", "J2C_IMAGE"),
    "queue": Setting(str, None, "queue or partition", "J2C_QUEUE"),
    "env": Setting(dict, {}, "environment variables of the run"),
    "inputs": Setting(dict, {}, "inputs: NAME to an s3:// or http(s):// URL, or a path"),
    "paths": Setting(dict, {}, "from directories of the lab to where the cluster has them"),
    "outputs": Setting(list, [], "globs of what is brought back"),
    "exclude": Setting(list, [], "gitignore rules of what is not packed"),
    "grace": Setting(float, 30.0, "seconds between TERM and KILL"),
    "save_every": Setting(str, None, "time between saves of the outputs on the way: 10m"),
    "split_streams": Setting(bool, False, "keep stdout and stderr apart"),
    "schedulers": Setting(dict, {}, "from a scheduler's name to its own options, by name"),
}

#: What a value has to be, in words.
_KINDS = {
    str: "a text in quotes",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list of texts",
    dict: "a table",
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """What holds for one command."""

    values: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None

    def for_request(self) -> dict[str, Any]:
        """Return what of them makes a request: the keywords of `runs.ask.make_request`.

        Raises
        ------
        UsageError
            The memory, the time or a number is none that can be asked for.
        """
        from j2c_lab.formats.run import Resources, parse_memory, parse_time

        values = self.values
        for name, least in (("gpus", 0), ("cpus", 1), ("nodes", 1)):
            if values[name] is not None and values[name] < least:
                raise UsageError(f"{name} is {values[name]}", f"give {least} or more")
        kept = ("name", "env", "inputs", "paths", "outputs", "scheduler", "image", "queue")
        return {
            **{name: values[name] for name in (*kept, "grace", "split_streams", "exclude")},
            "options": values["schedulers"].get(values["scheduler"], {}),
            "base": os.path.abspath(values["base"]) if values["base"] else "",
            "save_every": float(parse_time(values["save_every"])) if values["save_every"] else 0.0,
            "resources": Resources(
                gpus=values["gpus"],
                cpus=values["cpus"],
                memory=None if values["memory"] is None else parse_memory(values["memory"]),
                nodes=values["nodes"],
                time=None if values["time"] is None else parse_time(values["time"]),
            ),
        }


def load_settings(
    flags: Mapping[str, Any], project: str | None, environ: Mapping[str, str]
) -> Settings:
    """Return the settings that hold.

    Parameters
    ----------
    flags : mapping
        From the command line; None means not given.
    project : str, optional
        Directory whose `pyproject.toml` counts; the nearest upwards from there that has
        `[tool.j2c]`.
    environ : mapping
        The caller's environment.

    Raises
    ------
    UsageError
        A setting is unknown or of another type.
    """
    values = {name: setting.default for name, setting in SETTINGS.items()}
    sources = [
        _jupyter_settings(environ),
        _environment_settings(environ),
        _project_settings(project) if project else {},
        {name: value for name, value in flags.items() if value is not None},
    ]
    for source in sources:
        for name, value in source.items():
            merged = SETTINGS[name].kind is dict
            values[name] = _merged(values[name], value) if merged else value
    values["store"] = values["store"] or _default_store(environ)
    values["user"] = _store_name(values["user"] or _user(environ))
    return Settings(values)


def default_prefix(environ: Mapping[str, str]) -> str:
    """Return the environment that is packed when none is named.

    That of the caller: its virtual environment, its conda environment, else that of the `python`
    on its PATH; j2c's own only when there is nothing else.

    Raises
    ------
    UsageError
        The caller's environment is not there any more: packing another one would run the code
        with other packages than the caller believes.
    """
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        if environ.get(name):
            if not os.path.isdir(environ[name]):
                raise UsageError(
                    f"{name} names {environ[name]}, which is not there",
                    "activate another environment, or name one with --venv",
                )
            return os.path.abspath(environ[name])
    own = os.path.join(sys.prefix, "bin")
    for directory in environ.get("PATH", os.defpath).split(os.pathsep):
        if directory and directory.rstrip("/") != own:
            for name in ("python", "python3"):
                path = os.path.join(directory, name)
                if not os.access(path, os.X_OK):
                    continue
                if os.path.basename(directory.rstrip("/")) != "bin":
                    # A shim, as pyenv's: only the Python behind it knows where it lives.
                    return _ask_prefix(path) or sys.prefix
                # bin/python of a venv is a link out of it: the prefix is where the link is.
                return os.path.dirname(os.path.abspath(directory))
    return sys.prefix


def _ask_prefix(python: str) -> str | None:
    import subprocess

    code = "import sys; sys.stdout.write(sys.prefix)"
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 and os.path.isdir(done.stdout) else None


def _environment_settings(environ: Mapping[str, str]) -> dict[str, Any]:
    found = {}
    for name, setting in SETTINGS.items():
        if setting.variable and environ.get(setting.variable):
            found[name] = environ[setting.variable]
    return found


def _project_settings(start: str) -> dict[str, Any]:
    path = _pyproject(Path(os.path.abspath(start)))
    if path is None:
        return {}
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from None
    return _checked(document.get("tool", {}).get("j2c", {}), f"[tool.j2c] in {path}")


def _pyproject(start: Path) -> Path | None:
    """The nearest `pyproject.toml` upwards that has our table; told by its bytes, for speed."""
    for directory in (start, *start.parents):
        path = directory / "pyproject.toml"
        try:
            content = path.read_bytes()
        except OSError:
            continue
        if re.search(rb"^\s*\[\s*tool\s*\.\s*j2c\b", content, re.MULTILINE):
            return path
    return None


def _jupyter_settings(environ: Mapping[str, str]) -> dict[str, Any]:
    files = [path for path in _jupyter_files(environ) if b"J2C" in _bytes(path)]
    if not files:
        return {}
    from traitlets.config.loader import (
        JSONFileConfigLoader,
        PyFileConfigLoader,
    )

    found: dict[str, Any] = {}
    for path in files:
        loader = JSONFileConfigLoader if path.suffix == ".json" else PyFileConfigLoader
        try:
            config = loader(path.name, path=str(path.parent)).load_config()
        except Exception as error:
            raise UsageError(f"the Jupyter config {path} cannot be read: {error}") from error
        section = config.get("J2C", {})
        found.update(_checked(dict(section.items()), f"c.J2C in {path}"))
    return found


def _jupyter_files(environ: Mapping[str, str]) -> list[Path]:
    """Config files from the least to the most important; the directories are Jupyter's own."""
    home = environ.get("HOME") or os.path.expanduser("~")
    directories = [
        *(["/etc/jupyter", "/usr/local/etc/jupyter"]),
        os.path.join(sys.prefix, "etc", "jupyter"),
        *reversed([d for d in environ.get("JUPYTER_CONFIG_PATH", "").split(os.pathsep) if d]),
        environ.get("JUPYTER_CONFIG_DIR") or os.path.join(home, ".jupyter"),
    ]
    names = [f"{name}{suffix}" for name in _CONFIG_NAMES for suffix in (".json", ".py")]
    return [
        path
        for directory in dict.fromkeys(directories)
        for path in (Path(directory, name) for name in names)
        # Of `Path`, it raises where a directory above may not be searched.
        if os.path.isfile(path)
    ]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _checked(values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the settings of a document, if it holds nothing else."""
    found = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        setting = SETTINGS.get(name)
        if setting is None:
            import difflib

            near = difflib.get_close_matches(name, SETTINGS, 1)
            shown = ", ".join(sorted(name.replace("_", "-") for name in SETTINGS))
            raise UsageError(
                f"{where} has an unknown setting {key!r}",
                f"did you mean {near[0].replace('_', '-')!r}?" if near else f"known are {shown}",
            )
        if name in ("memory", "time", "save_every") and isinstance(value, int):
            value = str(value)
        if setting.kind is float and isinstance(value, int):
            value = float(value)
        right = isinstance(value, setting.kind) and (
            setting.kind is bool or not isinstance(value, bool)
        )
        if setting.kind is list:
            right = right and all(isinstance(item, str) for item in value)
        if setting.kind is dict and right:
            value = _texts(value)
            nested = any(isinstance(item, dict) for item in value.values())
            right = nested == (name == "schedulers") or not value
        if not right:
            raise UsageError(
                f"{where}: {key} is {value!r}, and not {_KINDS[setting.kind]}",
                f"{key} means: {setting.help}",
            )
        found[name] = value
    return found


def _texts(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table with all values as text, those of tables in it too."""
    return {
        key: _texts(value) if isinstance(value, Mapping) else _text(value)
        for key, value in values.items()
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return both tables as one, tables in them too; `above` wins."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            value = _merged(old, value)
        merged[key] = value
    return merged


def _default_store(environ: Mapping[str, str]) -> str:
    return os.path.join(user_directory("XDG_DATA_HOME", environ), "j2c", "store")


def _user(environ: Mapping[str, str]) -> str:
    # In a hub all users are the same to the system (jovyan): the hub's own name tells them apart.
    if environ.get("JUPYTERHUB_USER"):
        return environ["JUPYTERHUB_USER"]
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _store_name(user: str) -> str:
    """Return the user's name as a store key can hold it; different names stay different."""
    safe = re.sub(r"[^A-Za-z0-9._@-]", lambda match: f"+{ord(match[0]):x}+", user)
    return safe if re.match(r"[A-Za-z0-9_]", safe) else f"_{safe}"
