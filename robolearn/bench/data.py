"""``robolearn benchmark data``: how fast episodes with images are recorded and read, beside LeRobot."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Annotated, Any

from robolearn.bench.measuring import LeRobot, in_turn, rate
from robolearn.core import BadInput, RobolearnError
from robolearn.core.machine import torch_threads
from robolearn.core.switches import switch
from robolearn.runs.command import Command, print_table

log = logging.getLogger(__name__)

EPISODES, STEPS, SIZE, HZ = 20, 200, 128, 20  # of the smallest set
CAMERAS = ("front", "wrist")
OBSERVED, PREDICTED = 2, 16  # steps of a window
BATCH = 64  # windows
ROUNDS = 5  # measurements of reading, whose median counts


@dataclass(frozen=True, kw_only=True)
class BenchmarkData(Command):
    """Record 20 episodes of 200 steps with two 128-px cameras, read random windows, and again with 10 times as many.

    A window is 2 observations of both cameras and 16 actions. LeRobot does the same in the same run, in this
    interpreter's environment or the one of --lerobot-python, with one thread and one worker like us; its larger set
    is the one that we wrote. The smallest set is imported from a robomimic file (HDF5, where h5py is installed). Last,
    a policy is trained on the largest set in memory, and by a process that may take half as much memory as its
    pictures.
    """

    scales: tuple[int, ...] = (1, 10)
    """Multiples of 20 episodes."""
    seconds: float = 5.0
    """Time for reading each set; training takes three times that, in and beyond memory."""
    beyond_memory: Annotated[bool, switch("beyond-memory")] = True
    """Train on the largest set in memory and beyond it, where its pictures are 2.4 GB or more (from --scales 7 on)."""
    lerobot_python: Path | None = None
    """The interpreter of an environment with LeRobot."""
    lerobot: Annotated[bool, switch("lerobot")] = True
    """Measure LeRobot as well, where it is installed."""
    folder: Path | None = None
    """Folder in which the sets are written (and removed); by default the system's folder for temporary files."""

    def run(self) -> dict[str, Any]:
        from robolearn.bench.memory import beyond_memory

        if not self.scales or min(self.scales) < 1 or not self.seconds > 0:
            raise BadInput("--scales, --seconds", got=(self.scales, self.seconds), expected="positive numbers")
        begun = time.perf_counter()
        rival = LeRobot.found(self.lerobot_python) if self.lerobot else None
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix="robolearn-benchmark-data-", dir=self.folder))
        try:
            frames = _pictures(work / "frames.npy")
            ours = {}
            for scale in self.scales:
                log.info("recording %d episodes", EPISODES * scale)
                ours[str(scale)] = _record(work / f"ours-{scale}", frames, EPISODES * scale)
            with torch_threads(1):
                for name, read in _read({name: work / f"ours-{name}" for name in ours}, self.seconds).items():
                    ours[name] |= read
            imported = _import(work / f"ours-{min(self.scales)}", work)
            largest = work / f"ours-{max(self.scales)}"
            beyond = beyond_memory(largest, 3 * self.seconds) if self.beyond_memory else None
            theirs = measure_lerobot(rival, work, self.scales, self.seconds) if rival is not None else None
        finally:
            shutil.rmtree(work, ignore_errors=True)
        more = {"import_pictures_per_s": imported, "beyond_memory": beyond}
        return result_of(ours, theirs) | more | {"wall_s": {"total": time.perf_counter() - begun}}

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        rows, rival = [], result["lerobot"] or {}
        for name, key, streaming in (
            ("recording, frames/s", "write_frames_per_s", "write_streaming_frames_per_s"),
            ("end of episode, median s", "episode_end_s", "episode_end_streaming_s"),
            ("size, bytes/frame", "bytes_per_frame", "bytes_per_frame_streaming"),
            ("windows/s as LeRobot gives them", "read_samples_per_s", ""),
            ("windows/s as uint8", "read_uint8_samples_per_s", ""),
            ("frame cache, built once, s", "cache_s", ""),
            ("frame cache, bytes", "cache_bytes", ""),
        ):
            cells = [own[key] for own in result["ours"].values()] + [rival.get(key), rival.get(streaming)]
            rows.append((name, *("–" if cell is None else f"{cell:,.3g}" for cell in cells)))
        ours = (f"ours x{scale}" for scale in result["ours"])
        print_table(console, ("", *ours, "LeRobot", "LeRobot, streaming"), rows)
        for key in ("read_ratio", "write_ratio", "write_ratio_streaming", "size_ratio", "read_cost_growth"):
            value = result[key]
            console.print(f"{key}: {'–' if value is None else f'{value:.3g}'}")
        if result["import_pictures_per_s"] is not None:
            console.print(f"import of a robomimic file: {result['import_pictures_per_s']:,.0f} pictures/s")
        if beyond := result["beyond_memory"]:
            memory, pictures = beyond["limit_bytes"] / 1e9, beyond["pictures_bytes"] / 1e9
            console.print(f"training on pictures of {pictures:.1f} GB with {memory:.1f} GB of memory: "
                          f"{beyond['ratio']:.0%} of the rate in memory")  # fmt: skip


