"""``robolearn benchmark borders``: time and memory of an import, and the first picture of a set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

import numpy as np

from robolearn.bench.baselines import PROGRAM
from robolearn.core import ArraySpec, BadInput, Episode, Interface, RobolearnError
from robolearn.core.installation import install_command
from robolearn.core.switches import Count
from robolearn.runs.command import Command

STEPS, EDGE = 130, 128  # of a demonstration of LIBERO: its usual length, and the edge of its pictures [px]
SHORT = 20  # steps of an episode of the large set


@dataclass(frozen=True, kw_only=True)
class BenchmarkBorders(Command):
    """Import a file of demonstrations in LIBERO's layout (HDF5, two cameras of 128 px): time and largest memory of the
    process. Then open the page of `robolearn dataset view --browser` on a set of many episodes: time from the start of
    the program to its first picture.
    """

    demonstrations: Count = 100
    """In the file to import."""
    episodes: Count = 1000
    """In the set to look at."""

    def run(self) -> dict[str, Any]:
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="robolearn-benchmark-borders-") as folder:
            work = Path(folder)
            _libero(work / "file.hdf5", self.demonstrations)
            imported = _imported(work / "file.hdf5", work / "imported")
            _many(work / "many", self.episodes)
            first = _first_picture(work / "many")
        return {
            "demonstrations": self.demonstrations, **imported, "episodes": self.episodes, "first_picture_s": first,
            "wall_s": {"total": time.perf_counter() - begun},
        }  # fmt: skip

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        taken = f"{result['import_s']:.1f} s, {result['import_peak_bytes'] / 1e6:,.0f} MB at most"
        console.print(f"import      {result['demonstrations']} demonstrations of two cameras: {taken}")
        console.print(f"view        the first picture of {result['episodes']:,} episodes after "
                      f"{result['first_picture_s']:.1f} s")  # fmt: skip


def _libero(path: Path, demonstrations: int) -> None:
    """A file in LIBERO's layout: pictures that move and have the noise of a camera."""
    try:
        import h5py
    except ImportError:
        raise BadInput("h5py", got="not installed", expected="it", hint=install_command("formats")) from None
    rng = np.random.default_rng(0)
    noise = rng.integers(0, 24, (4, EDGE, EDGE, 3), np.uint8)
    shade = np.linspace(0, 200, EDGE).astype(np.uint8)[None, :, None]
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        kwargs = {"robots": ["Panda"], "control_freq": 20}
        data.attrs["env_args"] = json.dumps({"type": 1, "env_name": "Libero_Kitchen", "env_kwargs": kwargs})
        data.attrs["problem_info"] = json.dumps({"language_instruction": "open the drawer"})
        data.attrs["macros_image_convention"] = "opengl"
        for e in range(demonstrations):
            demo, t = data.create_group(f"demo_{e}"), np.arange(STEPS)
            wave = np.sin(t[:, None] / 9 + rng.uniform(0, 6, 9))
            demo["actions"] = 0.5 * wave[:, :7]
            demo["rewards"] = demo["dones"] = (t == STEPS - 1).astype(np.uint8)
            for key, width in {"ee_pos": 3, "ee_ori": 3, "gripper_states": 2, "joint_states": 7}.items():
                demo[f"obs/{key}"] = wave[:, :width]
            for camera in ("agentview_rgb", "eye_in_hand_rgb"):
                demo[f"obs/{camera}"] = np.stack([np.roll(shade, 2 * step + e, 1) + noise[step % 4] for step in t])


def _imported(file: Path, out: Path) -> dict[str, Any]:
    """Frames, wall time [s] and largest resident memory [bytes] of the import, in a process of its own."""
    begun = time.perf_counter()
    words = ["dataset", "import", str(file), "--out", str(out), "--json"]
    process = subprocess.Popen([*PROGRAM, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RobolearnError(f"the import failed: {said.strip().splitlines()[-1:]}")
    frames = json.loads((out / "meta/info.json").read_text())["total_frames"]
    scale = 1 if sys.platform == "darwin" else 1024
    return {"frames": frames, "import_s": time.perf_counter() - begun, "import_peak_bytes": used.ru_maxrss * scale}


def _many(path: Path, episodes: int) -> None:
    """A set of many short episodes with one camera."""
    from robolearn.data.writing.writer import EpisodeWriter

    seen = {"images.front": ArraySpec((64, 64, 3), "uint8"), "proprio": ArraySpec((8,))}
    zeros = np.zeros(SHORT, np.float32)
    with EpisodeWriter(path, Interface(seen, ArraySpec((7,)), 20.0)) as writer:
        for e in range(episodes):
            frames = np.full((SHORT, 64, 64, 3), e % 200, np.uint8)
            state, action = np.full((SHORT, 8), e, np.float32), np.zeros((SHORT, 7), np.float32)
            observation = {"images.front": frames, "proprio": state}
            writer.write(Episode(observation, action, zeros, True, True, False, f"task {e % 3}"))


def _first_picture(data: Path) -> float:
    """Seconds from the start of the program to the picture of the first card."""
    begun = time.perf_counter()
    viewer = subprocess.Popen(
        [*PROGRAM, "dataset", "view", str(data), "--browser", "--json"],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert viewer.stderr is not None
        url = next((line.partition("open ")[2].strip() for line in viewer.stderr if line.startswith("open ")), "")
        if not url:
            raise RobolearnError("dataset view showed no address")
        root = url.partition("?")[0]
        browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        browser.open(url).read()
        rows = json.loads(browser.open(root + "episodes").read())["episodes"]
        browser.open(f"{root}frame/0/0/{rows[0]['steps'] - 1}").read()
        seconds = time.perf_counter() - begun
        browser.open(urllib.request.Request(root + "close", method="POST")).read()
        viewer.wait(10)
    finally:
        viewer.kill()
    return seconds
