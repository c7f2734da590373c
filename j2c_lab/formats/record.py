"""Documents that cross machines: frozen dataclasses to and from JSON.

Parsed and checked at the border, trusted inside. A field that this version does not know is kept
in `extra` and written out again, so an older j2c in between loses nothing.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from typing import Any, TypeVar

from j2c_lab.errors import FormatError

R = TypeVar("R", bound="Record")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """Base of all documents. Fields are plain JSON types, records, or lists and dicts of them."""

    extra: dict[str, Any] = dataclasses.field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the document as JSON values, unknown fields included."""
        values = {
            field.name: _dump(getattr(self, field.name))
            for field in dataclasses.fields(self)
            if field.name != "extra"
        }
        return {**self.extra, **values}

    def to_json(self) -> bytes:
        """Return the canonical bytes: sorted keys, no spaces, ASCII, one newline at the end."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return text.encode("ascii") + b"\n"

    @classmethod
    def from_dict(cls: type[R], values: Any) -> R:
        """Make a document from JSON values.

        Raises
        ------
        FormatError
            A field is missing or of another type, or the format is newer than this j2c knows.
        """
        if not isinstance(values, dict):
            raise FormatError(f"{cls.__name__} is not a JSON object")
        known: dict[str, Any] = {}
        hints = _hints(cls)
        for field in dataclasses.fields(cls):
            if field.name == "extra":
                continue
            if field.name in values:
                where = f"{cls.__name__}.{field.name}"
                known[field.name] = _load(hints[field.name], values[field.name], where)
            elif (
                field.default is dataclasses.MISSING
                and field.default_factory is dataclasses.MISSING
            ):
                raise FormatError(f"{cls.__name__} has no field {field.name!r}")
        newest = getattr(cls, "FORMAT", None)
        if newest is not None and known.get("format", newest) > newest:
            raise FormatError(
                f"{cls.__name__} has format {known['format']}, this j2c knows up to {newest}",
                "install a newer j2c-lab here",
            )
        known["extra"] = {name: v for name, v in values.items() if name not in hints}
        return cls(**known)

    @classmethod
    def from_json(cls: type[R], data: bytes) -> R:
        """Make a document from its bytes; raises `FormatError` as `from_dict`."""
        try:
            values = json.loads(data)
        except ValueError as error:
            raise FormatError(f"{cls.__name__} is not JSON: {error}") from None
        return cls.from_dict(values)


_hints_of: dict[type, dict[str, Any]] = {}


def _hints(cls: type) -> dict[str, Any]:
    if cls not in _hints_of:
        _hints_of[cls] = typing.get_type_hints(cls)
    return _hints_of[cls]


def _dump(value: Any) -> Any:
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, (list, tuple)):
        return [_dump(item) for item in value]
    if isinstance(value, dict):
        return {key: _dump(item) for key, item in value.items()}
    return value


def _load(hint: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(hint)
    arguments = typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        (hint,) = [a for a in arguments if a is not type(None)]
        return _load(hint, value, where)
    if origin is list and isinstance(value, list):
        return [_load(arguments[0], item, where) for item in value]
    if origin is dict and isinstance(value, dict):
        return {key: _load(arguments[1], item, where) for key, item in value.items()}
    # On Python 3.10 `list[str]` is an instance of `type` too.
    if origin is None and isinstance(hint, type):
        if issubclass(hint, Record) and isinstance(value, dict):
            return hint.from_dict(value)
        if hint is float and isinstance(value, int) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
            return value
    expected = getattr(hint, "__name__", str(hint))
    raise FormatError(f"{where} is {type(value).__name__}, not {expected}")
