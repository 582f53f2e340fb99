"""``robolearn evaluate``: how often does a policy succeed, and how sure is that?"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from policies.storage.backends import backend_device, check_backend
from robolearn.cli.evaluator import check_push, evaluate_policy, pushed_outcomes, show_pushes
from robolearn.cli.policy_flags import GoalSource, PolicyCommand, check_goal_flags
from robolearn.cli.suite import mean_success, run_suite, show_suite
from robolearn.cli.view import WorkView, check_watched, noting, watched
from robolearn.core import BadInput, bind_policy
from robolearn.core.switches import SEEDS, Count
from robolearn.io.json_files import read_json
from robolearn.runs.command import (
    command_text,
    print_table,
    rate_text,
    reported,
)
from robolearn.runs.run import CONFIG, is_run
from sim.registry import WorldConfig

if TYPE_CHECKING:
    from robolearn.eval import Success

log = logging.getLogger(__name__)
ALONE = (
    "against",
    "goals",
    "guide",
    "shuffle",
    "out",
    "record",
    "words",
    "push",
)  # what --paired-with does not go with


@dataclass(frozen=True, kw_only=True)
class Evaluate(PolicyCommand):
    """Run exactly n episodes and say the success rate with its 95% interval; compare two policies on equal starts."""

    against: Path | None = None
    """A second policy: it meets the same starts, and the verdict says which is better and how sure that is. It acts as
    it was trained, by torch: of the flags of --policy it shares --words, --goals and --device, and a policy against
    itself says what the others gain and cost."""
    paired_with: tuple[Path, ...] = ()
    """Folders of `deploy --logs`, of --policy and of other policies: their episodes once more in simulation, from the
    same starts, and --episodes more. The result: real rates with simulation's help, correlation and rank violations of
    four or more policies, and whether this simulator predicts this arm."""
    world: WorldConfig = field(default_factory=WorldConfig)
    episodes: Count = 200
    """Number of episodes, of each policy."""
    shuffle: tuple[str, ...] = ()
    """Features of --policy that come from another world at each decision, as in --shuffle images.wrist: what success
    falls to says how much it relies on them. --against is shown its own."""
    push: float = 0.0
    """Force of pushes [N], in our tasks: the same starts once more under each of eight, to four sides, early and late,
    for 0.2 s. The result has each and the worst; 0: none."""
    push_on: Literal["arm", "thing"] = "arm"
    """What is pushed: the arm at its hand, or the task's thing."""
    worlds: Count = 64
    """Worlds side by side."""
    view: WorkView = "none"
    record: Path | None = None
    """Write the episodes of --policy into this new data set, with its cameras and those of --cameras."""
    out: Path | None = None
    """Write report.html, with videos of the worst and the best episode, into this folder."""

    def run(self) -> dict[str, Any]:
        from policies.storage.loading import open_policy
        from policies.wrappers.prompted import set_goals, set_prompt, without_instructions
        from policies.wrappers.value_guided import ValueGuidedPolicy
        from policies.wrappers.wrapper import ShuffledPolicy, at_tempo
        from robolearn.eval import compare
        from robolearn.eval.report import check_report_folder

        if self.paired_with:
            return self._paired()
        if (suite := run_suite(self, _success)) is not None:
            against = [one["against"] for one in suite["tasks"]] if self.against else []
            return suite | ({"against": {"success": mean_success(against, _success)}} if against else {})
        check_push(self.push)
        check_watched(self.view, self.world)
        if self.out is not None:
            check_report_folder(self.out)
        check_backend(self.backend, self.precision)
        device = backend_device(self.backend, self.device)
        begun = time.perf_counter()
        paths = [self.policy] + ([self.against] if self.against else [])
        sampling = {"steps": self.denoise_steps, "guidance": self.guidance}
        policies = [open_policy(self.policy, device, self.backend, self.precision, sampling)]
        policies += [open_policy(path, device) for path in paths[1:]]
        guide = self._guide(device)
        for path in paths:
            warn_of_trained_starts(path, self.seed)
        worlds = min(self.worlds, self.episodes)
        needed = [policy.interface for policy in policies] + ([without_instructions(guide.interface)] if guide else [])
        world = replace(self.world.matching(*needed), pushed=self.push_on if self.push else "")
        goals = self._goals(worlds, world)
        with closing(watched(world.build(worlds), self.view, "evaluating", "The evaluation is over.")) as env:
            note = noting(env)
            for path, policy in zip(paths, policies, strict=True):
                bind_policy(policy, env.interface, what=f"policy {path} in {world.task}")
                set_prompt(policy, self.words, env.prompt, what=f"policy {path}")
                set_goals(policy, goals, what=f"policy {path}")
            guided = None
            if guide is not None:
                guided = ValueGuidedPolicy(policies[0], guide, self.guide_samples, self.guide_temperature)
                guided.bind(env.interface)
                guided.set_prompt(self.words or env.prompt)
                policies[0] = guided
            policies[0] = at_tempo(policies[0], self.tempo)
            if self.shuffle:
                policies[0] = ShuffledPolicy(policies[0], self.shuffle)
            if self.out is not None:
                # A machine that cannot draw says so now, not after the episodes.
                env.reset(seed=self.seed)
                env.frame()
            done = []
            for p, path in zip(policies, paths, strict=True):
                note(str(path))
                with self._recorder(env) if not done else nullcontext() as record:
                    done.append(evaluate_policy(env, p, self.episodes, self.seed, self.json, str(path), record))
            pushes: list[dict[str, Any]] = []
            if self.push:
                push = self.push, self.push_on, self.episodes, self.seed, self.json
                pushes = [{"pushes": pushed_outcomes(env, p, *push)} for p in policies]
            result = {"policy": str(self.policy), **done[0].to_json(), **(pushes[0] if pushes else {})}
            if self.goals:
                result["goals"] = {"from": self.goals, "choice": self.goal_choice}
            result |= {"shuffled": list(self.shuffle)} if self.shuffle else {}
            result |= {"guide": self._guidance(env, guided)} if guided else {}
            result |= {"tempo": self.tempo} if self.tempo != 1.0 else {}
            result |= {"cousins": world.cousins} if world.differences() else {}
            result |= {"recorded": str(self.record)} if self.record else {}
            verdict = None
            if self.against:
                names = (str(self.policy), str(self.against))
                verdict = compare(done[0], done[1], names=names)
                result["against"] = {"policy": str(self.against), **done[1].to_json(), **(pushes[1] if pushes else {})}
                result["verdict"] = verdict.to_json()
            if self.out is not None:
                result |= reported(lambda: self._report(env, policies, done, verdict))
        result["wall_s"] = {**result["wall_s"], "total": time.perf_counter() - begun}
        return result

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        if "paired" in result:
            show_paired(result, console)
            return
        if "suite" in result:
            show_suite(result, console, _success)
            if against := result.get("against"):
                console.print(f"{self.against}: {rate_text(against['success'])}, mean over tasks")
            return
        rows = [row for row in (result, result.get("against")) if row]
        success = all(row["success"] is not None for row in rows)
        heads = ("success", "cycle time of successes, s") if success else ("mean return",)
        lines = [
            (row["policy"], rate_text(row["success"]), _span(row["cycle_time_s"], "{:.2f}")) if success else
            (row["policy"], f"{_span(row['return'], '{:.4g}')}, {row['return']['count']} episodes")
            for row in rows
        ]  # fmt: skip
        among = f", cousins {result['cousins']}" if "cousins" in result else ""
        title = f"{result['task']}{among}, seed {result['seed']}"
        print_table(console, ("policy", *heads), lines, title=title)
        if guide := result.get("guide"):
            alone, guided = (guide["latency_ms"][name]["p50"] for name in ("policy", "guided"))
            console.print(f"guide: {guide['run']} took another chunk than the first in {guide['departures']:.0%} of "
                          f"decisions; one takes {guided:.1f} ms, without guidance {alone:.1f} ms (p50)")  # fmt: skip
        for row in rows:
            show_pushes(row, console)
        if "verdict" in result:
            console.print(result["verdict"]["sentence"])
        if "report" in result:
            console.print(f"report: {result['report'] or result['report_error']}")

    def _paired(self) -> dict[str, Any]:
        defaults = {option.name: option.default for option in fields(self)}
        for name in ALONE:
            if getattr(self, name) != defaults[name]:
                raise BadInput("--paired-with", got=f"with --{name}", expected="one of them")
        device = backend_device(self.backend, self.device)
        budget = (self.worlds, self.episodes, self.seed)
        return run_paired(self.policy, self.paired_with, self.world, *budget, device=device, quiet=self.json)

    @contextmanager
    def _recorder(self, env: Any) -> Iterator[Any]:
        """The recorder of --policy's episodes, or None."""
        from robolearn.data.writing.writer import EpisodeWriter
        from robolearn.rollout.collect import RolloutRecorder

        if self.record is None:
            yield None
            return
        with EpisodeWriter(self.record, env.interface) as writer, RolloutRecorder(env, writer) as recorder:
            yield recorder

    def _guide(self, device: str) -> Any:
        """The critics of --guide, or None."""
        from policies.wrappers.value_guided import load_guide

        if self.guide is None:
            return None
        return load_guide(self.guide, device, beside={"goals": self.goals, "shuffle": self.shuffle})

    def _guidance(self, env: Any, policy: Any) -> dict[str, Any]:
        """Effect and latency of the guidance, for the result."""
        share = policy.departures / policy.decisions
        observation, _ = env.reset(seed=self.seed)
        latency = policy.latency_ms(observation)
        return {"run": str(self.guide), "samples": self.guide_samples, "temperature": self.guide_temperature,
                "departures": share, "latency_ms": latency}  # fmt: skip

    def _report(self, env: Any, policies: list[Any], done: list[Any], verdict: Any) -> Path:
        from robolearn.eval.report import write_report
        from robolearn.eval.report_data import evaluation_report
        from robolearn.eval.video import record_episodes

        assert self.out is not None
        names = [str(self.policy), str(self.against)][: len(done)]
        if len(set(names)) < len(names):
            names = [f"{name} ({i + 1})" for i, name in enumerate(names)]
        videos = []
        for i, (name, policy, evaluation) in enumerate(zip(names, policies, done, strict=True)):
            videos += record_episodes(env, policy, evaluation, self.out / f"videos-{i}", title=name)
        data = evaluation_report(
            dict(zip(names, done, strict=True)),
            verdicts=[verdict] if verdict else [],
            videos=videos,
            # The starts depend on the number of worlds, too.
            commands=[command_text("evaluate", replace(self, worlds=min(self.worlds, self.episodes), out=None))],
        )
        return write_report(self.out / "report.html", data)

    def _goals(self, worlds: int, world: WorldConfig) -> GoalSource | None:
        from robolearn.rollout.engine import spread

        check_goal_flags(self.goals, self.goal_choice)
        if not self.goals:
            return None
        return GoalSource(self.goals, self.goal_choice, world, spread(self.episodes, worlds), self.seed)


