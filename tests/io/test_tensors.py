"""Safetensors of anybody's: what is none is one clear error, of a file as of a message."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from robolearn.core import BadInput
from robolearn.io.tensors import arrays_in, tensors_in


def header(**tensors: object) -> bytes:
    said = json.dumps(tensors).encode()
    return struct.pack("<Q", len(said)) + said


WHOLE = save({"a": np.arange(3, dtype=np.float32)})
DAMAGED = (
    b"", b"\xff" * 100, WHOLE[:-1], WHOLE + b"x", b"\x80\x04N.",
    header(a={"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}) + b"\0" * 4,
    header(a={"dtype": "F9", "shape": [1], "data_offsets": [0, 4]}) + b"\0" * 4,
    header(a={"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}) + b"\0" * 4,
)  # fmt: skip


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_what_is_no_safetensors_is_said_in_a_line(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"scores: got no safetensors \(") as bad:
        arrays_in(content, what="scores")
    assert "\n" not in str(bad.value)
    with pytest.raises(BadInput, match=r"critic x: got a damaged file \(.*expected weights") as bad:
        tensors_in(path, what="critic x", expected="weights")
    assert "\n" not in str(bad.value)


def test_a_file_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="critic x"):
        tensors_in(tmp_path / "none", what="critic x", expected="weights")


def test_what_was_stored_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(WHOLE)
    assert arrays_in(WHOLE, what="")["a"].tolist() == tensors_in(tmp_path / "a", what="", expected="")["a"].tolist()
