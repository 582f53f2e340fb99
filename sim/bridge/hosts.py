"""Hosts of the workers of ``--workers``: processes of this machine, or actors of Ray on any machine of its cluster."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from robolearn.core import BadInput, RobolearnError
from robolearn.core.errors import first_line
from robolearn.core.machine import available_cpus
from robolearn.runs.ray_cluster import check_address, join_ray, need_ray, on_this_machine, start_ray
from sim.bridge import share
from sim.child import Child, own_paths, own_python

FORMS = ("<number>", "ray", "ray:<number>", "ray://<host>:<port>")


class WorkerLost(Exception):
    """A worker has ended, or cannot be reached any more; why, in words."""


class Worker(Protocol):
    """The near end of a `Share`."""

    def send(self, kind: bytes, payload: bytes) -> None:
        """Ask for something; a worker that is gone is reported by the `receive` that follows."""
        ...

    def receive(self) -> tuple[bytes, bytes]:
        """Kind and payload of the answer. Raises `WorkerLost`."""
        ...

    def close(self) -> None: ...


class Host(Protocol):
    """Starts workers. `threads`: of each; `asks_token`: workers that are no part of a cluster with a token are refused;
    `count`: of workers, at most."""

    threads: int
    asks_token: bool
    count: int

    def start(self, k: int) -> Worker:
        """The `k`-th worker, which may begin to answer later. Raises `RobolearnError`."""
        ...

    def close(self) -> None: ...


def host_of(workers: str) -> Host:
    """The host that `workers`, the flag's text, stands for. Raises `BadInput`: another text, no Ray, or no cluster."""
    flag = f"--workers {workers}"
    if re.fullmatch(r"[1-9]\d*", workers):
        return Processes(int(workers))
    if workers.startswith("ray://"):
        check_address(workers, flag)
        need_ray(flag)
        return RayActors(lambda: join_ray(workers, flag), asks_token=not on_this_machine(workers))
    if found := re.fullmatch(r"ray(?::([1-9]\d*))?", workers):
        need_ray(flag)
        address = os.environ.get("RAY_ADDRESS", "")
        if ":" in address and not on_this_machine(url := f"ray://{address.removeprefix('ray://')}"):
            check_address(url, f"RAY_ADDRESS {address}")
            return RayActors(start_ray, asks_token=True)
        cpus = {} if address else {"num_cpus": int(found[1] or available_cpus())}
        return RayActors(lambda: start_ray(**cpus))
    raise BadInput("--workers", got=workers, available=FORMS)


class Processes:
    """Worker processes of this interpreter, on this machine."""

    asks_token = False

    def __init__(self, count: int) -> None:
        self.count = count
        self.threads = max(1, available_cpus() // count)

    def start(self, k: int) -> Worker:
        return ProcessWorker()

    def close(self) -> None:
        pass


class ProcessWorker(Child):
    """A `Share` in a process."""

    def __init__(self) -> None:
        environment = {"OMP_NUM_THREADS": "1", **os.environ} | own_paths()
        super().__init__(own_python("sim.bridge.share"), environment)

    def send(self, kind: bytes, payload: bytes) -> None:
        with contextlib.suppress(OSError, ValueError):  # it is closed where an earlier write failed
            share.write(self.requests, kind, payload)

    def receive(self) -> tuple[bytes, bytes]:
        try:
            return share.read(self.replies)
        except (EOFError, OSError):
            raise WorkerLost(f"its process {self.ending()}") from None


class RayActors:
    """Actors of Ray, one for each CPU of the cluster, spread over its nodes.

    They reserve no CPU: an evaluation beside a training has workers of its own, and waits for nobody. All of a command
    are of one cluster, which the first one joins and the last one leaves.
    """

    threads = 1
    users: ClassVar[int] = 0

    def __init__(self, join: Callable[[], Any], *, asks_token: bool = False) -> None:
        self._ray, self.asks_token = importlib.import_module("ray") if self.users else join(), asks_token
        RayActors.users += 1
        self._slots = slots_of(self._ray.nodes())
        self.count = len(self._slots)

    def start(self, k: int) -> Worker:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        place = NodeAffinitySchedulingStrategy(self._slots[k], soft=True)  # another node where this one is gone
        made = self._ray.remote(share.OwnShare).options(num_cpus=0, max_restarts=0, scheduling_strategy=place)
        return RayWorker(self._ray, made.remote())

    def close(self) -> None:
        RayActors.users -= 1
        if not self.users:
            self._ray.shutdown()


def slots_of(nodes: Sequence[dict[str, Any]]) -> list[str]:
    """Node of the k-th worker: each living node has one for each of its CPUs, and all have one before any has two."""
    cpus = {node["NodeID"]: int(node["Resources"].get("CPU", 0)) for node in nodes if node["Alive"]}
    return [node for level in range(max(cpus.values(), default=0)) for node, count in cpus.items() if count > level]


class RayWorker:
    """A `Share` in an actor of Ray."""

    def __init__(self, ray: Any, actor: Any) -> None:
        self._ray, self._actor, self._answer = ray, actor, None

    def send(self, kind: bytes, payload: bytes) -> None:
        self._answer = self._actor.answer.remote(kind, payload)

    def receive(self) -> tuple[bytes, bytes]:
        from ray.exceptions import RayActorError, RayError

        try:
            return self._ray.get(self._answer)
        except RayActorError as error:
            raise WorkerLost(f"its actor is gone: {first_line(error)}") from None
        except (RayError, ConnectionError) as error:
            raise RobolearnError(f"--workers: {first_line(error)}") from error

    def close(self) -> None:
        with contextlib.suppress(Exception):  # what is gone need not be ended
            self._ray.kill(self._actor)
