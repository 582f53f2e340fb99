"""The gradient of a batch in pieces: one after the other (accumulation), or side by side in several processes.

    g = Σ_p ∇ Σ_{i in p} w_i e_i / W,   W = Σ_i w_i of the whole batch

Noise is drawn for the whole batch and divided with it, so g is that of the whole batch but for the order of sums.

Processes, by accelerate, have a share of every batch each; gradients are summed, so that all take the same step. They
meet in a file and talk over the loopback interface alone. One leads and writes the run; the others follow.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from robolearn.core import BadInput, RobolearnError
from robolearn.core.installation import install_command

Batch = tuple[dict[str, Tensor], Tensor, Tensor]
"""Normalised observation and action, and which actions are padding."""


def gradient_in_pieces(
    net: Any, gather: Callable[[Tensor], Batch], index: Tensor, generator: torch.Generator, target: nn.Module, *,
    pieces: int, autocast: AbstractContextManager, together: TrainingProcesses | None = None,
) -> dict[str, Tensor]:  # fmt: skip
    """Leave the gradient of the loss of the windows `index` (B,) in the parameters of `net`; the loss and its parts.

    Args:
      net: its loss is one over rows (`policies.kinds.chunk_net.DenoisingNet`); gradients have been set to None.
      gather: the batch of some of the windows.
      generator: of what is random; advanced as by ``net.loss`` of the whole batch.
      target: as in ``net.loss``.
      pieces: into how many the batch is divided, in each process its own share.
      together: the processes that have a share each; by default this one has all.
    """
    rows = torch.arange(len(index))
    if together is not None:
        rows = rows.tensor_split(together.count)[together.rank]
    draws: dict[str, Tensor] | None = None
    error = weight = torch.empty(0)
    for piece in rows.tensor_split(pieces):
        # A share may be empty; it still draws, so that all generators stay alike.
        if not len(piece) and draws is not None:
            continue
        observation, action, is_pad = gather(index[piece] if len(piece) else index[:1])
        if draws is None:
            draws = net.draw(action.new_empty(len(index), *action.shape[1:]), generator)
            error = action.new_zeros(len(index), action.shape[1])
            weight = torch.zeros_like(error)
        if not len(piece):
            continue
        assert draws is not None
        own = {key: value[piece.to(value.device)] for key, value in draws.items()}
        with autocast:
            counts = net.weight(action, is_pad)
            errors = net.errors(observation, action, own, target)
            total = (errors * counts).sum()
        total.backward()
        error[piece.to(error.device)], weight[piece.to(error.device)] = errors.detach().to(error.dtype), counts
    assert draws is not None
    parameters = [p for p in net.parameters() if p.requires_grad]
    for p in parameters:
        if p.grad is None:
            p.grad = torch.zeros_like(p)
    if together is not None:
        error, weight, *gradients = together.sum([error, weight, *(p.grad for p in parameters if p.grad is not None)])
        for p, gradient in zip(parameters, gradients, strict=True):
            p.grad = gradient
    whole = weight.sum().clamp_min(1.0)
    for p in parameters:
        assert p.grad is not None
        p.grad.div_(whole)
    return net.parts(error, weight, draws)


MOST = 64  # processes
POLL_S = 0.02
PATIENCE = timedelta(minutes=30)  # of one for another; the first may have to read a data set


class TrainingProcesses:
    """This process among `count`; which `gradient_in_pieces` divides batches over.

    Args:
      rank: which of them it is; 0 leads.
      meeting: a file that none of them has written yet.
      device: of the tensors: cpu, or a GPU of this process's own.
    """

    def __init__(self, rank: int, count: int, meeting: Path, device: str = "cpu") -> None:
        need_accelerate()
        from accelerate import PartialState

        self.rank, self.count = rank, count
        ours = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1"}
        ours |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}
        self._before = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)
        _here(meeting, rank).touch()
        on_gpu = device != "cpu"
        if on_gpu:
            torch.cuda.set_device(device)
        # With a store in a file, nothing listens for the others to find each other.
        torch.distributed.init_process_group(
            "nccl" if on_gpu else "gloo",
            init_method=f"file://{meeting.resolve()}",
            rank=rank,
            world_size=count,
            timeout=PATIENCE,
        )
        self._state = PartialState(cpu=not on_gpu)
        assert self._state.num_processes == count and self._state.process_index == rank

    def sum(self, tensors: list[Tensor]) -> list[Tensor]:
        """The sums over all processes, bit for bit the same in each."""
        from accelerate.utils import reduce

        flat = torch.cat([tensor.reshape(-1).float() for tensor in tensors])
        summed = cast(Tensor, reduce(flat, "sum"))
        parts = summed.split([tensor.numel() for tensor in tensors])
        return [part.view_as(tensor).to(tensor.dtype) for part, tensor in zip(parts, tensors, strict=True)]

    def close(self) -> None:
        """Leave the others."""
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
        self._state._reset_state()  # it is one for the whole interpreter
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def need_accelerate() -> None:
    """Raise `BadInput` unless the extra processes is installed."""
    try:
        import accelerate  # noqa: F401
    except ImportError:
        hint = install_command("processes")
        raise BadInput("--processes", got="no accelerate", expected="it installed", hint=hint) from None


@contextlib.contextmanager
def lead(count: int, module: str, task: Mapping[str, Any], device: str = "cpu") -> Iterator[TrainingProcesses]:
    """Within, this process leads `count`; the others run `module`, which reads what `followed` returns.

    Args:
      task: JSON values for the others.
      device: of this one; see `device_of`.

    Raises:
      BadInput: accelerate is not installed.
      RobolearnError: one of the others failed.
    """
    need_accelerate()
    with tempfile.TemporaryDirectory(prefix="robolearn-train-") as folder:
        meeting = Path(folder) / "meeting"
        others = [_started(module, {**task, "rank": rank, "count": count, "meeting": str(meeting)}, Path(folder))
                  for rank in range(1, count)]  # fmt: skip
        together = None
        try:
            while not all(_here(meeting, rank).exists() for rank in range(1, count)):
                if any(other.poll() is not None for other in others):
                    raise RuntimeError("one of the others ended before they met")
                time.sleep(POLL_S)
            together = TrainingProcesses(0, count, meeting, device)
            yield together
            for other in others:
                other.wait(60.0)
        except RuntimeError as error:  # of torch.distributed, when another one has gone
            failed = [other for other in others if other.poll() not in (None, 0)]
            if not failed:
                raise
            logs = [(Path(folder) / f"{other.pid}.log").read_text().strip() for other in failed]
            said = " | ".join(log.rpartition("\n")[2] for log in logs)
            raise RobolearnError(f"a process of the training failed: {said}") from error
        finally:
            for other in others:
                other.kill()
                other.wait()
            if together is not None:
                together.close()


def _here(meeting: Path, rank: int) -> Path:
    """Process `rank` has all that it needs, and comes to the meeting: whoever waits there cannot see others end."""
    return meeting.with_name(f"here-{rank}")


def followed() -> dict[str, Any]:
    """The task that the leading process gave this one, with its ``rank``, the ``count`` and where they meet."""
    return json.loads(sys.stdin.read())


def device_of(device: str, rank: int, count: int) -> str:
    """Device of process `rank`: cpu, or of `cuda` the GPU of its number; raises `BadInput` for too few GPUs."""
    if device == "cpu":
        return device
    if device != "cuda" or torch.cuda.device_count() < count:
        got = f"{device}, of {torch.cuda.device_count()} GPUs"
        raise BadInput(f"--device with --processes {count}", got=got, expected="cpu, or cuda with a GPU for each")
    return f"cuda:{rank}"


def _started(module: str, task: Mapping[str, Any], folder: Path) -> subprocess.Popen[str]:
    def end_with_parent() -> None:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the leading process says when it is over

    beside = folder / f"{task['rank']}"
    with open(beside, "w") as said:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module],
            stdin=subprocess.PIPE, stdout=said, stderr=said, text=True, preexec_fn=end_with_parent,
        )  # fmt: skip
    beside.rename(folder / f"{process.pid}.log")
    assert process.stdin is not None
    process.stdin.write(json.dumps(task))
    process.stdin.close()
    return process
