"""``robolearn dataset validate``, ``checksums`` and ``repair``: faults of a data set, and recovery after a kill."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from robolearn.cli.dataset.common import megabytes
from robolearn.core import BadInput
from robolearn.core.switches import switch
from robolearn.io.paths import no_such_folder
from robolearn.runs import Progress
from robolearn.runs.command import PLAIN, Command, print_table


@dataclass(frozen=True, kw_only=True)
class DatasetValidate(Command):
    """Check everything about a data set and list every fault with its file, episode and frame. Exit code 1 if any.

    Example: robolearn dataset validate data/lift
    """

    data: tyro.conf.Positional[Path]
    """The data set."""
    video: Annotated[bool, switch("video")] = True
    """Decode every frame of every video; without it only their headers are read."""
    frozen_s: float = 1.0
    """Longest time that a camera may show the same picture while the arm moves [s]."""
    gap_s: float = 0.25
    """Longest time that a raw timestamp may stand still, or jump [s]; three steps at least."""
    picture_age_s: float = 0.5
    """The same of a picture [s], to which three steps are added, and --gap-s at least: max_age_s of the camera in the
    contract."""

    def run(self) -> dict[str, Any]:
        """``{"dataset", "ok", "checked", "findings": [{"check", "where", "what", "file", "episode", "frame"}],
        "notes": [sentence]}``; notes are no faults."""
        from robolearn.data.lerobot import layout
        from robolearn.data.validate import Tolerances, validate

        if not self.data.is_dir():
            raise BadInput(f"data set {self.data}: {no_such_folder(self.data)}", hint=layout.A_SET)
        given = {"frozen_s": self.frozen_s, "gap_s": self.gap_s, "picture_age_s": self.picture_age_s}
        for name, value in given.items():
            if not value > 0:
                raise BadInput(f"--{name.replace('_', '-')}", got=value, expected="a positive number")
        limits = Tolerances(decode=self.video, **given)
        total = sum(1 for _ in self.data.glob("videos/*/*/*.mp4"))
        with Progress("checking", total=total, unit="videos", quiet=self.json or not total) as progress:
            count, notes = itertools.count(1), list[str]()
            findings = list(validate(self.data, limits, lambda name: progress(next(count), {}), notes))
        return {
            "dataset": str(self.data),
            "ok": not findings,
            "findings": [{"where": finding.where, **asdict(finding)} for finding in findings],
            "notes": notes,
        }

    def exit_code(self, result: Mapping[str, Any]) -> int:
        return 0 if result["ok"] else 1

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        from rich.markup import escape

        for note in result["notes"]:
            console.print(f"[yellow]note[/yellow] {escape(note)}")
        if result["ok"]:
            console.print(f"[green]{result['dataset']}: nothing wrong[/green]")
            return
        rows = [(f"[red]{f['check']}[/red]", escape(f["where"]), escape(f["what"])) for f in result["findings"]]
        print_table(console, ("check", "where", "what"), rows, **PLAIN)
        console.print(f"\n[red]{result['dataset']}: {len(result['findings'])} faults[/red]")


@dataclass(frozen=True, kw_only=True)
class DatasetChecksums(Command):
    """Write checksums of all files of a data set into it: readers over HTTP and `dataset validate` find flipped bits by
    them. What is recorded into the set later makes them stale; the same command renews them.

    Example: robolearn dataset checksums data/lift
    """

    data: tyro.conf.Positional[Path]
    """The data set."""

    def run(self) -> dict[str, Any]:
        from robolearn.data.lerobot import layout
        from robolearn.data.lerobot.checksums import CHECKSUMS_PATH, files_of
        from robolearn.data.writing.checksums import write_checksums

        if not self.data.is_dir():
            raise BadInput(f"data set {self.data}: {no_such_folder(self.data)}", hint=layout.A_SET)
        with Progress("reading", total=len(files_of(self.data)), unit="files", quiet=self.json) as progress:
            found = write_checksums(self.data, progress)
        size, blocks = sum(one.size for one in found.values()), sum(len(one.sha256) for one in found.values())
        file = str(self.data / CHECKSUMS_PATH)
        return {"dataset": str(self.data), "file": file, "files": len(found), "blocks": blocks, "bytes": size}

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        what = f"{result['files']} files, {megabytes(result['bytes'])}, in {result['blocks']} blocks"
        console.print(f"[bold]{result['file']}[/bold]: checksums of {what}")


@dataclass(frozen=True, kw_only=True)
class DatasetRepair(Command):
    """Bring a set that a killed recording left behind in order: its running episode is kept as far as it got.

    Finished episodes are never touched; those that meta/info.json has lost sight of are counted again, and lost rows of
    meta/episodes are made again. Hidden copies that killed edits left beside the set are listed; of a folder that is no
    set, only these.

    Example: robolearn dataset repair data/lift
    """

    data: tyro.conf.Positional[Path]
    """The data set, or a folder with data sets."""
    clear: bool = False
    """Remove the copies that killed edits, imports, exports and repairs have left."""

    def run(self) -> dict[str, Any]:
        """``{"dataset", "episodes", "frames", "saved": [{"episode", "frames"}], "adopted": [{"episode", "frames"}],
        "rebuilt": [episode], "lost_frames", "left_over": [{"path", "bytes", "what", "cleared"}]}``; of a folder that is
        no set only the first and the last."""
        from robolearn.data.lerobot import layout
        from robolearn.data.writing.repair import repair
        from robolearn.data.writing.uncommitted import clear, leftovers

        result: dict[str, Any] = {"dataset": str(self.data)}
        holder = not (self.data / layout.INFO_PATH).exists() and self.data.is_dir()
        left = list(leftovers(self.data if holder else self.data.absolute().parent))
        if not (holder and (left or any(self.data.glob(f"*/{layout.INFO_PATH}")))):
            done = repair(self.data)
            result |= {"episodes": done.episodes, "frames": done.frames, "rebuilt": done.rebuilt}
            result |= {"lost_frames": done.lost}
            for name, pairs in (("saved", done.saved), ("adopted", done.adopted)):
                result[name] = [{"episode": episode, "frames": frames} for episode, frames in pairs]
            left = list(leftovers(self.data.absolute().parent))
        for one in left if self.clear else ():
            clear(one)
        facts = ({"path": str(one.path), "bytes": one.size, "what": one.what} for one in left)
        result["left_over"] = [{**one, "cleared": self.clear} for one in facts]
        return result

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        if "episodes" in result:
            console.print(f"[bold]{result['dataset']}[/bold]: {result['episodes']} episodes, {result['frames']} frames")
            for adopted in result["adopted"]:
                console.print(f"[green]counted again[/green] episode {adopted['episode']}, {adopted['frames']} frames")
            if rebuilt := result["rebuilt"]:
                console.print(f"[green]made again[/green] the rows of {len(rebuilt)} episodes in meta/episodes")
            for saved in result["saved"]:
                console.print(f"[green]saved[/green] episode {saved['episode']}, {saved['frames']} frames")
            if result["lost_frames"]:
                console.print(f"[yellow]{result['lost_frames']} frames could not be saved[/yellow]")
            if not any(result[key] for key in ("saved", "adopted", "rebuilt", "lost_frames")):
                console.print("no unfinished episode")
        for one in result["left_over"]:
            verb = "[green]removed[/green]" if one["cleared"] else "[yellow]left over[/yellow]"
            console.print(f"{verb} {one['path']} ({megabytes(one['bytes'])}): {one['what']}")
        if any(not one["cleared"] for one in result["left_over"]):
            console.print("--clear removes what is left over")
