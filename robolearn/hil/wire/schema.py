"""Messages as bytes: safetensors with named fields of known type and shape, and nothing else. Never pickle.

Whoever wrote a message may be a stranger: its length is looked at before it is parsed, its names, types and shapes
before a value is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from robolearn.core import BadInput

TEXT = "text"  # UTF-8 in a vector of bytes
_OVERHEAD = 4096  # bytes of a message beyond its numbers: names, types and shapes


@dataclass(frozen=True)
class Field:
    """One value of a message.

    Attributes:
      kind: a numpy dtype's name, or `TEXT`.
      shape: of the array; None for any extent up to `most`.
      most: components at most.
    """

    kind: str
    shape: tuple[int | None, ...] = ()
    most: int = 1

    @property
    def dtype(self) -> np.dtype:
        """Of the stored array."""
        return np.dtype(np.uint8 if self.kind == TEXT else self.kind)


WHOLE, NUMBER, FLAG = Field("int64"), Field("float64"), Field("bool")


def text(most: int) -> Field:
    """A text of at most `most` bytes."""
    return Field(TEXT, (None,), most)


@dataclass(frozen=True)
class Schema:
    """The fields of one kind of message.

    Attributes:
      name: what errors call it.
      fields: by name.
    """

    name: str
    fields: Mapping[str, Field]

    @property
    def limit(self) -> int:
        """No message is longer [bytes]."""
        return _OVERHEAD + 128 * len(self.fields) + sum(f.most * f.dtype.itemsize for f in self.fields.values())

    def pack(self, **values: Any) -> bytes:
        """The message with these values: numbers, texts or arrays.

        Raises:
          BadInput: as `unpack` does: what cannot be read is not sent.
        """
        tensors = {}
        for name, value in values.items():
            encoded = np.frombuffer(value.encode(), np.uint8) if isinstance(value, str) else value
            wanted = self.fields.get(name)
            tensors[name] = np.ascontiguousarray(encoded, wanted.dtype if wanted else None).reshape(np.shape(encoded))
        self._check(tensors)
        return save(tensors)

    def unpack(self, content: bytes) -> dict[str, Any]:
        """The values in `content`: scalars as Python's numbers, texts as `str`, the rest as arrays.

        Raises:
          BadInput: too long, no safetensors, other names, types or shapes, numbers that are not finite, no UTF-8.
        """
        if len(content) > self.limit:
            raise BadInput(f"message {self.name}", got=f"{len(content)} bytes", expected=f"at most {self.limit}")
        tensors = parse(content, f"message {self.name}")
        self._check(tensors)
        return {name: self._value(name, tensors[name]) for name in self.fields}

    def _value(self, name: str, value: NDArray) -> Any:
        if self.fields[name].kind == TEXT:
            try:
                return value.tobytes().decode()
            except UnicodeDecodeError:
                raise BadInput(f"message {self.name}: {name}", got="no UTF-8", expected="text") from None
        return value if value.ndim else value.item()

    def _check(self, tensors: Mapping[str, NDArray]) -> None:
        if tensors.keys() != self.fields.keys():
            odd = sorted(tensors.keys() ^ self.fields.keys())
            raise BadInput(f"message {self.name}: names", got=f"{odd[0]!r} missing or unknown", available=self.fields)
        for name, wanted in self.fields.items():
            value = tensors[name]
            fits = len(value.shape) == len(wanted.shape) and all(
                b in (None, a) for a, b in zip(value.shape, wanted.shape, strict=True)
            )
            if value.dtype != wanted.dtype or not fits or value.size > wanted.most:
                raise BadInput(
                    f"message {self.name}: {name}",
                    got=f"{value.dtype} {value.shape}",
                    expected=f"{wanted.dtype} {wanted.shape}, at most {wanted.most}",
                )
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                raise BadInput(f"message {self.name}: {name}", got="NaN or infinity", expected="finite numbers")


def parse(content: bytes, what: str) -> dict[str, NDArray]:
    """The arrays in `content`, which may be anything.

    Raises:
      BadInput: it is no safetensors.
    """
    try:
        return load(content)
    except (SafetensorError, ValueError, KeyError, TypeError, OverflowError, AttributeError) as error:
        raise BadInput(what, got=f"no safetensors ({error})", expected="safetensors") from None