def result_of(ours: dict[str, dict[str, Any]], theirs: dict[str, Any] | None) -> dict[str, Any]:
    """The answer: ratios over LeRobot's figures, or null."""
    first, last = next(iter(ours.values())), list(ours.values())[-1]
    rival = theirs or {}

    def ratio(own: str, other: str) -> float | None:
        return first[own] / rival[other] if rival.get(other) else None

    return {
        "read_ratio": ratio("read_samples_per_s", "read_samples_per_s"),
        "write_ratio": ratio("write_frames_per_s", "write_frames_per_s"),
        "write_ratio_streaming": ratio("write_frames_per_s", "write_streaming_frames_per_s"),
        "size_ratio": ratio("bytes_per_frame", "bytes_per_frame"),
        "episode_end_s": first["episode_end_s"],
        "read_cost_growth": first["read_samples_per_s"] / last["read_samples_per_s"],
        "ours": ours,
        "lerobot": theirs,
    }


def _import(path: Path, work: Path) -> float | None:
    """Pictures/s of an import of the set at `path` from a file of HDF5; None without h5py."""
    from robolearn.data import Dataset
    from robolearn.data.convert.formats import ReadOptions, reader, writer
    from robolearn.data.convert.source import write_dataset

    if find_spec("h5py") is None:
        return None
    writer("robomimic")(Dataset.open(path, images=False), work / "foreign.hdf5")
    begun = time.perf_counter()
    written = write_dataset(reader("robomimic")(work / "foreign.hdf5", ReadOptions()), work / "imported")
    return written.frames * len(CAMERAS) / (time.perf_counter() - begun)


def _pictures(path: Path) -> Any:
    """(cameras, steps, H, W, 3) uint8, also at `path`: shapes that move over a textured ground, with noise."""
    import cv2
    import numpy as np

    rng = np.random.default_rng(0)
    frames = np.empty((len(CAMERAS), STEPS, SIZE, SIZE, 3), np.uint8)
    for camera in range(len(CAMERAS)):
        ground = cv2.GaussianBlur(rng.integers(0, 255, (SIZE, SIZE, 3), np.uint8), (0, 0), 2.0 + 2.0 * camera)
        for t in range(STEPS):
            picture = ground.copy()
            x, y = int(20 + 0.4 * t), int(SIZE / 2 + 30 * np.sin(t / 10 + camera))
            cv2.circle(picture, (x % SIZE, y), 12, (200, 40, 40), -1)
            cv2.rectangle(picture, (t % 100, 90), (t % 100 + 15, 110), (20, 200, 60), -1)
            frames[camera, t] = np.clip(picture + rng.normal(0.0, 2.0, picture.shape), 0, 255)
    np.save(path, frames)
    return frames


