"""Several processes of this machine that take each training batch together, by accelerate.

Each has a share of every batch; gradients are summed, so that all take the same step (`robolearn.train.pieces`). They
meet in a file and talk over the loopback interface alone. One leads: it writes the run; the others follow.
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
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

from torch import Tensor

from robolearn.core import BadInput, RobolearnError

MOST = 64  # processes
POLL_S = 0.02
PATIENCE = timedelta(minutes=30)  # of one for another; the first may have to read a data set


class Processes:
    """This process among `count`; implements `robolearn.train.pieces.Together`.

    Args:
      rank: which of them it is; 0 leads.
      meeting: a file that none of them has written yet.
      device: of the tensors: cpu, or a GPU of this process's own.
    """

    def __init__(self, rank: int, count: int, meeting: Path, device: str = "cpu") -> None:
        need_accelerate()
        import torch
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
        import torch
        from accelerate.utils import reduce

        flat = torch.cat([tensor.reshape(-1).float() for tensor in tensors])
        summed = cast(Tensor, reduce(flat, "sum"))
        parts = summed.split([tensor.numel() for tensor in tensors])
        return [part.view_as(tensor).to(tensor.dtype) for part, tensor in zip(parts, tensors, strict=True)]

    def close(self) -> None:
        """Leave the others."""
        import torch

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
        expected = "it installed: pip install '.[processes]'"
        raise BadInput("--processes", got="no accelerate", expected=expected) from None


@contextlib.contextmanager
def lead(count: int, module: str, task: Mapping[str, Any], device: str = "cpu") -> Iterator[Processes]:
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
            together = Processes(0, count, meeting, device)
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
    """What the leading process told this one, with its ``rank``, the ``count`` and where they meet."""
    return json.loads(sys.stdin.read())


def device_of(device: str, rank: int, count: int) -> str:
    """Where process `rank` computes: cpu, or of `cuda` the GPU of its number; raises `BadInput` for too few GPUs."""
    if device == "cpu":
        return device
    import torch

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
