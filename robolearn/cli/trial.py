"""``robolearn trial``: a plan before, randomised blocks, every outcome, a verdict at any time."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from robolearn.cli.choices import AnyStation, rewarded
from robolearn.cli.station_command import StationCommand
from robolearn.core import BadInput, RobolearnError
from robolearn.core.switches import Seed, Within
from robolearn.runs import Progress
from robolearn.runs.command import Command, command_text, print_table, rate_text, reported
from sim.registry import WorldConfig

if TYPE_CHECKING:
    from robolearn.eval.trials.plan import TrialPlan

Folder = tyro.conf.Positional[Path]
STATION_FLAGS = ("yes", "domain", "logs", "enclaves", "realtime_priority")  # of `run`, for a deployment


@dataclass(frozen=True, kw_only=True)
class PlanTrial(Command):
    """Write the plan of a trial: policies, starts and their order, who judges, when it ends, and the hashes of weights,
    world, contract and filter. Nothing of it can be changed afterwards.

    Example: robolearn trial plan --policies before=runs/bc after=runs/rl --task lift --out trials/lift
    """

    former: ClassVar[Mapping[str, str]] = {"--classifier": "--reward"}

    policies: tuple[str, ...]
    """NAME=PATH of each policy; NAME=PATH,PATH,… for trainings of one method with different seeds, which take turns."""
    out: Path
    """Folder of the trial."""
    world: WorldConfig = field(default_factory=WorldConfig)
    arm: AnyStation = ""
    """Robot contract, by its name or as a file: episodes run as by `robolearn deploy`, sim for the simulated arm. By
    default they run in simulated worlds."""
    rehearse: bool = False
    """With --arm: on a simulated arm behind an emulator of the station's driver."""
    seconds: float = 30.0
    """With --arm: longest episode of a real arm and of a rehearsal [s]."""
    launch: str = "auto"
    """With --arm: the launch file by which `ros2 launch` starts each policy's nodes, such as one of yours that adds to
    deploy.launch.py; none: the processes of `robolearn deploy`. By default our deploy.launch.py where `ros2 launch`
    finds it, else none."""
    outcome: Literal["auto", "task", "person", "classifier"] = "auto"
    """Judge whose verdict counts: the task's own success, the person beside a real arm, or the reward model of --reward
    (classifier). Beside a real arm the person is asked whichever counts, and not told the model's verdict; both are
    recorded. By default the person where there is one, else the task."""
    detect: tuple[float, float] = (0.6, 0.8)
    """Success rates of two policies that the trial is to tell apart: what --blocks is computed from."""
    power: float = 0.9
    """Probability of telling them apart."""
    blocks: Annotated[int | None, Within(1)] = None
    """Blocks at most, one episode of every policy in each; by default what --detect and --power need, and the trial
    ends before where that difference would hardly be found any more."""
    alpha: float = 0.05
    """Probability at most of a false claim, whenever the trial is looked at or stopped."""
    seed: Seed = 2000
    """Of starts and order."""

    def run(self) -> dict[str, Any]:
        from robolearn.cli.trial_episodes import episodes_of
        from robolearn.cli.trial_hashes import hash_policy, hashes_of
        from robolearn.eval.trials.design import design, planned
        from robolearn.eval.trials.futility import Futility
        from robolearn.eval.trials.plan import TrialCheckpoint, TrialPlan

        named = dict(_named(word) for word in self.policies)
        if len(named) < max(2, len(self.policies)):
            got = ", ".join(self.policies) or "nothing"
            raise BadInput("--policies", got=got, expected="two or more, NAME=PATH, each name once")
        world, model = rewarded(self.world)
        outcome = self._judged_by(world, model)
        pairs = len(named) * (len(named) - 1) // 2
        if self.blocks is None:
            plan_of = planned(self.detect, self.power, self.alpha / pairs)
        else:
            plan_of = design(self.detect, self.blocks, 1, self.alpha / pairs)
        setting = {"task": self.world.task, "rehearse": self.rehearse, "seconds": self.seconds,
                   "launch": self._launched_by()}  # fmt: skip
        plan = TrialPlan(
            policies={
                name: tuple(TrialCheckpoint(path, hash_policy(path)) for path in paths) for name, paths in named.items()
            },
            arm=self.arm, setting=setting if self.arm else asdict(world), outcome=outcome,
            classifier=model, blocks=plan_of.blocks, concentration=plan_of.concentration, alpha=self.alpha,
            seed=self.seed, hashes={},
            futility=None if plan_of.futility is None else Futility(self.detect, plan_of.futility),
        )  # fmt: skip
        episodes_of(plan, {}).close()  # whatever does not fit is refused before the plan is written
        plan = replace(plan, hashes=hashes_of(plan))
        plan.write(self.out)
        return {"trial": str(self.out), "plan": plan.sha256, "policies": {n: list(p) for n, p in named.items()},
                "episodes": plan.episodes, "outcome": outcome, "classifier": model or None,
                "launch": plan.setting.get("launch") or None,
                "detect": list(self.detect), "alpha": self.alpha, "comparisons": pairs,
                "design": plan_of.to_json(), "hashes": plan.all_hashes}  # fmt: skip

    def _launched_by(self) -> str:
        """The launch file of the plan; empty: none."""
        from robolearn.deploy.launched import own_launch_file

        if self.launch == "auto":
            return str(own_launch_file() or "") if self.arm else ""
        if not self.arm:
            raise BadInput("--launch", got="no --arm", expected="--arm: worlds have no nodes")
        return "" if self.launch == "none" else self.launch

    def _judged_by(self, world: WorldConfig, model: str) -> str:
        """The judge of outcomes, where a reward `model` may be one. Raises `BadInput`: one that there is not."""
        if self.rehearse and not self.arm:
            raise BadInput("--rehearse", got="no --arm", expected="--arm with a real station's contract")
        if self.seconds <= 0:
            raise BadInput("--seconds", got=self.seconds, expected="more than 0")
        person = False
        if self.arm:
            from robots.stations import load_any_contract

            person = not (load_any_contract(self.arm).simulated or self.rehearse)
        else:
            world.check()
        outcome = ("person" if person else "task") if self.outcome == "auto" else self.outcome
        there = ["person" if person else "task", *(["classifier"] if model else [])]
        if outcome not in there:
            got = f"{self.outcome}{f' with --reward {model}' if model else ''}"
            raise BadInput(f"--outcome on {self.arm or 'simulated worlds'}", got=got, available=there)
        return outcome

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        made, (low, high) = result["design"], result["detect"]
        console.print(f"plan        {result['trial']}, sha256 {result['plan']}")
        judge = result["outcome"] + (f" (--reward {self.world.reward} is recorded)" * bool(result["classifier"]))
        console.print(f"blocks      {made['blocks']} at most, {result['episodes']} episodes, judged by the {judge}")
        if self.arm:
            started = f"ros2 launch {file}" if (file := result["launch"]) else "the processes of robolearn deploy"
            console.print(f"nodes       by {started}")
        mean, fixed = f"{made['expected_blocks']:.0f} blocks on average", made["fixed_blocks"]
        beside = f" (one look at a fixed number would need {fixed})" if fixed and made["power"] >= 0.5 else ""
        console.print(f"power       {made['power']:.0%} to tell {low:.0%} from {high:.0%}, after {mean}{beside}")
        if (below := made["futility"]) is not None:
            found = f"a difference of that size is found with less than {below:.0%}"
            console.print(f"futility    the trial ends where {found} in the blocks that are left")
        else:
            why = "with --blocks" if self.blocks else "the blocks are too many for it"
            console.print(f"futility    no early end where nothing is found: {why}")
        console.print(f"next        robolearn trial run {result['trial']}")


