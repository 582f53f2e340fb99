"""Feetech STS3215 servos on a pseudo-terminal: enough of their protocol for LeRobot to believe in an arm.

Packets: FF FF, id, length of the rest, instruction or error, parameters, ~sum. (Feetech, *SMS/STS protocol manual*.)
"""

from __future__ import annotations

import os
import pty
import select
import threading
import tty

MODEL_NUMBER = (3, 777)  # address, what an STS3215 answers
MIN_POSITION, MAX_POSITION, OFFSET, PRESENT_POSITION = 9, 11, 31, 56
_PING, _READ, _WRITE, _SYNC_READ = 1, 2, 3, 0x82


class VirtualServos:
    """Servos 1 … `count` behind `port`, while it is open (`with VirtualServos() as servos`)."""

    def __init__(self, count: int = 6) -> None:
        self.memory = {servo: bytearray(128) for servo in range(1, count + 1)}
        self._ours, self._theirs = pty.openpty()
        tty.setraw(self._theirs)
        self.port = os.ttyname(self._theirs)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        for servo in self.memory:
            self.put(servo, *MODEL_NUMBER)
            self.put(servo, 0, 3)  # firmware, major version
            self.put(servo, PRESENT_POSITION, 2048)

    def __enter__(self) -> VirtualServos:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(5)
        os.close(self._ours)
        os.close(self._theirs)

    def put(self, servo: int, address: int, value: int) -> None:
        self.memory[servo][address : address + 2] = value.to_bytes(2, "little")

    def unplug(self) -> None:
        """Nobody answers any more."""
        self._stop.set()
        self._thread.join(5)

    def _serve(self) -> None:
        received = b""
        while not self._stop.is_set():
            if not select.select([self._ours], [], [], 0.05)[0]:
                continue
            received += os.read(self._ours, 4096)
            while len(received) >= 6 and len(received) >= 4 + received[3]:
                packet, received = received[: 4 + received[3]], received[4 + received[3] :]
                assert packet[:2] == b"\xff\xff" and _sum(packet[2:-1]) == packet[-1], packet.hex()
                self._answer(packet[2], packet[4], packet[5:-1])

    def _answer(self, servo: int, instruction: int, parameters: bytes) -> None:
        if instruction == _SYNC_READ:
            address, size, *asked = parameters
            for one in asked:
                self._reply(one, bytes(self.memory[one][address : address + size]))
        elif servo not in self.memory:
            return
        elif instruction == _PING:
            self._reply(servo, b"")
        elif instruction == _READ:
            address, size = parameters
            self._reply(servo, bytes(self.memory[servo][address : address + size]))
        elif instruction == _WRITE:
            address, data = parameters[0], parameters[1:]
            self.memory[servo][address : address + len(data)] = data
            self._reply(servo, b"")

    def _reply(self, servo: int, data: bytes) -> None:
        body = bytes([servo, len(data) + 2, 0]) + data
        os.write(self._ours, b"\xff\xff" + body + bytes([_sum(body)]))


def _sum(body: bytes) -> int:
    return ~sum(body) & 0xFF
