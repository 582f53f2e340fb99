"""The table of commands. Only the command that is asked for is imported, so `robolearn --help` answers at once.

To add the command ``collect``:

1. write ``robolearn/cli/collect.py``; it imports torch, mujoco and other rooms only inside `run`::

    @dataclass(frozen=True, kw_only=True)
    class Collect(Command):
        \"\"\"Record demonstrations of a task by its scripted expert.\"\"\"

        task: str = "lift"
        \"\"\"Which task.\"\"\"

        def run(self) -> dict[str, Any]:
            return {"episodes": ...}

2. add ``Entry("collect", "robolearn.cli.collect:Collect", "Record demonstrations", "Demonstrations")`` below.

Names of two or three words, such as ``benchmark sim``, work as well. A positional argument is a field of type
``tyro.conf.Positional[...]``. Bad input is raised as `BadInput`; `main` turns it into one line and exit code 2.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from robolearn.core import BadInput

if TYPE_CHECKING:
    from robolearn.runs.command import Command


@dataclass(frozen=True)
class Entry:
    """One command.

    Attributes:
      name: as typed, one to three words.
      target: ``module:Class`` of the `Command`.
      summary: half a line for ``robolearn --help``.
      group: the heading that it stands under there.
    """

    name: str
    target: str
    summary: str
    group: str

    def load(self) -> type[Command]:
        """Import the command's class."""
        module, name = self.target.split(":")
        return getattr(import_module(module), name)


def _data(name: str, target: str, summary: str) -> Entry:
    return Entry(f"dataset {name}", f"robolearn.cli.dataset.{target}", summary, "Data")


_UPDATES = "Speed of the learner, beside LeRobot"