def _success(result: Mapping[str, Any]) -> Success | None:
    """Success in the result of a task, None where it reports none."""
    from robolearn.eval import Success

    return Success(**result["success"]) if result["success"] else None


def _span(mean: Mapping[str, Any], form: str) -> str:
    """A mean with its interval, e.g. ``1.74 (1.72–1.76)``."""
    if mean["mean"] is None:
        return "-"
    text = form.format(mean["mean"])
    # A single value has no interval.
    return text if mean["low"] is None else f"{text} ({form.format(mean['low'])}–{form.format(mean['high'])})"


def warn_of_trained_starts(path: Path, seed: int) -> None:
    """Log a warning where the run folder `path` was fine-tuned with `seed`: on these very starts it has learned."""
    run = path if is_run(path) else path.parent  # a run's checkpoint folder is its policy/
    if not is_run(run):
        return
    config = read_json(run / CONFIG, what=f"run {run}")
    if config.get("command") == "finetune" and config.get("seed") == seed:
        log.warning("%s was fine-tuned with --seed %d and met these starts in training: take another --seed", run, seed)


def read_deployment(folder: Path) -> dict[str, Any]:
    """The result of the deployment whose --logs were `folder`. Raises `BadInput`: none, a dry run, without outcomes or
    seed, or of another arm than its policy is for."""
    from policies.storage.loading import needed_by

    path = folder / "result.json"
    result = read_json(path, what=f"--paired-with {folder}")
    what, policy, arm = f"--paired-with {path}", result.get("policy"), _arm(result)
    if result.get("dry_run"):
        raise BadInput(what, got="a dry run, in which the arm does not move", expected="a deployment without --dry-run")
    if not isinstance(policy, str) or not policy:
        raise BadInput(what, got=f"no policy ({policy!r})", expected="a policy, as robolearn deploy writes")
    succeeded, seed = result.get("succeeded"), result.get("seed")
    if not isinstance(succeeded, list) or not succeeded or not all(isinstance(one, bool) for one in succeeded):
        got = "no succeeded" if not succeeded else f"succeeded {str(succeeded)[:60]}"
        raise BadInput(what, got=got, expected="true or false for each episode, as robolearn deploy writes")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed not in SEEDS:
        got = "no seed" if seed is None else f"seed {seed!r}"
        raise BadInput(what, got=got, expected="the seed of its starts, as robolearn deploy writes")
    if arm and arm != (needed := needed_by(policy).embodiment):
        raise BadInput(what, got=f"a deployment on {arm}", expected=f"on {needed}, as its policy {policy} is for")
    return result


