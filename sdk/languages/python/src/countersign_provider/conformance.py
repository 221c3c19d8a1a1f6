"""Runs the conformance suite on a provider's program."""

import json
import os
import pathlib
import subprocess
import tempfile
from typing import Any


def conformance(program: str | os.PathLike[str], kit: str | os.PathLike[str] | None = None,
                settings: dict[str, Any] | None = None) -> str:
    """Runs the conformance suite, `countersign provider test`, and returns what it prints. Raises
    AssertionError with that if a check fails, or if countersign is not on the PATH. kit is the path
    of a kit file; settings replace its."""
    command = ["countersign", "provider", "test", os.fspath(program), "--quiet"]
    if kit:
        command += ["--kit", os.fspath(kit)]
    with tempfile.TemporaryDirectory() as folder:  # of mode 0700
        if settings is not None:
            file = pathlib.Path(folder, "settings.json")
            file.write_text(json.dumps(settings))
            command += ["--settings", str(file)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise AssertionError("failed to run countersign: put it in a folder of the PATH") from None
    if done.returncode:
        raise AssertionError(f"the conformance suite failed:\n{done.stdout}{done.stderr}")
    return done.stdout