ENTRIES: tuple[Entry, ...] = (
    Entry("quickstart", "robolearn.cli.quickstart:Quickstart", "All of it on one task, with a report", "Begin"),
    Entry("doctor", "robolearn.cli.doctor:Doctor", "What this machine can do, and what mends it", "Begin"),
    Entry("presets", "robolearn.cli.config_file:Presets", "Settings that have a name", "Begin"),
    Entry("record", "robolearn.cli.record:Record", "Record demonstrations by an operator", "Learn"),
    Entry("collect", "robolearn.cli.collect:Collect", "Record demonstrations by a scripted expert", "Learn"),
    _data("info", "inspection:DatasetInfo", "What a data set holds"),
    _data("stats", "inspection:DatasetStats", "Exact statistics of every feature"),
    _data("validate", "faults:DatasetValidate", "Every fault, with its place"),
    _data("quality", "quality:DatasetQuality", "Rank episodes; which to drop, and why"),
    _data("repair", "faults:DatasetRepair", "Mend what a killed recording left"),
    _data("view", "inspection:DatasetView", "Look at episodes in rerun"),
    _data("edit drop", "edits:DatasetDrop", "A new set without some episodes"),
    _data("edit split", "edits:DatasetSplit", "Divide the episodes over new sets"),
    _data("edit merge", "edits:DatasetMerge", "One new set of several"),
    _data("edit rename-task", "edits:DatasetRenameTask", "Other words for a task"),
    _data("edit crop", "edits:DatasetCrop", "Cut steps at the start or end of episodes"),
    _data("edit subsample", "edits:DatasetSubsample", "Every n-th frame"),
    _data("import", "exchange:DatasetImport", "From other formats of demonstrations"),
    _data("export", "exchange:DatasetExport", "To other formats of demonstrations"),
    Entry("train", "robolearn.cli.train:Train", "Train a policy on demonstrations", "Learn"),
    Entry("distill", "robolearn.cli.distill:Distill", "Teach a policy that sees by one that knows", "Learn"),
    Entry("finetune", "robolearn.cli.finetune:Finetune", "Make a policy reliable by online RL", "Learn"),
    Entry("hil run", "robolearn.cli.hil.run:HilRun", "Teach a policy: actor, learner and operator", "Learn"),
    Entry("hil learner", "robolearn.cli.hil.learner:HilLearner", "Learn from what actors send", "Learn"),
    Entry("hil actor", "robolearn.cli.hil.actor:HilActor", "Act for a learner, watched by an operator", "Learn"),
    Entry("hil certs", "robolearn.cli.hil.certs:HilCerts", "Certificates for actors on other machines", "Learn"),
    Entry("hub push", "robolearn.cli.hub.commands:HubPush", "A policy or a data set to a hub", "Share"),
    Entry("hub pull", "robolearn.cli.hub.commands:HubPull", "A policy or a data set from a hub", "Share"),
    Entry("export", "robolearn.cli.export:Export", "A policy as an ONNX file", "Deploy"),
    Entry("deploy", "robolearn.cli.deploy:Deploy", "A policy on an arm, behind the safety filter", "Deploy"),
    Entry("operate", "robolearn.cli.station:Operate", "Arm, stop and reset an arm that ros2 launch runs", "Deploy"),
    Entry("driver", "robolearn.cli.station:Driver", "Drive an arm of servos that has no ROS driver", "Deploy"),
    Entry("calibrate", "robolearn.cli.calibrate:Calibrate", "Where a camera is mounted, by a printed board", "Deploy"),
    Entry("permissions", "robolearn.cli.station:Permissions", "A policy of SROS2 for our nodes", "Deploy"),
    Entry("evaluate", "robolearn.cli.evaluate:Evaluate", "Success with its interval; A versus B", "Measure"),
    Entry("benchmark sim", "robolearn.bench.sim:BenchmarkSim", "Speed of the simulation", "Measure"),
    Entry("benchmark hil", "robolearn.bench.hil:BenchmarkHil", "What a human in the loop is worth", "Measure"),
    Entry("benchmark hil-updates", "robolearn.bench.hil_updates:BenchmarkHilUpdates", _UPDATES, "Measure"),
    Entry("benchmark policy", "robolearn.bench.policy:BenchmarkPolicy", "Latency of decisions", "Measure"),
    Entry("benchmark rl", "robolearn.cli.benchmark_rl:BenchmarkRl", "Success of RL over settings and seeds", "Measure"),
    Entry("benchmark data", "robolearn.bench.data:BenchmarkData", "Recording and reading images", "Measure"),
    Entry("benchmark encoders", "robolearn.bench.encoders:BenchmarkEncoders", "Speed of encoders", "Measure"),
    Entry("benchmark safety", "robolearn.bench.safety.benchmark:BenchmarkSafety", "Fuzz the safety filter", "Measure"),
    Entry("benchmark faults", "robolearn.bench.faults.benchmark:BenchmarkFaults", "Faults of a station", "Measure"),
    Entry("sweep", "robolearn.cli.sweep:Sweep", "A training over seeds and settings", "Learn"),
    Entry("runs", "robolearn.cli.runs:Runs", "List the runs: finished, resumable, in use", "Measure"),
    Entry("runs compare", "robolearn.cli.runs:RunsCompare", "Settings and results side by side", "Measure"),
    Entry("runs rm", "robolearn.cli.runs:RunsRm", "Remove runs that nobody works in", "Measure"),
)

EXAMPLES: tuple[tuple[str, str], ...] = (
    ("robolearn quickstart", "demonstrations, imitation, RL, report"),
    ("robolearn collect --task lift --out data/lift", "200 demonstrations"),
    ("robolearn train --data data/lift --out runs/bc", "a flow policy"),
    ("robolearn finetune --policy runs/bc --task lift --out runs/rl", "ReinFlow"),
    ("robolearn evaluate --policy runs/bc --against runs/rl --task lift", "which is better, how sure"),
)


def find(argv: list[str], entries: tuple[Entry, ...] = ENTRIES) -> tuple[Entry, list[str]]:
    """The entry that `argv` begins with, and the arguments that are left.

    Raises:
      BadInput: there is none.
    """
    by_name = {entry.name: entry for entry in entries}
    for words in (3, 2, 1):
        entry = by_name.get(" ".join(argv[:words]))
        if entry is not None and len(argv) >= words:
            return entry, argv[words:]
    for words in (2, 1):
        begun = " ".join(argv[:words])
        below = [entry.name for entry in entries if entry.name.startswith(f"{begun} ")]
        if below and len(argv) >= words:
            rest = " ".join(argv[: words + 1])
            raise BadInput(f"command {begun!r}", got=rest, expected="one word more", available=below)
    near = difflib.get_close_matches(argv[0], [*by_name, *(name.split()[0] for name in by_name)], n=1, cutoff=0.5)
    meant = f" (did you mean {near[0]}?)" if near else ""
    raise BadInput("command", got=f"{argv[0]}{meant}", expected="one that robolearn --help lists")
