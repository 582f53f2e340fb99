"""Devices by name: what is taken, and what is refused with what there is; GPUs only as torch would report them."""

from __future__ import annotations

import pytest
import torch

from robolearn.core import BadInput
from robolearn.core.machine import resolve_device


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch):
    def have(count: int) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)

    return have


@pytest.mark.parametrize(
    ("count", "text", "device"),
    [(0, "auto", "cpu"), (1, "auto", "cuda"), (2, "auto", "cuda"), (0, "cpu", "cpu"), (1, "cpu", "cpu"),
     (1, "cuda", "cuda"), (1, "cuda:0", "cuda:0"), (2, "cuda:1", "cuda:1")],
)  # fmt: skip
def test_a_device_that_is_there(gpus, count: int, text: str, device: str) -> None:
    gpus(count)
    assert resolve_device(text) == device
    torch.device(device)


@pytest.mark.parametrize(
    ("count", "text", "message"),
    [
        (0, "cuda", "--device: got cuda, expected auto or cpu here. torch"),
        (1, "cuda:1", "--device: got cuda:1; available: auto, cpu, cuda, cuda:0"),
        (0, "cuda", f"torch {torch.__version__} "),
        (0, "gpu", "--device: got gpu; available: auto, cpu"),
        (1, "cuda:", "--device: got cuda:; available: auto, cpu, cuda, cuda:0"),
        (1, "cuda:-1", "got cuda:-1; available: auto, cpu"),
        (1, "meta", "got meta; available: auto, cpu"),
        (1, "", "got ; available: auto, cpu"),
    ],
)
def test_another_is_refused(gpus, count: int, text: str, message: str) -> None:
    gpus(count)
    with pytest.raises(BadInput) as refused:
        resolve_device(text)
    assert message in str(refused.value)