@dataclass(frozen=True, kw_only=True)
class RunTrial(StationCommand):
    """Run a trial, or go on with it: its next episodes in the order of the plan, without saying which policy acts. It
    ends by itself once the verdict is clear, or no difference could still be found. After a kill the current episode is
    repeated, and the verdict says so."""

    trial: Folder
    """Folder of the trial."""
    episodes: Annotated[int | None, Within(1)] = None
    """Episodes to run now; by default until the trial ends."""
    past_futility: bool = False
    """Go on where a difference would hardly be found any more: p-values stay valid."""
    yes: bool = False
    """On a real arm: do not ask before the first motion."""

    def goes_on(self) -> bool:
        return True

    def run(self) -> dict[str, Any]:
        from robolearn.cli.trial_episodes import episodes_of
        from robolearn.eval.trials.plan import TrialPlan
        from robolearn.eval.trials.records import TrialRecords

        plan = TrialPlan.read(self.trial)
        check_unchanged(plan)
        with TrialRecords(self.trial, plan) as records:
            before = records.next
            last = plan.episodes if self.episodes is None else min(plan.episodes, before + self.episodes)
            if before < last and self._over(plan, records) is None:
                # The bar counts, and says nothing of success: the person is not to know how it stands.
                bar = Progress("trial", total=plan.episodes, unit="episodes", quiet=self.json)
                station = {name: getattr(self, name) for name in STATION_FLAGS}
                with contextlib.closing(episodes_of(plan, station, self.trial)) as runner, bar as progress:
                    progress(before)
                    while records.next < last and self._over(plan, records) is None:
                        self._episode(plan, records, runner)
                        progress(records.next)
            over = self._over(plan, records)
            return {"trial": str(self.trial), "plan": plan.sha256, "episodes": records.next - before,
                    "done": records.next, "planned": plan.episodes, "ended": over is not None,
                    "reason": over}  # fmt: skip

    def _episode(self, plan: TrialPlan, records: Any, runner: Any) -> None:
        records.begin()
        try:
            ended = runner.run(plan.slot(records.next))
        except (RobolearnError, KeyboardInterrupt) as error:
            records.add("abandoned", reason=str(error) or type(error).__name__)
            raise
        records.add(**vars(ended))

    def _over(self, plan: TrialPlan, records: Any) -> str | None:
        """Why the plan has come to its end, None where it has not; looked at after whole blocks."""
        from robolearn.eval.trials.analysis import FUTILE, analyse

        if not records.done or len(records.done) % len(plan.policies):
            return None
        ended = analyse(plan, records.done).ended
        return None if self.past_futility and ended == FUTILE else ended

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        console.print(f"trial       {result['done']} of at most {result['planned']} episodes, {result['episodes']} now")
        if result["ended"]:
            console.print(f"ended       {result['reason']}")
        word = "judge" if result["ended"] else "run"
        console.print(f"next        robolearn trial {word} {result['trial']}")