def _arm(log: Mapping[str, Any]) -> str:
    """The arm of a deployment; empty where it is not known."""
    from robots.stations import contract_names, load_contract

    known = log.get("robot") in contract_names()  # a log that names its station alone
    return log.get("arm") or (load_contract(log["robot"]).interface.embodiment if known else "")


def run_paired(
    policy_path: Path,
    folders: Sequence[Path],
    world: WorldConfig,
    worlds: int,
    episodes: int,
    seed: int,
    *,
    device: str,
    quiet: bool,
) -> dict[str, Any]:
    """The result of the policy at `policy_path`, which one of the deployments ran, and those of the others."""
    from policies.storage.loading import open_policy
    from policies.wrappers.prompted import set_prompt
    from robolearn.eval.paired import Paired, prediction

    logs = [read_deployment(folder) for folder in folders]
    names = [Path(log["policy"]).resolve() for log in logs]
    if policy_path.resolve() not in names:
        raise BadInput("--policy", got=policy_path, available=[log["policy"] for log in logs],
                       expected="a policy that one of the deployments ran")  # fmt: skip
    if len(set(names)) < len(names):
        raise BadInput("--paired-with", got="two deployments of one policy", expected="another policy each")
    for folder, log in zip(folders, logs, strict=True):
        if log.get("task") not in (None, world.task):
            raise BadInput(f"--paired-with {folder}", got=f"task {log['task']}", expected=world.task)
    begun, found = time.perf_counter(), []
    for log in logs:
        policy = open_policy(Path(log["policy"]), device)
        matching = world.matching(policy.interface)
        outcomes = []
        # The simulated arm is world 0: one world meets its episodes, in their order.
        for side_by_side, count, start in (
            (1, len(log["succeeded"]), log["seed"]),
            (min(worlds, episodes), episodes, seed),
        ):
            with closing(matching.build(side_by_side)) as env:
                bind_policy(policy, env.interface, what=f"policy {log['policy']} in {world.task}")
                set_prompt(policy, "", env.prompt, what=f"policy {log['policy']}")
                done = evaluate_policy(env, policy, count, start, quiet, log["policy"])
            if not done.success_reported:
                raise BadInput("--paired-with", got=f"{world.task}, which reports no success", expected="one that does")
            outcomes.append(done.succeeded.tolist())
        found.append(Paired(log["policy"], log["succeeded"], *outcomes))
    result = {"task": world.task, "seed": seed, "dynamics": world.dynamics}
    return result | {"paired": prediction(found), "wall_s": {"total": time.perf_counter() - begun}}


def show_paired(result: Mapping[str, Any], console: Any) -> None:
    """A line for each policy, and the sentence."""
    heads = ("policy", "on the arm", "in simulation", "equal outcomes", "on the arm, by both")
    rows = [
        (row["policy"], rate_text(row["real"]), rate_text(row["simulated"]), f"{row['agreement']:.0%}",
         rate_text(row["powered"]))
        for row in result["paired"]["policies"]
    ]  # fmt: skip
    print_table(console, heads, rows, title=f"{result['task']}, dynamics {result['dynamics']}")
    console.print(result["paired"]["sentence"])
