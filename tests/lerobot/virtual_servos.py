"""Feetech STS3215 servos on a pseudo-terminal: enough of their protocol for LeRobot to believe in an arm.

Packets: FF FF, id, length of the rest, instruction or error, parameters, ~sum. (Feetech, *SMS/STS protocol manual*.)
With torque a servo goes to its goal register, whoever wrote it and when, as fast as it can and no farther than its
limits; without, it stays. They are a process of their own, as servos are: they answer in time whatever a test does.
"""

from __future__ import annotations

import mmap
import os
import pty
import select
import subprocess
import sys
import tempfile
import time
import tty
from pathlib import Path

MODEL_NUMBER = (3, 777)  # address, what an STS3215 answers
MIN_POSITION, MAX_POSITION, OFFSET, TORQUE, GOAL, PRESENT_POSITION = 9, 11, 31, 40, 42, 56
_PING, _READ, _WRITE, _SYNC_READ, _SYNC_WRITE = 1, 2, 3, 0x82, 0x83
_BROADCAST = 0xFE
_BYTES = 128  # registers of a servo
SPEED = 3000.0  # [1/4096 turn / s]: 45 turns a minute


class VirtualServos:
    """Servos 1 … `count` behind `port`, while it is open (`with VirtualServos() as servos`).

    Attributes:
      memory: servo → its registers, which both processes see.
    """

    def __init__(self, count: int = 6) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="servos-")
        place = Path(self._folder.name)
        (place / "log").touch()
        (place / "memory").write_bytes(bytes(_BYTES * (count + 1)))  # the last: what no servo has
        with (place / "memory").open("r+b") as file:
            self._map = memoryview(mmap.mmap(file.fileno(), 0))
        self.memory = {servo: self._map[_BYTES * (servo - 1) : _BYTES * servo] for servo in range(1, count + 1)}
        self._log, self._seen = place / "log", 0
        for servo in self.memory:
            self.put(servo, *MODEL_NUMBER)
            self.put(servo, 0, 3)  # firmware, major version
            self.put(servo, MAX_POSITION, 4095)
            self.put(servo, PRESENT_POSITION, 2048)
        self._process = subprocess.Popen([sys.executable, __file__, str(place)], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = self._process.stdout.readline().strip()

    def __enter__(self) -> VirtualServos:
        return self

    def __exit__(self, *_: object) -> None:
        self.unplug()
        self._folder.cleanup()

    def put(self, servo: int, address: int, value: int) -> None:
        self.memory[servo][address : address + 2] = value.to_bytes(2, "little")

    def get(self, servo: int, address: int) -> int:
        return int.from_bytes(self.memory[servo][address : address + 2], "little")

    def has_torque(self, servo: int) -> bool:
        return self.memory[servo][TORQUE] == 1

    def deaf(self, deaf: bool) -> None:
        """Nobody answers, for as long as it is set."""
        self._map[-1] = int(deaf)

    def written(self) -> list[tuple[int, int, int]]:
        """(servo, address, value) of what was written to torque and goal since `forget`, in order."""
        rows = self._log.read_text().splitlines()[self._seen :]
        return [tuple(map(int, row.split())) for row in rows]  # type: ignore[misc]

    def forget(self) -> None:
        self._seen = len(self._log.read_text().splitlines())

    def unplug(self) -> None:
        """The port is gone."""
        self._process.kill()
        self._process.wait()


class _Servos:
    """The process's side."""

    def __init__(self, place: Path) -> None:
        with (place / "memory").open("r+b") as file:
            whole = self._map = memoryview(mmap.mmap(file.fileno(), 0))
        self.memory = {i + 1: whole[_BYTES * i : _BYTES * (i + 1)] for i in range(len(whole) // _BYTES - 1)}
        self._log = (place / "log").open("a", buffering=1)
        self._at = {servo: float(self._get(servo, PRESENT_POSITION)) for servo in self.memory}
        self._ours, self._theirs = pty.openpty()
        tty.setraw(self._theirs)
        print(os.ttyname(self._theirs), flush=True)

    def _get(self, servo: int, address: int) -> int:
        return int.from_bytes(self.memory[servo][address : address + 2], "little")

    def serve(self) -> None:
        received, last = b"", time.monotonic()
        while True:
            ready = select.select([self._ours], [], [], 0.005)[0]
            now = time.monotonic()
            self._move(now - last)
            last = now
            if not ready:
                continue
            received += os.read(self._ours, 4096)
            while len(received) >= 6 and len(received) >= 4 + received[3]:
                packet, received = received[: 4 + received[3]], received[4 + received[3] :]
                assert packet[:2] == b"\xff\xff" and _sum(packet[2:-1]) == packet[-1], packet.hex()
                if not self._map[-1]:
                    self._answer(packet[2], packet[4], packet[5:-1])

    def _move(self, seconds: float) -> None:
        for servo in self.memory:
            if round(self._at[servo]) != self._get(servo, PRESENT_POSITION):  # somebody moved it by hand
                self._at[servo] = float(self._get(servo, PRESENT_POSITION))
            if self.memory[servo][TORQUE] != 1:
                continue
            goal = min(max(self._get(servo, GOAL), self._get(servo, MIN_POSITION)), self._get(servo, MAX_POSITION))
            self._at[servo] += min(max(goal - self._at[servo], -SPEED * seconds), SPEED * seconds)
            self.memory[servo][PRESENT_POSITION : PRESENT_POSITION + 2] = round(self._at[servo]).to_bytes(2, "little")

    def _answer(self, servo: int, instruction: int, parameters: bytes) -> None:
        if instruction == _SYNC_READ:
            address, size, *asked = parameters
            for one in asked:
                self._reply(one, bytes(self.memory[one][address : address + size]))
        elif instruction == _SYNC_WRITE:
            assert servo == _BROADCAST
            address, size, rest = parameters[0], parameters[1], parameters[2:]
            for i in range(0, len(rest), size + 1):
                self._take(rest[i], address, rest[i + 1 : i + 1 + size])
        elif servo not in self.memory:
            return
        elif instruction == _PING:
            self._reply(servo, b"")
        elif instruction == _READ:
            address, size = parameters
            self._reply(servo, bytes(self.memory[servo][address : address + size]))
        elif instruction == _WRITE:
            self._take(servo, parameters[0], parameters[1:])
            self._reply(servo, b"")

    def _take(self, servo: int, address: int, data: bytes) -> None:
        self.memory[servo][address : address + len(data)] = data
        if address in (TORQUE, GOAL):
            self._log.write(f"{servo} {address} {int.from_bytes(data, 'little')}\n")

    def _reply(self, servo: int, data: bytes) -> None:
        body = bytes([servo, len(data) + 2, 0]) + data
        os.write(self._ours, b"\xff\xff" + body + bytes([_sum(body)]))


def _sum(body: bytes) -> int:
    return ~sum(body) & 0xFF


if __name__ == "__main__":
    _Servos(Path(sys.argv[1])).serve()