@dataclass(frozen=True, kw_only=True)
class CompareTrial(Command):
    """The verdict of a trial, at any time: rates with intervals, every pair, the best, the outcomes, and the hashes of
    what was compared. Looking changes no probability of an error; it may unblind the person who judges. What is not as
    planned any more, such as a library, is named: the episodes are judged as they were recorded."""

    trial: Folder
    """Folder of the trial."""
    out: Path | None = None
    """Write report.html into this folder."""

    def run(self) -> dict[str, Any]:
        from robolearn.cli.trial_hashes import changed
        from robolearn.eval.report import check_report_folder
        from robolearn.eval.trials.analysis import analyse
        from robolearn.eval.trials.page import write_trial
        from robolearn.eval.trials.plan import TrialPlan
        from robolearn.eval.trials.records import read_episodes

        plan = TrialPlan.read(self.trial)
        episodes, abandoned = read_episodes(self.trial, plan)
        if (out := self.out) is not None:
            check_report_folder(out)
        found, since = analyse(plan, episodes, abandoned), list(changed(plan))
        result: dict[str, Any] = {"trial": str(self.trial), **found.to_json(), "changed": since}
        if out is not None:
            commands = [f"robolearn trial run {self.trial}", command_text("trial judge", self)]
            result |= reported(lambda: write_trial(out, found, episodes, commands, since))
        return result

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        rows = [
            (name, rate_text(one["success"]), ", ".join(f"{n} {kind}" for kind, n in one["outcomes"].items()))
            for name, one in result["policies"].items()
        ]
        title = f"{result['blocks']} of at most {result['planned_blocks']} blocks, plan {result['plan'][:16]}"
        print_table(console, ("policy", "success, at any time", "outcomes"), rows, title=title)
        for verdict in result["verdicts"]:
            console.print(verdict["sentence"])
        if len(result["verdicts"]) > 1:
            console.print(result["sentence"])
        if result["conclusion"] == "inconclusive":
            power = result["conditional_power"]
            chance = "" if power is None else f", with a chance of {power:.1%} left"
            console.print(f"inconclusive  {result['ended']}{chance}: {'; '.join(result['intervals'])}")
        if (both := result["agreement"]) is not None:
            same, apart = both["both"] + both["neither"], both["only"] + both["classifier"]
            kappa = "none" if both["kappa"] is None else f"{both['kappa']:.2f}"
            only = f"{both['classifier']} solved by the reward model alone, {both['only']} by the other judge alone"
            console.print(f"judges      agree in {same} of {same + apart} episodes, kappa {kappa}; {only}")
        for name, one in result["policies"].items():
            if split := one["seeds"]:
                spread = f"trainings differ by {split['seed_sd']:.1%}, episodes of one by {split['episode_sd']:.1%}"
                console.print(f"{name}: {spread} (standard deviations)")
        if result["changed"]:
            names = ", ".join(result["changed"])
            console.print(f"changed     since the plan: {names}; this is the verdict of the episodes as they were")
        if result["abandoned"]:
            console.print(f"repeated    {'; '.join(result['abandoned'])}")
        if "report" in result:
            console.print(f"report: {result['report'] or result['report_error']}")


def check_unchanged(plan: TrialPlan) -> None:
    """Raise `BadInput` where weights, world, arm, contract, filter, software or classifier are not the plan's."""
    from robolearn.cli.trial_hashes import changed

    for name, found in changed(plan).items():
        got, expected = found[:12] or "nothing that can be read", plan.all_hashes[name][:12]
        hint = "A changed policy, world or filter is another trial: write a new plan"
        raise BadInput(f"trial: {name} has changed", got=got, expected=expected, hint=hint)


def _named(word: str) -> tuple[str, tuple[str, ...]]:
    name, equals, paths = word.partition("=")
    found = tuple(path for path in paths.split(",") if path)
    if not name or not equals or not found:
        raise BadInput("--policies", got=word, expected="NAME=PATH, as in before=runs/bc")
    return name, found