def _record(root: Path, frames: Any, episodes: int) -> dict[str, Any]:
    """Record at full speed; a frame is one step of both cameras."""
    import numpy as np

    from robolearn.core import ArraySpec, Interface
    from robolearn.data import EpisodeWriter

    pictures = {f"images.{camera}": ArraySpec((SIZE, SIZE, 3), "uint8") for camera in CAMERAS}
    interface = Interface({"proprio": ArraySpec((7,)), **pictures}, ArraySpec((7,)), float(HZ))
    ends = []
    begun = time.perf_counter()
    with EpisodeWriter(root, interface) as writer:
        for episode in range(episodes):
            for t in range(STEPS):
                seen = {f"images.{name}": frames[c, (t + 13 * episode) % STEPS] for c, name in enumerate(CAMERAS)}
                writer.add({"proprio": np.full(7, t / STEPS), **seen}, np.full(7, t / STEPS))
            before = time.perf_counter()
            writer.end(success=True, terminated=True, task="benchmark")
            ends.append(time.perf_counter() - before)
    wall = time.perf_counter() - begun
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file())
    return {
        "episodes": episodes,
        "frames": episodes * STEPS,
        "write_frames_per_s": episodes * STEPS / wall,
        "episode_end_s": float(np.median(ends)),
        "episode_end_p99_s": float(np.quantile(ends, 0.99)),
        "bytes": size,
        "bytes_per_frame": size / (episodes * STEPS),
    }


def _read(roots: Mapping[str, Path], seconds: float) -> dict[str, dict[str, Any]]:
    """Random windows of every set, as floats (…, 3, H, W) in [0, 1] like LeRobot's, and as the bytes that they are."""
    from robolearn.data import Dataset, Windows

    read: dict[str, dict[str, Any]] = {}
    measures: dict[tuple[str, str], Callable[[], float]] = {}
    for name, root in roots.items():
        begun = time.perf_counter()
        dataset = Dataset.open(root, cache="beside")
        opened = time.perf_counter()
        dataset.build_cache()
        built = time.perf_counter()
        size = sum(path.stat().st_size for path in (root / ".cache/frames").rglob("*") if path.is_file())
        read[name] = {"open_s": opened - begun, "cache_s": built - opened, "cache_bytes": size}
        stream = Windows(dataset, OBSERVED, PREDICTED).stream(BATCH, seed=0)
        for key, floats in (("read_samples_per_s", True), ("read_uint8_samples_per_s", False)):
            measures[name, key] = partial(rate, partial(_take, stream, floats), seconds / ROUNDS)
    for (name, key), values in in_turn(measures, ROUNDS).items():
        read[name][key] = median(values)
    return read


def _take(stream: Iterator[Any], floats: bool) -> int:
    """Windows of the next batch."""
    batch = next(stream)
    for image in (value for value in batch.observation.values() if floats and value.ndim == 5):
        image.movedim(-1, -3).float().div_(255.0)
    return len(batch)


def measure_lerobot(rival: LeRobot, work: Path, scales: tuple[int, ...], seconds: float) -> dict[str, Any]:
    """The same by LeRobot, in its own interpreter.

    Raises:
      RobolearnError: it failed; the end of its output is in the message.
    """
    log.info("LeRobot does the same")
    task = {
        "work": str(work), "episodes": EPISODES, "steps": STEPS, "size": SIZE, "hz": HZ, "cameras": CAMERAS,
        "observed": OBSERVED, "predicted": PREDICTED, "batch": BATCH, "seconds": seconds,
        "sets": {str(scale): str(work / f"ours-{scale}") for scale in scales if scale != 1},
    }  # fmt: skip
    words = rival.program("lerobot_data.py", task)
    done = subprocess.run(words, **rival.options(work), capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        raise RobolearnError(f"{rival.failed(done.stderr or done.stdout)}. --no-lerobot leaves it out")
    return json.loads(lines[-1])
