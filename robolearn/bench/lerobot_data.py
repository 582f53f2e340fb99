"""LeRobot's part of `robolearn benchmark data`, run by LeRobot's own interpreter; imports nothing of robolearn.

Prints one JSON object. The default mode writes PNG files with four threads per camera, as ``lerobot-record`` does,
and encodes at the end of the episode; the streaming mode, where this version has it, encodes while recording.
"""

from __future__ import annotations

import inspect
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np


def main() -> None:
    import lerobot
    import torch

    task = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    work = Path(task["work"])
    frames = np.load(work / "frames.npy")
    result: dict[str, Any] = {"version": getattr(lerobot, "__version__", "unknown"), "video_backend": _backend()}
    result |= _record(task, work / "lerobot", frames, "", image_writer_threads=4 * len(task["cameras"]))
    result["read_samples_per_s"] = _read(task, work / "lerobot")
    if "streaming_encoding" in inspect.signature(_dataset().create).parameters:
        result |= _record(task, work / "lerobot-streaming", frames, "_streaming", streaming_encoding=True)
    result["scales"] = {scale: {"read_samples_per_s": _read(task, Path(root))} for scale, root in task["sets"].items()}
    print(json.dumps(result))


def _dataset() -> Any:
    try:
        from lerobot.datasets.lerobot_dataset import LeRobotDataset
    except ImportError:  # an older layout
        from lerobot.common.datasets.lerobot_dataset import LeRobotDataset  # type: ignore[no-redef]
    return LeRobotDataset


def _backend() -> str:
    """LeRobot's decoder by default, torchcodec; PyAV where the FFmpeg libraries that it wants are not installed."""
    try:
        import torchcodec.decoders  # noqa: F401
    except (ImportError, OSError, RuntimeError):
        return "pyav"
    return "torchcodec"


def _record(task: dict[str, Any], root: Path, frames: Any, suffix: str, **mode: Any) -> dict[str, Any]:
    size, steps = task["size"], task["steps"]
    features: dict[str, Any] = {
        "observation.state": {"dtype": "float32", "shape": (7,), "names": None},
        "action": {"dtype": "float32", "shape": (7,), "names": None},
    }
    for camera in task["cameras"]:
        names = ["height", "width", "channels"]
        features[f"observation.images.{camera}"] = {"dtype": "video", "shape": (size, size, 3), "names": names}
    ends = []
    begun = time.perf_counter()
    dataset = _dataset().create("benchmark/data", fps=task["hz"], features=features, root=root, **mode)
    for episode in range(task["episodes"]):
        for t in range(steps):
            frame: dict[str, Any] = {
                f"observation.images.{name}": frames[c, (t + 13 * episode) % steps]
                for c, name in enumerate(task["cameras"])
            }
            value = np.full(7, t / steps, np.float32)
            dataset.add_frame({**frame, "observation.state": value, "action": value, "task": "benchmark"})
        before = time.perf_counter()
        dataset.save_episode()
        ends.append(time.perf_counter() - before)
    if hasattr(dataset, "stop_image_writer"):
        dataset.stop_image_writer()
    dataset.finalize()
    wall = time.perf_counter() - begun
    count = task["episodes"] * steps
    files = [p for kind in ("meta", "data", "videos") for p in (root / kind).rglob("*") if p.is_file()]
    return {
        f"write{suffix}_frames_per_s": count / wall,
        f"episode_end{suffix}_s": float(np.median(ends)),
        f"bytes_per_frame{suffix}": sum(p.stat().st_size for p in files) / count,
    }


def _read(task: dict[str, Any], root: Path) -> float:
    """Windows per second at random places, in this process, in batches."""
    import torch

    step = 1.0 / task["hz"]
    past = [step * i for i in range(1 - task["observed"], 1)]
    deltas = {f"observation.images.{camera}": past for camera in task["cameras"]}
    deltas |= {"observation.state": past, "action": [step * i for i in range(task["predicted"])]}
    dataset = _dataset()("benchmark/data", root=root, delta_timestamps=deltas, video_backend=_backend())
    order = torch.Generator().manual_seed(0)
    sampler = torch.utils.data.RandomSampler(dataset, generator=order)
    batches = torch.utils.data.DataLoader(dataset, batch_size=task["batch"], sampler=sampler, num_workers=0)
    count, start = 0, 0.0
    for number, batch in enumerate(batches):
        now = time.perf_counter()
        if number == 0:  # warm
            start = now
            continue
        count += len(batch["action"])
        if now - start > task["seconds"]:
            break
    return count / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
