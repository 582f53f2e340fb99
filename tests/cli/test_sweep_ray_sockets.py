"""Where the processes of `sweep --runner ray` listen, as the operating system lists it."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.long

CODE = "import sys; from robolearn.cli.main import main; sys.exit(main())"


class Family:
    """A process and what it has started, orphans too."""

    def __init__(self, pid: int) -> None:
        self._members = {psutil.Process(pid)}
        self.listening: dict[str, set[str]] = {}  # program → addresses

    def look(self) -> None:
        for process in tuple(self._members):
            with contextlib.suppress(psutil.NoSuchProcess):
                self._members.update(process.children(recursive=True))
        for process in self._members:
            with contextlib.suppress(psutil.NoSuchProcess):
                for socket in process.net_connections("inet"):
                    # A UDP socket has no state: one that is bound is heard.
                    if socket.laddr and socket.status in (psutil.CONN_LISTEN, psutil.CONN_NONE):
                        self.listening.setdefault(process.name(), set()).add(socket.laddr.ip)

    def end(self) -> None:
        for process in self._members:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def is_loopback(text: str) -> bool:
    """Whether only this machine reaches it; ``::ffff:127.0.0.1`` is 127.0.0.1."""
    address = ipaddress.ip_address(text)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def test_nothing_that_ray_starts_can_be_reached_from_another_machine(demos: Path, tmp_path: Path) -> None:
    line = ["sweep", "--seeds", "0", "--out", str(tmp_path / "sweep"), "--runner", "ray", "--", "train",
            "--data", str(demos), "--steps", "20", "--batch", "16", "--width", "32"]  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    log = tmp_path / "log"
    with log.open("wb") as file:
        sweep = subprocess.Popen([sys.executable, "-c", CODE, *line], env=environment, stdout=file, stderr=file)
    family = Family(sweep.pid)
    try:
        end = time.monotonic() + 300.0
        while sweep.poll() is None:
            assert time.monotonic() < end, log.read_text()
            family.look()
            time.sleep(0.3)
    finally:
        family.end()
        sweep.wait()
    assert sweep.returncode == 0, log.read_text()
    assert family.listening.keys() >= {"gcs_server", "raylet"}, family.listening
    beyond = {name: [one for one in found if not is_loopback(one)] for name, found in family.listening.items()}
    assert not any(beyond.values()), beyond
