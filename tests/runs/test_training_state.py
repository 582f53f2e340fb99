"""Training states: exact, whole at any moment, damage noticed."""

from __future__ import annotations

import errno
import multiprocessing
import multiprocessing.sharedctypes
import random
import time
from pathlib import Path

import pytest
import torch

from robolearn.core import BadInput
from robolearn.runs.checkpoint import (
    load_latest_state,
    pack_optimizer,
    prefixed,
    save_state,
    unpack_optimizer,
    unprefixed,
)


def through_disk(folder: Path, tensors: dict, meta: dict) -> tuple[dict, dict]:
    save_state(folder, tensors, meta)
    found = load_latest_state(folder)
    assert found is not None
    return found


def test_no_state_is_none(tmp_path: Path) -> None:
    assert load_latest_state(tmp_path / "state") is None


def test_a_full_disk_leaves_the_last_state_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_state(tmp_path, {"x": torch.ones(2)}, {"n": 1})

    def full(path: Path, content: bytes) -> int:
        with path.open("wb") as file:
            file.write(content[:5])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="No space left"):
            save_state(tmp_path, {"x": torch.zeros(2)}, {"n": 2})
    assert [path.name for path in tmp_path.iterdir()] == ["state-00000001"]
    found = load_latest_state(tmp_path)
    assert found is not None and found[1] == {"n": 1}


def test_tensors_come_back_bit_for_bit(tmp_path: Path) -> None:
    base = torch.randn(4, 6)
    tensors = {
        "weights": base,
        "same memory": base,
        "transposed": base.t(),
        "slice": base[1:3],
        "scalar": torch.tensor(3.0),
        "empty": torch.zeros(0, 3),
        "count": torch.tensor([1, 2**40]),
        "mask": torch.tensor([True, False]),
        "bytes": torch.arange(7, dtype=torch.uint8),
        "double": torch.randn(3, dtype=torch.float64),
        "half": torch.randn(3).to(torch.bfloat16),
        "nan": torch.tensor([float("nan"), float("inf")]),
        "parameter": torch.nn.Parameter(torch.randn(2)),
    }
    found, meta = through_disk(tmp_path, tensors, {"iteration": 3, "names": ["a"]})
    assert meta == {"iteration": 3, "names": ["a"]}
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape, name
        assert torch.equal(torch.nan_to_num(found[name]), torch.nan_to_num(tensor.detach())), name


