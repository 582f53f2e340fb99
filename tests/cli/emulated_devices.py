"""`robolearn hil` or `record` with a gamepad, a SpaceMouse or a leader arm that is not there, in the hand of a test.

As a program it is `robolearn`, whose halves run this file in the place of the installed program; an actor or a recorder
has the device: SDL's virtual joystick, HID reports under PySpaceMouse's parser, or an arm with LeRobot's interface.
`Hands`, in the test's process, moves it through a socket.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DEVICE, SOCKET = "EMULATED_DEVICE", "EMULATED_SOCKET"


class Hands:
    """The test's end: `hands("press", "a")` calls that method of the device and waits until it is done."""

    def __init__(self, device: str) -> None:
        # Not below pytest's folders: a socket's path has a hundred characters.
        self._folder = tempfile.TemporaryDirectory(prefix="emulated-")
        self._path = os.path.join(self._folder.name, device)
        self.environment = {DEVICE: device, SOCKET: self._path}

    def __call__(self, method: str, *args: Any) -> Any:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(10.0)
            line.connect(self._path)
            line.sendall(json.dumps([method, *args]).encode() + b"\n")
            answer = json.loads(line.makefile().readline())
        assert answer["error"] == "", answer
        return answer["value"]

    @property
    def there(self) -> bool:
        """Whether an actor or a recorder holds the device."""
        try:
            self("look")
        except OSError:
            return False
        return True

    def run(self, *words: object, log: Any, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
        """`robolearn` with these words, in a process group of its own."""
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **self.environment}
        return subprocess.Popen(
            [sys.executable, __file__, *map(str, words)], env=env, stdin=stdin, stdout=subprocess.PIPE, stderr=log,
            text=True, start_new_session=True,
        )  # fmt: skip

    def close(self) -> None:
        self._folder.cleanup()


# --- the device's end, in the actor ------------------------------------------------------------------------------


class Mouse:
    """In place of hidapi's module: one SpaceMouse Compact, which repeats what it says while it is out of its middle."""

    def __init__(self) -> None:
        self.plugged, self.held = True, list[bytes]()
        self.reports: deque[bytes] = deque()

    def enumerate(self) -> list[dict[str, Any]]:
        compact = {"vendor_id": 0x256F, "product_id": 0xC635, "path": b"/dev/hidraw3", "usage_page": 1, "usage": 8}
        return [compact] if self.plugged else []

    def device(self) -> Mouse:
        return self

    def open_path(self, path: bytes) -> None:
        if not self.plugged:
            raise OSError("open failed")

    def set_nonblocking(self, on: bool) -> None: ...
    def close(self) -> None: ...

    def read(self, size: int) -> list[int]:
        if not self.plugged:
            raise OSError("read error")
        if not self.reports:
            self.reports.extend(self.held)  # the next read finds them: a hundred reports a second
            return []
        return list(self.reports.popleft()[:size])

    # What a test asks for.

    def push(self, *axes: int) -> None:
        """Right, towards the user, down, -350 to 350; none: let go."""
        report = b"\x01" + b"".join(axis.to_bytes(2, "little", signed=True) for axis in axes or (0, 0, 0))
        self.reports.append(report)
        self.held = [report] if axes else []

    def unplug(self) -> None:
        self.plugged, self.held = False, []
        self.reports.clear()

    def plug(self) -> None:
        self.plugged = True


class Arm:
    """What LeRobot's `SOLeader` looks like from outside."""

    def __init__(self) -> None:
        import numpy as np

        from robots import SO101

        self.is_calibrated, self.plugged = True, True
        self.degrees = dict(zip((*SO101.joints, "gripper"), (*np.degrees(SO101.home), 50.0), strict=True))

    def connect(self, calibrate: bool = True) -> None:
        if not self.plugged:
            raise ConnectionError("Could not connect on port '/dev/ttyACM0'.")

    def disconnect(self) -> None: ...

    def get_action(self) -> dict[str, float]:
        if not self.plugged:
            raise ConnectionError("no status packet")
        return {f"{name}.pos": value for name, value in self.degrees.items()}

    # What a test asks for.

    def move(self, degrees: dict[str, float]) -> None:
        self.degrees.update(degrees)

    def unplug(self) -> None:
        self.plugged = False

    def plug(self) -> None:
        self.plugged = True


def _pad() -> Any:
    sys.path.insert(0, str(ROOT / "tests" / "hardware" / "teleop"))
    from virtual_gamepad import VirtualGamepad

    pad = VirtualGamepad()
    pad.plug()
    return pad


def _mouse() -> Any:
    import hardware.teleop.spacemouse as module

    mouse = Mouse()
    module.hid_library = lambda: mouse
    return mouse


def _leader() -> Any:
    import hardware.teleop.leader as module

    arm = Arm()
    module.lerobot_leader = lambda kind, port, calibration: arm
    return arm


DEVICES: dict[str, Callable[[], Any]] = {"gamepad": _pad, "spacemouse": _mouse, "leader": _leader}


def _serve(device: Any, path: str) -> None:
    Path(path).unlink(missing_ok=True)  # of an actor before
    door = socket.socket(socket.AF_UNIX)
    door.bind(path)
    door.listen()

    def obey() -> None:
        while True:
            line, _ = door.accept()
            with line, line.makefile("rw") as file:
                method, *args = json.loads(file.readline())
                answer = {"value": None, "error": ""}
                try:
                    if method != "look":
                        answer["value"] = getattr(device, method)(*args)
                except Exception as error:
                    answer["error"] = repr(error)
                file.write(json.dumps(answer) + "\n")

    threading.Thread(target=obey, name="emulated", daemon=True).start()


def main() -> int:
    import robolearn.cli.hil.commands as run
    from robolearn.cli.main import main as robolearn

    run.PROGRAM = (sys.executable, __file__)
    if sys.argv[1:3] == ["hil", "actor"] or sys.argv[1:2] == ["record"]:
        _serve(DEVICES[os.environ[DEVICE]](), os.environ[SOCKET])
    return robolearn(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
