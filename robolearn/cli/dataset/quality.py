"""``robolearn dataset quality``: ranking of demonstrations; which count less or are to be dropped, and why."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import tyro

from robolearn.bench.quality_advice import SEEDS_APART, check_task, prove
from robolearn.core import BadInput
from robolearn.core.switches import Count, Seed
from robolearn.runs.command import Command, check_seed, print_table, rate_text, reported


@dataclass(frozen=True, kw_only=True)
class DatasetQuality(Command):
    """Measure, score and rank the episodes of a data set, and say which count less, which to drop, and why.

    Example: robolearn dataset quality data/lift --weights --prove lift --out quality.html
    """

    data: tyro.conf.Positional[Path]
    """A LeRobotDataset v3.0 folder."""
    weights: bool = False
    """Write the scores as sampling weights into the data set; `robolearn train --weights` uses them."""
    prove: str | None = None
    """A task in simulation: train small policies on all episodes alike, by weight, and without those to drop, and
    compare them there."""
    prove_steps: Count = 1500
    """Gradient steps of each of them."""
    prove_episodes: Count = 400
    """Episodes of each evaluation."""
    seed: Seed = 0
    """Of training and evaluation."""
    out: Path | None = None
    """Write a report with plots to this HTML file."""

    def run(self) -> dict[str, Any]:
        from robolearn.data.quality import Demonstrations, assess
        from robolearn.data.reading.loading import write_weights
        from robolearn.data.reading.reader import Dataset
        from robolearn.eval.quality_page import listed, summary, write_quality_report

        if self.out is not None and (self.out.is_dir() or self.out.suffix != ".html"):
            raise BadInput(f"--out {self.out}", got="no HTML file", expected="a path that ends in .html")
        check_seed(SEEDS_APART + self.seed)
        begun = time.perf_counter()
        dataset = Dataset.open(self.data, images=False)
        if self.prove is not None:
            check_task(self.prove, dataset)
        demonstrations = Demonstrations.of(dataset)
        quality = assess(demonstrations, joint_names(dataset))
        command = f"robolearn dataset quality {self.data}" + (" --weights" if self.weights else "")
        result: dict[str, Any] = {
            "dataset": str(self.data),
            "episodes": dataset.episodes,
            "frames": len(dataset.action),
            "summary": summary(quality),
            "drop": sorted(j.episode for j in quality.of_kind("drop")),
            "look": sorted(j.episode for j in quality.of_kind("look")),
            "saco": quality.saco,
            "tq": quality.tq,
            "success": quality.success,
            "ranking": [{**asdict(j), "weight": j.weight, "reasons": list(j.reasons)} for j in quality.episodes],
        }
        if self.weights:
            write_weights(self.data, quality.weights(), dataset.episodes, command)
            result["weights"] = str(self.data / "meta" / "robolearn_weights.json")
        if self.out is not None:
            proved = f" --prove {self.prove}" if self.prove is not None else ""
            commands = [
                f"{command}{proved} --out {self.out}",
                f"robolearn train --data {self.data} --weights --out runs/bc",
            ]
            title = f"{self.data.name}: quality of the demonstrations"
            report = partial(write_quality_report, self.out, demonstrations, quality, title=title, commands=commands)
            result |= reported(report)
        drops = quality.of_kind("drop")
        if 0 < len(drops) < dataset.episodes:
            clean = self.data.with_name(self.data.name + "-clean")
            result["drop_command"] = f"robolearn dataset edit drop {self.data} --episodes {listed(drops)} --out {clean}"
        if self.prove is not None:
            amount = (self.prove_steps, self.prove_episodes, self.seed, self.json)
            result["proof"] = prove(dataset, quality.weights(), self.prove, *amount)
        result["wall_s"] = {"total": time.perf_counter() - begun}
        return result

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        rows = [
            (str(r["rank"]), str(r["episode"]), f"{r['score']:.0f}", r["verdict"], ", ".join(r["reasons"]))
            for r in result["ranking"]
        ]
        if len(rows) > 40:
            rows[10:-29] = [("…", "", "", "", f"{len(rows) - 39} more: --json or --out has them all")]
        print_table(
            console, ("rank", "episode", "score", "verdict", "why"), rows, title=result["dataset"], title_justify="left"
        )
        console.print("(2.0×): twice the value of the good quarter of the set")
        tq = "not recorded" if result["tq"] is None else f"{result['tq']:.2f}"
        console.print(f"state-action coverage {result['saco']:.2f}, trajectory quality {tq}")
        console.print(result["summary"])
        if "drop_command" in result:
            console.print(result["drop_command"])
        for found in result.get("proof", {}).get("policies", ()):
            console.print(f"trained {found['name']}: {rate_text(found['success'])}")
        for verdict in result.get("proof", {}).get("verdicts", ()):
            console.print(verdict["sentence"])
        for key in ("weights", "report", "report_error"):
            if result.get(key) is not None:
                console.print(f"{key.replace('_error', '')}: {result[key]}")

    def exit_code(self, result: Mapping[str, Any]) -> int:
        return 1 if result.get("report_error") else 0


def joint_names(dataset: Any) -> tuple[str, ...]:
    """Of the arm's joints that have limits."""
    from robots import ROBOTS

    robot = ROBOTS.get(dataset.interface.embodiment)
    return robot.joints if robot is not None else ()
