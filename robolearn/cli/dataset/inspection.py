"""``robolearn dataset info``, ``stats`` and ``view``: the content of a data set."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from robolearn.cli.dataset.common import duration, episode_list, megabytes
from robolearn.core import BadInput, RobolearnError
from robolearn.runs import Progress
from robolearn.runs.command import PLAIN, Command, check_port, print_table

if TYPE_CHECKING:
    from robolearn.data.reading.reader import Dataset


@dataclass(frozen=True, kw_only=True)
class DatasetInfo(Command):
    """Say what a data set holds: robot, features, cameras, episodes, tasks, sizes on disk.

    Example: robolearn dataset info data/lift
    """

    data: tyro.conf.Positional[Path]
    """The data set."""

    def run(self) -> dict[str, Any]:
        import numpy as np

        from robolearn.data.convert.source import interface_with_images, open_numbers

        dataset = open_numbers(self.data)
        interface = interface_with_images(dataset)
        hz = float(dataset.info["fps"])
        spoken = [np.unique(dataset.task_index[dataset.frames_of([e])]) for e in range(dataset.episodes)]
        counts = Counter(int(task) for tasks in spoken for task in tasks)
        intervention, lengths = dataset.intervention, dataset.lengths
        return {
            "dataset": str(self.data),
            "format": dataset.info["codebase_version"],
            "robot": interface.embodiment,
            "action": {"kind": interface.action_kind, "size": interface.action.size, "names": interface.action.names},
            "control_hz": hz,
            "measured_hz": _measured(dataset),
            "observation": {
                key: {"shape": spec.shape, "names": spec.names}
                for key, spec in interface.observation.items()
                if not key.startswith("images.")
            },
            "cameras": {
                key.removeprefix("images."): {"shape": spec.shape, "codec": _codec(dataset.features, key)}
                for key, spec in interface.observation.items()
                if key.startswith("images.")
            },
            "episodes": dataset.episodes,
            "frames": dataset.frames,
            "length": {"min": int(lengths.min()), "median": float(np.median(lengths)), "max": int(lengths.max())},
            "duration_s": dataset.frames / hz,
            "successes": int(dataset.success.sum()) if dataset.outcomes else None,
            "interventions": {
                "frames": int(intervention.sum()),
                "episodes": int(np.logical_or.reduceat(intervention, dataset.starts).sum()),
            },
            "stamps": sorted(dataset.stamps),
            "texts": list(dataset.texts.names),
            "tasks": {dataset.tasks[task]: counts[task] for task in sorted(counts)},
            "episodes_of_several_tasks": sum(len(tasks) > 1 for tasks in spoken),
            "bytes": _sizes(self.data),
            "extra": dict(interface.extra),
        }

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        from rich.table import Table

        table = Table.grid(padding=(0, 2))

        def row(name: str, text: str) -> None:
            table.add_row(f"[bold]{name}[/bold]", text)

        length = result["length"]
        row("data set", f"{result['dataset']}  (LeRobotDataset {result['format']})")
        row("robot", f"{result['robot']} at {result['control_hz']:g} Hz")
        if measured := result["measured_hz"]:
            row("measured", f"{measured['median']:.4g} Hz, by episode {measured['min']:.4g} to {measured['max']:.4g}")
        action = result["action"]
        row("action", f"{action['kind']}, {action['size']}{_names(action['names'])}")
        for key, spec in result["observation"].items():
            row(key, f"{' × '.join(str(n) for n in spec['shape'])}{_names(spec['names'])}")
        for name, camera in result["cameras"].items():
            height, width = camera["shape"][:2]
            row(f"camera {name}", f"{width} × {height} {camera['codec']}")
        steps = f"{length['min']} to {length['max']} steps (median {length['median']:g})"
        row("episodes", f"{result['episodes']}, of {steps}")
        known = f"{result['successes']} of {result['episodes']}"
        row("successes", "not recorded" if result["successes"] is None else known)
        row("frames", f"{result['frames']}, {duration(result['duration_s'])}")
        if (taken := result["interventions"])["frames"]:
            row("interventions", f"{taken['frames']} frames in {taken['episodes']} episodes")
        if result["stamps"]:
            row("timestamps", ", ".join(result["stamps"]))
        if result["texts"]:
            row("texts", ", ".join(result["texts"]))
        for task, count in result["tasks"].items():
            row("task", f"{task!r}: {count} episodes")
        if several := result["episodes_of_several_tasks"]:
            row("", f"{several} episodes are of several tasks, one after the other")
        sizes = result["bytes"]
        row("on disk", ", ".join(f"{name} {megabytes(size)}" for name, size in sizes.items() if size))
        if "action_scale" in result["extra"]:
            unit = result["extra"]["action_scale"].get("unit")
            by = f"from {unit} to the limits of the joints" if unit else "by their extremes, which no arm knows"
            row("note", f"the actions were scaled into [-1, 1] when they were imported, {by}")
        console.print(table)


def _measured(dataset: Dataset) -> dict[str, float] | None:
    """Control steps a second of the episodes that say when their actions were executed; None where none does."""
    import numpy as np

    from robolearn.data.lerobot.columns import stamped_rate

    stamps = dataset.stamps.get("action", np.empty(0))
    parts = np.split(stamps, dataset.starts[1:]) if len(stamps) else []
    rates = [rate for rate in map(stamped_rate, parts) if rate]
    return {"min": min(rates), "median": float(np.median(rates)), "max": max(rates)} if rates else None


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


SHOWN = ("min", "q01", "mean", "std", "q99", "max")


@dataclass(frozen=True, kw_only=True)
class DatasetStats(Command):
    """Exact statistics of every vector of a data set, over all its frames.

    Example: robolearn dataset stats data/lift --episodes 0-9
    """

    data: tyro.conf.Positional[Path]
    """The data set."""
    episodes: str = ""
    """Which episodes, such as 3,7,10-19; all of them if not given."""

    def run(self) -> dict[str, Any]:
        """``{"features": {name: {"names": […], "min": […], …}}}``, and a note on what ``meta/stats.json`` has else."""
        from robolearn.data.convert.source import open_numbers
        from robolearn.data.lerobot.layout import STATS_PATH
        from robolearn.data.lerobot.statistics import BOUNDS

        dataset = open_numbers(self.data)
        pictures = any(feature["dtype"] in ("image", "video") for feature in dataset.features.values())
        chosen = episode_list(self.episodes, dataset.episodes) if self.episodes else None
        specs = {**dataset.interface.observation, "action": dataset.interface.action}
        return {
            "dataset": str(self.data),
            "episodes": dataset.episodes if chosen is None else len(chosen),
            "features": {
                key: {"names": list(specs[key].names), **{name: values.tolist() for name, values in stats.items()}}
                for key, stats in dataset.statistics(chosen).items()
            },
            "note": f"{STATS_PATH} has those of pictures, too: {BOUNDS}" if pictures else "",
        }

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        import numpy as np

        rows = []
        for key, stats in result["features"].items():
            columns = {column: np.array(stats[column]) for column in SHOWN}
            # A single number has one place, (); a matrix has (0, 0), (0, 1), …
            for i, place in enumerate(np.ndindex(columns["mean"].shape)):
                name = stats["names"][i] if stats["names"] else ",".join(map(str, place))
                rows.append((key if not i else "", name, *(f"{columns[column][place]:.4g}" for column in SHOWN)))
        print_table(console, ("feature", "component", *SHOWN), rows, **PLAIN)
        if result["note"]:
            console.print(result["note"])


@dataclass(frozen=True, kw_only=True)
class DatasetView(Command):
    """Look at episodes: a grid of films on a page in the browser, or images, vectors and actions in the rerun viewer.

    Example: robolearn dataset view data/lift --browser
    """

    data: tyro.conf.Positional[Path]
    """The data set."""
    episodes: str = ""
    """Which episodes, such as 3,7,10-19, or all; by default all on the page, and the first one in rerun."""
    save: Path | None = None
    """Write a file that `rerun FILE` opens, in place of opening the viewer."""
    browser: bool = False
    """Open a page of this machine alone in place of rerun: all episodes, by outcome, task, length and score."""
    port: int = 0
    """Port of that page; 0 for any."""

    def run(self) -> dict[str, Any]:
        from robolearn.data.convert.source import open_numbers
        from robolearn.data.reading.reader import Dataset

        check_port(self.port)
        if self.save is not None and self.browser:
            raise BadInput("--save", got="beside --browser", expected="one of the two")
        if self.save is not None and self.save.exists():
            raise BadInput("--save", got=f"{self.save}, which is there", expected="a new file")
        dataset = Dataset.open(self.data) if self.browser else open_numbers(self.data)
        wanted = self.episodes or ("all" if self.browser else "0")
        everything = f"0-{dataset.episodes - 1}"
        episodes = episode_list(everything if wanted == "all" else wanted, dataset.episodes)
        if self.browser:
            return self._page(dataset, episodes)
        if self.save is not None:
            return self._write(dataset, episodes, self.save)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "episodes.rrd"
            result = self._write(dataset, episodes, file)
            # By itself the viewer would also take connections from other machines.
            viewer = [sys.executable, "-P", "-m", "rerun", str(file)]
            done = subprocess.run([*viewer, "--bind", "127.0.0.1", "--port", "auto"])
        if done.returncode:
            raise RobolearnError("the rerun viewer could not be opened; --save FILE writes what it would show")
        return {**result, "file": None}

    def _page(self, dataset: Dataset, episodes: list[int]) -> dict[str, Any]:
        """Serve the page until it is closed there, or by Ctrl-C here."""
        from robolearn.data.convert.view_page import EpisodeGrid
        from robolearn.data.lerobot.layout import SCORES_PATH
        from robolearn.runs.loopback import show_address

        last = None
        if isinstance(dataset.path, Path) and (dataset.path / SCORES_PATH).exists():
            from robolearn.rewards.stored import read_scores  # loads torch

            last = {e: float(score.progress[-1]) for e, score in read_scores(dataset).items()}
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(EpisodeGrid(dataset, episodes, last).serve(self.port, show_address))
        frames = int(dataset.lengths[episodes].sum())
        return {"dataset": str(self.data), "file": None, "bytes": 0, "episodes": episodes, "frames": frames}

    def _write(self, dataset: Any, episodes: list[int], file: Path) -> dict[str, Any]:
        from robolearn.data.convert.view import save
        from robolearn.data.writing.uncommitted import part_of

        part = part_of(file)
        part.parent.mkdir(parents=True, exist_ok=True)
        try:
            with Progress("reading", total=len(episodes), unit="episodes", quiet=self.json) as progress:
                frames = save(dataset, episodes, part, progress)
            part.replace(file)
        except (OSError, RuntimeError) as error:  # the latter is rerun's
            raise RobolearnError(f"{file} cannot be written ({error})") from error
        finally:
            part.unlink(missing_ok=True)
        place = {"dataset": str(self.data), "file": str(file), "bytes": file.stat().st_size}
        return {**place, "episodes": episodes, "frames": frames}

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        shown = f"{len(result['episodes'])} episodes, {result['frames']} frames"
        if result["file"] is None:
            console.print(f"showed {shown}")
        else:
            console.print(f"[bold]{result['file']}[/bold]: {shown}, {megabytes(result['bytes'])}. Open it with rerun")
