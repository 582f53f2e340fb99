"""Who records by the keyboard sees what happens: `robolearn record` in a terminal, its page in a real Chromium.

The person who types sees through ROS 2 topics, the page is judged by what three.js draws.
"""

from __future__ import annotations

import importlib.util
import os
import pty
import re
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "hardware" / "teleop"))
from browser_driver import Chromium

import hardware.ros2  # noqa: F401  (prepares the environment for rclpy)
from hardware.ros2.process import Background
from robolearn.data.reading.reader import Dataset

pytestmark = [pytest.mark.realtime, pytest.mark.long]

ROOT = Path(__file__).parents[2]
DOMAIN = int(os.environ["ROS_DOMAIN_ID"]) + 6
PROGRAM = "import sys; from robolearn.cli.main import main; sys.exit(main())"
LINE = "document.querySelector('[data-robolearn-view]')"
OVER = "document.querySelector('#robolearn-over')"
CUBE = (0.85, 0.22, 0.18)  # its colour in `lift`


def shades(colour: str) -> np.ndarray:
    """(3,) in [0, 1] of six hexadecimal digits."""
    return np.array([int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)])


def people() -> Any:
    """`tests/programs/record_people.py`."""
    path = ROOT / "tests" / "programs" / "record_people.py"
    spec = importlib.util.spec_from_file_location("record_people", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_who_records_by_the_keyboard_sees_arm_and_cube_and_that_it_is_over(tmp_path: Path) -> None:
    them, said, out = people(), bytearray(), tmp_path / "data"
    person, program = pty.openpty()
    words = ["record", "--teleop", "keyboard", "--episodes", "1", "--out", str(out), "--port", "0"]
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words, "--domain", str(DOMAIN)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}, stdin=program, stderr=program,
        stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    os.close(program)

    def read() -> None:
        with suppress(OSError):  # the terminal's other end is closed
            while piece := os.read(person, 4096):
                said.extend(piece)

    threading.Thread(target=read, daemon=True).start()
    try:
        with Chromium() as chromium, Background(DOMAIN) as ros:
            assert them.wait(lambda: b"token=" in said and b"\n" in said.split(b"token=")[1]), bytes(said)
            found = re.search(rb"to watch: open (http\S+)", said)
            assert found is not None, bytes(said)
            tab = chromium.open(found[1].decode(), (800, 600), sharpness=0.25)
            eyes = ros.add(them.Eyes(context=ros.context))
            assert them.wait(lambda: eyes.look() is not None), bytes(said)
            tab.wait(f"{LINE}?.dataset.state === 'waiting'", 120.0)

            def drawn() -> list[np.ndarray]:
                return [at for colour, at in tab.meshes() if np.abs(shades(colour) - CUBE).max() < 0.01]

            assert them.wait(lambda: drawn() and np.linalg.norm(drawn()[0] - eyes.cube) < 2e-3, 30.0), drawn()
            hands = them.KeyboardPerson(person, eyes, lambda: process.poll() is None)
            typing = threading.Thread(target=hands.record, daemon=True)
            typing.start()
            tab.wait(f"{LINE}.innerText.includes('recording · episode 1 of 1')", 60.0)
            highest = 0.0
            while process.poll() is None and tab.js(f"{OVER}.hidden"):
                highest = max([highest, *(float(at[2]) for at in drawn())])
            assert process.wait(60) == 0, bytes(said)
            typing.join(30.0)
            assert "The recording is over." in tab.wait(f"!{OVER}.hidden && {OVER}.innerText")
            (solved,) = Dataset.open(out).success
            assert solved == (highest > them.LIFTED), f"the page drew the cube at {highest:.3f} m at most"
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(30)
        os.close(person)
