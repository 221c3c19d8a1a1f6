"""Types of settings that are written as text and read as something else."""

import asyncio
import os
import re
import stat
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from .errors import Unavailable

_MAX_FILE = 1 << 20
_EVERY = 1.0  # seconds
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600}
_PARTS = re.compile("([0-9.]+)(ns|us|µs|ms|s|m|h)")
_TAKES = {"uri": "a URL", "go-duration": "a duration, 0 or more with a unit,", "path": "the path of a file"}


class Url(str):
    """A URL without user, query and fragment, as it is written."""

    __slots__ = ()

    def at(self, path: str) -> str:
        """Returns the URL with more of a path behind its own."""
        return self.removesuffix("/") + path


class File(str):
    """The path of a file: a regular one of at most 1 MiB."""

    __slots__ = ()

    def read(self) -> bytes:
        """Reads the file, and does not wait at a named pipe. Raises Unavailable."""
        try:
            with open(os.open(self, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
                info = os.fstat(file.fileno())
                if stat.S_ISREG(info.st_mode) and info.st_size <= _MAX_FILE:
                    return file.read(_MAX_FILE)
        except OSError as error:
            raise Unavailable(f"failed to read {self}: {error.strerror}") from None
        raise Unavailable(f"{self} is not a regular file of at most {_MAX_FILE} bytes")

    async def changed(self, content: bytes) -> bytes:
        """Waits until the file has another content than this one, and returns that. It looks each
        second, and passes over failures, as while the file is replaced."""
        while True:
            try:
                if (now := self.read()) != content:
                    return now
            except Unavailable:
                pass
            await asyncio.sleep(_EVERY)


def schema_of(hint: Any, schemes: Sequence[str]) -> dict[str, Any] | None:
    """Returns the schema that Go's library writes for the same setting, or None for another type."""
    if hint is Url:
        return {"type": "string", "format": "uri", "pattern": f"^({'|'.join(schemes)})://[^/?#@]+(/[^?#]*)?$",
                "examples": [f"{schemes[0]}://ca.example.com:8443/path"]}
    if hint is timedelta:
        return {"type": "string", "format": "go-duration", "pattern": r"^([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+$|^0$",
                "examples": ["90s", "24h"]}
    if hint is File:
        return {"type": "string", "format": "path", "minLength": 1, "examples": ["/etc/ca/file"]}
    return None


def wanted(schema: dict[str, Any], value: str) -> str:
    """Returns what a value has to be, or an empty text if it is that."""
    if schema.get("format") not in _TAKES:
        return ""
    fits = re.fullmatch(schema["pattern"], value) if "pattern" in schema else value and "\0" not in value
    return "" if fits else f"{_TAKES[schema['format']]} such as {' or '.join(schema['examples'])}"


def written(value: Any) -> Any:
    """Returns a default as a configuration has it."""
    return f"{value.total_seconds():g}s" if isinstance(value, timedelta) else value


def read(hint: Any, value: str) -> Any:
    """Returns what an author gets."""
    if hint is timedelta:
        return timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in _PARTS.findall(value)))
    return hint(value)
