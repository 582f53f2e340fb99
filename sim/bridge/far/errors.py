"""robolearn's errors where it is installed, and stand-ins of the same form where it is not."""

from __future__ import annotations

import json
from typing import Any

try:
    from robolearn.core import BadInput, NonFinite, RobolearnError  # type: ignore[assignment]
except ImportError:

    class RobolearnError(Exception):
        """Something went wrong while a world worked."""

    class NonFinite(RobolearnError):
        """A number that must be finite is NaN or infinite."""

    class BadInput(RobolearnError):
        """The user asked for something that cannot be done; the near side words it."""

        def __init__(self, what: str, **parts: Any) -> None:
            said = ", ".join(f"{key} {value}" for key, value in parts.items() if key in ("got", "expected"))
            super().__init__(f"{what}: {said}" if said else what)
            self.parts = {"what": what, **parts}


def describe(error: BaseException) -> str:
    """The message of an error, with its type unless it is one of ours, whose names say nothing to a user."""
    return str(error) if isinstance(error, RobolearnError) else f"{type(error).__name__}: {error}"


def parts_of(error: Exception) -> bytes:
    """The arguments of the error, as texts in JSON."""
    parts = dict(getattr(error, "parts", None) or {"what": str(error)})
    available = [str(name) for name in parts.pop("available", ())]
    texts = {key: None if value is None else str(value) for key, value in parts.items()}
    return json.dumps({**texts, "available": available}).encode()


def from_parts(data: bytes) -> BadInput:
    """The inverse of `parts_of`."""
    parts = json.loads(data.decode())
    return BadInput(parts.pop("what"), **parts)


__all__ = ["BadInput", "NonFinite", "RobolearnError", "describe", "from_parts", "parts_of"]