def test_only_the_latest_state_stays(tmp_path: Path) -> None:
    for value in range(3):
        save_state(tmp_path, {"x": torch.tensor(value)}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["state-00000003"]
    found = load_latest_state(tmp_path)
    assert found is not None and found[0]["x"].item() == 2


def test_what_a_kill_leaves_behind_is_neither_loaded_nor_kept(tmp_path: Path) -> None:
    save_state(tmp_path, {"x": torch.tensor(1)}, {})
    (tmp_path / ".writing").mkdir()
    (tmp_path / ".writing" / "tensors.safetensors").write_bytes(b"half")
    (tmp_path / "state-00000000").mkdir()  # an older one whose deletion was cut short
    found = load_latest_state(tmp_path)
    assert found is not None and found[0]["x"].item() == 1
    save_state(tmp_path, {"x": torch.tensor(2)}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["state-00000002"]


@pytest.mark.parametrize("damage", ["cut", "flip", "no tensors", "no meta", "bad meta", "other meta"])
def test_damage_is_bad_input(tmp_path: Path, damage: str) -> None:
    place = save_state(tmp_path, {"x": torch.arange(100.0)}, {"i": 1})
    tensors, meta = place / "tensors.safetensors", place / "meta.json"
    data = bytearray(tensors.read_bytes())
    if damage == "cut":
        tensors.write_bytes(data[:-50])
    elif damage == "flip":
        data[-10] ^= 1
        tensors.write_bytes(data)
    elif damage == "no tensors":
        tensors.unlink()
    elif damage == "no meta":
        meta.unlink()
    elif damage == "bad meta":
        meta.write_text('{"sha256": ')
    else:
        meta.write_text("{}")
    with pytest.raises(BadInput, match="training state"):
        load_latest_state(tmp_path)


def write_for_ever(folder: Path, written: multiprocessing.sharedctypes.Synchronized) -> None:
    value = written.value
    while True:
        value += 1
        # Below the size at which torch starts threads, which a forked process cannot have.
        save_state(folder, {f"t{i}": torch.full((20_000,), float(value)) for i in range(4)}, {"value": value})
        written.value = value


@pytest.mark.long
def test_a_killed_writer_leaves_a_whole_state_no_older_than_the_last_finished_one(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    written = context.Value("q", 0)
    delays = random.Random(0)
    seen = set()
    for _ in range(25):
        writer = context.Process(target=write_for_ever, args=(tmp_path, written))
        before = written.value
        writer.start()
        deadline = time.monotonic() + 20
        while written.value == before and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(delays.uniform(0.0, 0.02))
        writer.kill()
        writer.join(10)
        seen.add(frozenset(path.name.split("-")[0] for path in tmp_path.iterdir()))
        found = load_latest_state(tmp_path)
        assert found is not None
        tensors, meta = found
        assert meta["value"] in {written.value, written.value + 1}
        assert all(bool((tensor == float(meta["value"])).all()) for tensor in tensors.values())
        written.value = meta["value"]
    assert frozenset({"state", ".writing"}) in seen  # some kills did fall into the writing


OPTIMIZERS = {
    "adamw": lambda p: torch.optim.AdamW(
        [{"params": p[:1], "lr": 0.01}, {"params": p[1:], "betas": (0.8, 0.95)}], weight_decay=0.1, amsgrad=True
    ),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
    "plain sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "tensor lr": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
}


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, generator: torch.Generator, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 5, generator=generator)).square().mean() + torch.rand(()) * 0
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_training_goes_on_bit_for_bit(tmp_path: Path, kind: str) -> None:
    def fresh() -> tuple[torch.nn.Module, torch.optim.Optimizer, torch.Generator]:
        torch.manual_seed(1)
        # Dropout draws from torch's global generator.
        model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Dropout(0.3), torch.nn.Linear(7, 2))
        return model, OPTIMIZERS[kind](list(model.parameters())), torch.Generator().manual_seed(2)

    model, optimizer, generator = fresh()
    train(model, optimizer, generator, 5)
    optimizer_tensors, optimizer_meta = pack_optimizer(optimizer)
    tensors, meta = through_disk(
        tmp_path,
        {
            **prefixed("model", model.state_dict()),
            **prefixed("optimizer", optimizer_tensors),
            "batches": generator.get_state(),
            "dropout": torch.get_rng_state(),
        },
        {"optimizer": optimizer_meta},
    )
    train(model, optimizer, generator, 5)

    resumed, resumed_optimizer, resumed_generator = fresh()
    resumed.load_state_dict(unprefixed("model", tensors))
    unpack_optimizer(resumed_optimizer, unprefixed("optimizer", tensors), meta["optimizer"])
    resumed_generator.set_state(tensors["batches"])
    torch.set_rng_state(tensors["dropout"])
    train(resumed, resumed_optimizer, resumed_generator, 5)
    for expected, got in zip(model.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(expected, got)


def test_an_optimizer_over_other_parameters_is_refused() -> None:
    def optimizer(*shapes: tuple[int, ...]) -> torch.optim.Optimizer:
        parameters = [torch.nn.Parameter(torch.ones(shape)) for shape in shapes]
        made = torch.optim.Adam(parameters)
        sum(parameter.sum() for parameter in parameters).backward()  # type: ignore[union-attr]
        made.step()
        return made

    tensors, meta = pack_optimizer(optimizer((2,), (3, 4)))
    with pytest.raises(BadInput, match="optimiser state"):
        unpack_optimizer(optimizer((2,)), tensors, meta)
    with pytest.raises(BadInput, match=r"got shape \(3, 4\), expected \(4, 3\)"):
        unpack_optimizer(optimizer((2,), (4, 3)), tensors, meta)
    two_groups = torch.optim.Adam([{"params": [torch.nn.Parameter(torch.ones(2))]}, {"params": [torch.ones(3, 4)]}])
    with pytest.raises(BadInput, match="got 1 groups, expected 2"):
        unpack_optimizer(two_groups, tensors, meta)
