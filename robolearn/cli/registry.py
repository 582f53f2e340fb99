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

from dataclasses import dataclass
from typing import TYPE_CHECKING

from robolearn.core import BadInput
from robolearn.core.errors import nearest

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
        from pkgutil import resolve_name  # late: the overview does without

        return resolve_name(self.target)


def _data(name: str, target: str, summary: str) -> Entry:
    return Entry(f"dataset {name}", f"robolearn.cli.dataset.{target}", summary, "Data")


def _bench(name: str, target: str, summary: str) -> Entry:
    return Entry(f"benchmark {name}", f"robolearn.bench.{target}", summary, "Measure")


ENTRIES: tuple[Entry, ...] = (
    Entry("quickstart", "robolearn.cli.quickstart:Quickstart", "All steps on one task, with a report", "Begin"),
    Entry("doctor", "robolearn.cli.doctor:Doctor", "Check this machine or a station", "Begin"),
    Entry("worlds", "robolearn.cli.worlds:WorldsList", "List the worlds of other makers and ours", "Begin"),
    Entry("worlds show", "robolearn.cli.worlds:WorldsShow", "Show a world: observations, actions, success", "Begin"),
    Entry("worlds install", "robolearn.cli.worlds:WorldsInstall", "Install the environment of a world", "Begin"),
    Entry("worlds remove", "robolearn.cli.worlds:WorldsRemove", "Remove the environment of a world", "Begin"),
    Entry("tasks", "robolearn.cli.worlds:TasksList", "List our tasks", "Begin"),
    Entry("robots", "robolearn.cli.robots:ListRobots", "List the arms and their contracts", "Begin"),
    Entry("presets", "robolearn.cli.config_file:Presets", "List named presets", "Begin"),
    Entry("record", "robolearn.cli.record:Record", "Record teleoperated demonstrations", "Learn"),
    Entry("collect", "robolearn.cli.collect:Collect", "Generate demonstrations with a scripted expert", "Learn"),
    _data("info", "inspection:DatasetInfo", "Summarise a data set"),
    _data("stats", "inspection:DatasetStats", "Compute statistics of every feature"),
    _data("validate", "faults:DatasetValidate", "List every fault and its place"),
    _data("checksums", "faults:DatasetChecksums", "Write checksums, which find flipped bits"),
    _data("quality", "quality:DatasetQuality", "Rank episodes by quality"),
    _data("repair", "faults:DatasetRepair", "Repair an interrupted recording"),
    _data("view", "inspection:DatasetView", "View episodes in rerun"),
    _data("edit drop", "edits:DatasetDrop", "Drop episodes"),
    _data("edit split", "edits:DatasetSplit", "Split episodes over new sets"),
    _data("edit merge", "edits:DatasetMerge", "Merge several sets"),
    _data("edit rename-task", "edits:DatasetRenameTask", "Change the words of a task"),
    _data("edit crop", "edits:DatasetCrop", "Crop the start or end of episodes"),
    _data("edit subsample", "edits:DatasetSubsample", "Keep every n-th frame"),
    _data("edit corrupt", "corruption:DatasetCorrupt", "Make a share of the steps wrong, for tests"),
    _data("label-actions", "actions:DatasetLabelActions", "Predict the actions of a set that has none"),
    _data("import", "edits:DatasetImport", "Import other formats and ROS bags"),
    _data("export", "edits:DatasetExport", "Export to other formats and ROS bags"),
    Entry("train", "robolearn.cli.train:Train", "Train a policy by imitation", "Learn"),
    Entry("distill", "robolearn.cli.distill:Distill", "Distil a privileged policy into a visuomotor one", "Learn"),
    Entry("finetune", "robolearn.cli.finetune:Finetune", "Fine-tune a policy by online RL", "Learn"),
    Entry("hil run", "robolearn.cli.hil.commands:HilRun", "Human-in-the-loop RL on one machine", "Learn"),
    Entry("hil learner", "robolearn.cli.hil.commands:HilLearner", "Learner of human-in-the-loop RL", "Learn"),
    Entry("hil actor", "robolearn.cli.hil.commands:HilActor", "Actor of human-in-the-loop RL", "Learn"),
    Entry("hil certs", "robolearn.cli.hil.commands:HilCerts", "Make TLS certificates for remote actors", "Learn"),
    Entry("reward train", "robolearn.cli.reward_train:RewardTrain", "Train a reward model", "Learn"),
    Entry("reward score", "robolearn.cli.reward:RewardScore", "Score the episodes of a data set", "Learn"),
    Entry("reward label", "robolearn.cli.reward_label:RewardLabel", "Label frames, the least certain first", "Learn"),
    Entry("reward prefer", "robolearn.cli.reward_label:RewardPrefer", "Compare clips, two side by side", "Learn"),
    Entry("reward serve", "robolearn.cli.reward_serve:RewardServe", "Score for several processes", "Learn"),
    Entry("reward evaluate", "robolearn.cli.reward:RewardEvaluate", "Measure a reward model", "Measure"),
    Entry("hub push", "robolearn.cli.hub.commands:HubPush", "Upload a policy or a data set", "Share"),
    Entry("hub pull", "robolearn.cli.hub.commands:HubPull", "Download a policy or a data set", "Share"),
    Entry("export", "robolearn.cli.export:Export", "Export a policy to ONNX", "Deploy"),
    Entry("deploy", "robolearn.cli.deploy:Deploy", "Deploy a policy on an arm behind the safety filter", "Deploy"),
    Entry("operate", "robolearn.cli.station:Operate", "Arm, stop, reset and judge a running deployment", "Deploy"),
    Entry("driver", "robolearn.cli.station:Driver", "Run the ROS 2 driver of a servo arm", "Deploy"),
    Entry("station", "robolearn.cli.station:StationFolder", "Keep and list the versions of a station", "Deploy"),
    Entry("calibrate", "robolearn.cli.calibrate:Calibrate", "Hand-eye and lens calibration of a camera", "Deploy"),
    Entry("identify", "robolearn.cli.identify:Identify", "Identify the dynamics of an arm", "Deploy"),
    Entry("permissions", "robolearn.cli.station:PermissionsCommand", "Write the SROS2 policy of a station", "Deploy"),
    Entry("robots new", "robolearn.cli.robots:NewRobot", "Make a robot of a URDF or MJCF", "Deploy"),
    Entry("robots topics", "robolearn.cli.robots:RobotTopics", "Find the topics of an arm's driver", "Deploy"),
    Entry("robots check", "robolearn.cli.robots:CheckRobot", "Check a robot of one's own", "Deploy"),
    Entry("evaluate", "robolearn.cli.evaluate:Evaluate", "Evaluate a policy, or compare two", "Measure"),
    Entry("trial plan", "robolearn.cli.trial:PlanTrial", "Plan a trial of several policies", "Measure"),
    Entry("trial run", "robolearn.cli.trial:RunTrial", "Run a trial, blind and interleaved", "Measure"),
    Entry("trial judge", "robolearn.cli.trial:CompareTrial", "Verdict of a trial, at any time", "Measure"),
    _bench("sim", "sim:BenchmarkSim", "Simulation throughput"),
    _bench("worlds", "worlds:BenchmarkWorlds", "Speed of worlds in processes"),
    _bench("hil", "hil:BenchmarkHil", "Gain by a human in the loop"),
    _bench("hil-updates", "hil_updates:BenchmarkHilUpdates", "Learner throughput, beside LeRobot"),
    _bench("policy", "policy:BenchmarkPolicy", "Inference latency"),
    Entry("benchmark rl", "robolearn.cli.benchmark_rl:BenchmarkRl", "Success of RL over settings and seeds", "Measure"),
    Entry(
        "benchmark offline",
        "robolearn.cli.benchmark_offline:BenchmarkOffline",
        "Learning from stored demonstrations",
        "Measure",
    ),
    Entry(
        "benchmark rivals",
        "robolearn.cli.benchmark_rivals:BenchmarkRivals",
        "Ways to fine-tune on equal ground",
        "Measure",
    ),
    _bench("data", "data:BenchmarkData", "Throughput of recording and reading"),
    _bench("borders", "borders:BenchmarkBorders", "Import and first look at a newcomer's data"),
    _bench("encoders", "encoders:BenchmarkEncoders", "Throughput of image encoders"),
    _bench("safety", "safety.benchmark:BenchmarkSafety", "Fuzz the safety filter, verify its geometry"),
    _bench("faults", "faults.benchmark:BenchmarkFaults", "Inject faults into a running station"),
    Entry("sweep", "robolearn.cli.sweep:Sweep", "Run a training over seeds and settings", "Learn"),
    Entry("runs", "robolearn.cli.runs:Runs", "List runs: finished, resumable, in use", "Measure"),
    Entry("runs compare", "robolearn.cli.runs:RunsCompare", "Compare settings and results of runs", "Measure"),
    Entry("runs rm", "robolearn.cli.runs:RunsRm", "Remove runs that are not in use", "Measure"),
)

EXAMPLES: tuple[tuple[str, str], ...] = (
    ("robolearn quickstart", "demonstrations, imitation, RL, report"),
    ("robolearn collect --task lift --out data/lift", "200 demonstrations"),
    ("robolearn train --data data/lift --out runs/bc", "a flow policy"),
    ("robolearn finetune --policy runs/bc --task lift --out runs/rl", "ReinFlow"),
    ("robolearn evaluate --policy runs/bc --against runs/rl --task lift", "which is better, how sure"),
)


#: What others have a command for and we do with another one.
ELSEWHERE = {"replay": "A recorded episode is replayed by robolearn deploy --policy episode:DATA#N --robot sim"}


def find(argv: list[str], entries: tuple[Entry, ...] = ENTRIES) -> tuple[Entry, list[str]]:
    """The entry that `argv` begins with, and the arguments that are left. Raises `BadInput`: there is none."""
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
    hint = ELSEWHERE.get(argv[0], "")
    meant = "" if hint else nearest(argv[0], [*by_name, *(name.split()[0] for name in by_name)])
    raise BadInput("command", got=f"{argv[0]}{meant}", expected="one that robolearn --help lists", hint=hint)
