"""``robolearn dataset info``: what a data set holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from robolearn.cli.dataset.common import duration, megabytes
from robolearn.runs.command import Command

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, kw_only=True)
class Info(Command):
    """Say what a data set holds: robot, features, cameras, episodes, tasks, sizes on disk.

    Example: robolearn dataset info data/lift
    """

    data: tyro.conf.Positional[Path]
    """The data set."""

    def run(self) -> dict[str, Any]:
        import numpy as np

        from robolearn.data.convert.dataset_source import interface_with_images, open_numbers

        dataset = open_numbers(self.data)
        interface = interface_with_images(dataset)
        hz = float(dataset.info["fps"])
        spoken = [np.unique(dataset.task_index[dataset.frames_of([e])]) for e in range(dataset.episodes)]
        counts = Counter(int(task) for tasks in spoken for task in tasks)
        intervention = dataset.intervention
        return {
            "dataset": str(self.data),
            "format": dataset.info["codebase_version"],
            "robot": interface.embodiment,
            "action": {"kind": interface.action_kind, "size": interface.action.size, "names": interface.action.names},
            "control_hz": hz,
            "observation": {
                key: {"shape": spec.shape, "names": spec.names}
                for key, spec in interface.observation.items()
                if not key.startswith("images.")
            },
            "cameras": {
                key.removeprefix("images."): {
                    "shape": spec.shape,
                    "codec": _codec(dataset.features, key),
                }
                for key, spec in interface.observation.items()
                if key.startswith("images.")
            },
            "episodes": dataset.episodes,
            "frames": dataset.frames,
            "length": {
                "min": int(dataset.lengths.min()),
                "median": float(np.median(dataset.lengths)),
                "max": int(dataset.lengths.max()),
            },
            "duration_s": dataset.frames / hz,
            "successes": int(dataset.success.sum()) if dataset.outcomes else None,
            "interventions": {
                "frames": int(intervention.sum()),
                "episodes": int(np.logical_or.reduceat(intervention, dataset.starts).sum()),
            },
            "stamps": sorted(dataset.stamps),
            "tasks": {dataset.tasks[task]: counts[task] for task in sorted(counts)},
            "episodes_of_several_tasks": sum(len(tasks) > 1 for tasks in spoken),
            "bytes": _sizes(self.data),
            "extra": dict(interface.extra),
        }

    def show(self, result: Mapping[str, Any], console: Console) -> None:
        from rich.table import Table

        table = Table.grid(padding=(0, 2))

        def row(name: str, text: str) -> None:
            table.add_row(f"[bold]{name}[/bold]", text)

        length = result["length"]
        row("data set", f"{result['dataset']}  (LeRobotDataset {result['format']})")
        row("robot", f"{result['robot']} at {result['control_hz']:g} Hz")
        action = result["action"]
        row("action", f"{action['kind']}, {action['size']}{_names(action['names'])}")
        for key, spec in result["observation"].items():
            row(key, f"{' × '.join(str(n) for n in spec['shape'])}{_names(spec['names'])}")
        for name, camera in result["cameras"].items():
            height, width = camera["shape"][:2]
            row(f"camera {name}", f"{width} × {height} {camera['codec']}")
        row(
            "episodes",
            f"{result['episodes']}, of {length['min']} to {length['max']} steps (median {length['median']:g})",
        )
        known = f"{result['successes']} of {result['episodes']}"
        row("successes", "nobody said" if result["successes"] is None else known)
        row("frames", f"{result['frames']}, {duration(result['duration_s'])}")
        if result["interventions"]["frames"]:
            row(
                "interventions",
                f"{result['interventions']['frames']} frames in {result['interventions']['episodes']} episodes",
            )
        if result["stamps"]:
            row("timestamps", ", ".join(result["stamps"]))
        for task, count in result["tasks"].items():
            row("task", f"{task!r}: {count} episodes")
        if several := result["episodes_of_several_tasks"]:
            row("", f"{several} episodes are of several tasks, one after the other")
        sizes = result["bytes"]
        row("on disk", ", ".join(f"{name} {megabytes(size)}" for name, size in sizes.items() if size))
        if "action_scale" in result["extra"]:
            row("note", "the actions were scaled into [-1, 1] when they were imported")
        console.print(table)


def _codec(features: Mapping[str, Any], key: str) -> str:
    from robolearn.data.lerobot.features import column

    feature = features.get(column(key), {})
    return str((feature.get("info") or {}).get("video.codec", feature.get("dtype", "?")))


def _names(names: Any) -> str:
    if not names:
        return ""
    text = ", ".join(names[:8])
    return f" ({text}{', …' if len(names) > 8 else ''})"


def _sizes(root: Path) -> dict[str, int]:
    sizes = {"data": 0, "videos": 0, "meta": 0, "other": 0}
    for path in root.rglob("*"):
        if path.is_file() and not path.is_symlink():
            top = path.relative_to(root).parts[0]
            sizes[top if top in sizes else "other"] += path.stat().st_size
    return {**sizes, "total": sum(sizes.values())}
