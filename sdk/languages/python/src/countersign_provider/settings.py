"""Settings are a dataclass: its fields are the JSON Schema, the documentation and the check."""

import dataclasses
import types
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from . import values as texts
from .errors import Invalid, clean_text

_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_SIMPLE = {str: "string", bool: "boolean", int: "integer", float: "number"}
_PYTHON = {"string": str, "boolean": bool, "integer": int, "number": (int, float), "array": list, "object": dict}
_MAX_FAULTS = 50


def setting(
    description: str,
    *,
    default: Any = dataclasses.MISSING,
    secret: bool = False,
    address: Literal["host:port", "path", "url", "text"] | None = None,
    schemes: Sequence[str] = ("https",),
) -> Any:
    """A field of the settings. Without a default it is required; the value of a secret one is
    never printed. address marks a str that is the CA's address: an operator writes it as
    NAME://ADDRESS. A field's type is str, int, float, bool, a Literal of strings, timedelta (written
    as 90s, 30m or 1h30m), Url (with one of these schemes), File, a dataclass of such fields, or a
    list of these."""
    metadata = {"description": description, "secret": secret, "address": address, "schemes": schemes}
    if isinstance(default, (list, dict)):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def schema_of(settings: type) -> dict[str, Any]:
    """Returns the JSON Schema of a dataclass of settings."""
    return {"$schema": _DRAFT} | _object(settings)


def _object(of: type) -> dict[str, Any]:
    if not dataclasses.is_dataclass(of):
        raise TypeError(f"{of!r} cannot be settings: want a dataclass")
    hints = get_type_hints(of)
    properties, required = {}, []
    for field in dataclasses.fields(of):
        properties[field.name] = _property(field, hints[field.name])
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            required.append(field.name)
    return {"type": "object", "additionalProperties": False, "properties": properties, "required": required}


def _property(field: dataclasses.Field, hint: Any) -> dict[str, Any]:
    schema = _type(hint, field.metadata.get("schemes", ("https",)))
    schema["description"] = field.metadata.get("description", field.name)
    if field.default_factory is not dataclasses.MISSING:
        schema["default"] = field.default_factory()
    elif field.default is not dataclasses.MISSING and field.default is not None:
        schema["default"] = texts.written(field.default)
    if field.metadata.get("secret"):
        schema |= {"writeOnly": True, "x-secret": True}
    if field.metadata.get("address"):
        schema["x-countersign-address"] = field.metadata["address"]
    return schema


def _type(hint: Any, schemes: Sequence[str] = ("https",)) -> dict[str, Any]:
    origin, args = get_origin(hint), get_args(hint)
    if written := texts.schema_of(hint, schemes):
        return written
    if hint in _SIMPLE:
        return {"type": _SIMPLE[hint]}
    if origin is Literal:
        return {"type": "string", "enum": list(args)}
    if origin is list:
        return {"type": "array", "items": _type(args[0], schemes)}
    if origin in (Union, types.UnionType) and type(None) in args and len(args) == 2:
        return _type(next(a for a in args if a is not type(None)), schemes)
    return _object(hint)


def check(schema: dict[str, Any], value: Any, name: str = "", pointer: str = "") -> list[Invalid]:
    """Returns all that the schema finds wrong, 50 faults at most."""
    where = f"the setting {clean_text(name)}" if name else "the settings"
    kind, wanted = schema["type"], _PYTHON[schema["type"]]
    if not isinstance(value, wanted) or isinstance(value, bool) is not (kind == "boolean"):
        return [Invalid(f"{where}{_is(schema, value)}: want {_article(kind)}", pointer)]
    if value not in schema.get("enum", [value]):
        return [Invalid(f"{where}{_is(schema, value)}: want one of {', '.join(schema['enum'])}", pointer)]
    if takes := texts.wanted(schema, value):
        shown = "" if "@" in value else _is(schema, value)  # a password may be before the @
        return [Invalid(f"{where}{shown}: want {takes}", pointer)]
    faults: list[Invalid] = []
    if kind == "array":
        for i, item in enumerate(value):
            faults += check(schema["items"] | _secrecy(schema), item, f"{name}[{i}]", f"{pointer}/{i}")
    elif kind == "object":
        faults = _check_object(schema, value, name, pointer)
    return faults[:_MAX_FAULTS]


def _check_object(schema: dict[str, Any], value: dict[str, Any], name: str, pointer: str) -> list[Invalid]:
    known, faults, prefix = schema["properties"], [], name and name + "."
    for key, item in value.items():
        at = f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"
        if key in known:
            faults += check(known[key] | _secrecy(schema), item, prefix + key, at)
        else:
            faults.append(Invalid(f"the setting {clean_text(prefix + key)} is unknown: there are {', '.join(known)}", at))
    for key in schema["required"]:
        if key not in value:
            faults.append(Invalid(f"the setting {prefix + key} is missing: {known[key]['description']}", f"{pointer}/{key}"))
    return faults


def _secrecy(schema: dict[str, Any]) -> dict[str, Any]:
    return {"writeOnly": True} if schema.get("writeOnly") else {}


def _is(schema: dict[str, Any], value: Any) -> str:
    if schema.get("writeOnly") or isinstance(value, (list, dict)):
        return ""
    return f' is "{clean_text(value)}"' if isinstance(value, str) else f" is {value}"


def _article(kind: str) -> str:
    return ("an " if kind[0] in "aio" else "a ") + kind


def build(settings: type, values: dict[str, Any]) -> Any:
    """Makes the dataclass of values that check has passed."""
    hints = get_type_hints(settings)
    return settings(**{key: _convert(hints[key], value) for key, value in values.items()})


def _convert(hint: Any, value: Any) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin is list:
        return [_convert(args[0], item) for item in value]
    if origin in (Union, types.UnionType):
        return _convert(next(a for a in args if a is not type(None)), value)
    if dataclasses.is_dataclass(hint):
        return build(hint, value)
    if hint in (timedelta, texts.Url, texts.File):
        return texts.read(hint, value)
    return hint(value) if hint is float else value
