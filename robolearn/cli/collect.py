"""``robolearn collect``: demonstrations of a task by its scripted expert."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robolearn.cli.choices import DemoQuality
from robolearn.cli.suite import run_suite, show_suite
from robolearn.cli.view import WorkView, check_watched, watched
from robolearn.core.switches import Count, Seed
from robolearn.runs import Progress
from robolearn.runs.command import Command, peek
from sim.registry import WorldConfig

if TYPE_CHECKING:
    from robolearn.eval import Success


@dataclass(frozen=True, kw_only=True)
class Collect(Command):
    """Record demonstrations of a task by its scripted expert, as a LeRobotDataset v3.0."""

    world: WorldConfig = field(default_factory=WorldConfig)
    episodes: Count = 200
    """Number of episodes, successful or not."""
    quality: DemoQuality = "mixed"
    """Quality of the demonstrations; narrow: an expert on the middle half of the starts alone; fair, mixed and poor:
    two strategies, each with its own error of aim, some haste; missed to distractor: failures of this kind, failures:
    of all kinds that the world has, in turn; the column failure of the set labels them. distractor asks for
    --distractor."""
    out: Path
    """The data set's folder."""
    seed: Seed = 0
    """Of starts and of the expert's mistakes."""
    worlds: Count = 50
    """Worlds side by side."""
    view: WorkView = "none"
    resume: bool = False
    """Go on until an existing data set has this many episodes."""

    @classmethod
    def defaults(cls, args: Sequence[str]) -> dict[str, Any]:
        task = peek(args, "--task", WorldConfig.task)
        return {"quality": "expert"} if ":" in task else {}  # who comes with a world of another maker has no other

    def run(self) -> dict[str, Any]:
        from robolearn.data.reading.reader import Dataset
        from robolearn.data.writing.writer import EpisodeWriter
        from robolearn.rollout.collect import collect
        from robolearn.rollout.collected_starts import CollectedStarts, note_starts
        from sim.experts import demonstrator, named_quality

        if (suite := run_suite(self, _success)) is not None:
            return suite
        check_watched(self.view, self.world)
        begun = time.perf_counter()
        worlds = min(self.worlds, self.episodes)
        quality = named_quality(self.quality)
        task, share = self.world.task, self.world.start_range
        share = quality.start_range if share is None else share
        world = replace(self.world, start_range=share) if self.world.family.has_start_range else self.world
        with closing(watched(world.build(worlds), self.view, "collecting", "The collecting is over.")) as env:
            demonstrator(task, env, self.quality, self.seed)  # a task without one writes nothing
            labels = bool(quality.failures)
            with EpisodeWriter(self.out, env.interface, resume=self.resume, failures=labels) as writer:
                have = writer.episodes
                # A resumed recording must not meet the starts and the mistakes of the first part again.
                seed = self.seed * 1_000_003 + have
                expert = demonstrator(task, env, self.quality, seed if have else self.seed)
                left = max(self.episodes - have, 0)
                if world.family.has_snapshots and left and not world.distractor:
                    starts = (env.interface.embodiment, share, world.dynamics, seed, env.num_envs, left)
                    note_starts(self.out, CollectedStarts(task, *starts))
                with Progress(f"collecting {task}", total=left, unit="episodes", quiet=self.json) as progress:
                    collect(env, expert, writer, left, seed, progress=progress, failure=expert.failure)
                total, frames = writer.episodes, writer.frames
            robot = env.interface.embodiment
        stored = Dataset.open(self.out)
        kinds = Counter(kind for kind in stored.failure if kind)
        return {
            "dataset": str(self.out),
            "task": task,
            "quality": self.quality,
            "robot": robot,
            "start_range": share,
            "cameras": list(self.world.cameras),
            **({"cousins": self.world.cousins} if self.world.differences() else {}),
            **({"distractor": True} if self.world.distractor else {}),
            "episodes": total,
            "frames": frames,
            "expert_success": float(stored.success.mean()),
            **({"failures": dict(kinds)} if kinds else {}),
            "wall_s": {"total": time.perf_counter() - begun},
        }

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        r = result
        if "suite" in r:
            show_suite(r, console, _success)
            data = f"{self.out}/* --observe proprio {'images' if self.world.cameras else 'objects'} prompt"
            console.print(f"next        robolearn train --data {data} --out runs/… : one policy that imitates all")
            return
        console.print(f"data set    {r['dataset']}: {r['episodes']} episodes, {r['frames']:,} frames")
        console.print(f"success     {r['expert_success']:.1%} of them, {r['quality']} demonstrations of {r['task']} by "
                      f"the {r['robot']}, in {r['wall_s']['total']:.0f} s")  # fmt: skip
        following = f"robolearn train --data {r['dataset']} --out runs/… : a policy that imitates them"
        if not r["expert_success"]:  # nothing to imitate
            data = f"SUCCESSES {r['dataset']}"
            following = f"robolearn reward train --data {data} --out runs/… : a critic that tells both apart"
        console.print(f"next        {following}")


def _success(result: Mapping[str, Any]) -> Success:
    """Success of the demonstrations in a result."""
    from robolearn.eval import Success

    return Success.of(round(result["expert_success"] * result["episodes"]), result["episodes"])
