"""``robolearn evaluate``: how often does a policy succeed, and how sure is that?"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policies.storage.backends import BackendName, InferencePrecision, backend_device
from policies.wrappers.goals import GoalChoice
from robolearn.cli.choices import Device
from robolearn.cli.evaluator import evaluate_policy
from robolearn.cli.paired import run_paired, show_paired
from robolearn.cli.view import WorkView
from robolearn.core import BadInput
from robolearn.runs.command import Command, at_least, check_seed, command_text, print_table, rate_text, reported
from sim.registry import WorldConfig

if TYPE_CHECKING:
    from robolearn.cli.goals import GoalSource

log = logging.getLogger(__name__)
ALONE = ("against", "goals", "guide", "shuffle", "out", "record", "words")  # what --paired-with does not go with


@dataclass(frozen=True, kw_only=True)
class Evaluate(Command):
    """Run exactly n episodes and say the success rate with its 95% interval; compare two policies on equal starts."""

    policy: Path
    """A run folder, a checkpoint folder, FILE.onnx, lerobot:FOLDER for a policy of LeRobot's, or episode:DATA#N to
    replay a recorded episode."""
    against: Path | None = None
    """A second policy: it meets the same starts, and the verdict says which is better and how sure that is."""
    paired_with: tuple[Path, ...] = ()
    """Folders of `deploy --logs`, of --policy and of other policies: their episodes once more in simulation, from the
    same starts, and --episodes more. The result: real rates with simulation's help, correlation and rank violations of
    four or more policies, and whether this simulator predicts this arm."""
    world: WorldConfig = field(default_factory=WorldConfig)
    episodes: int = 200
    """Number of episodes, of each policy."""
    words: str = ""
    """The task in a sentence, for policies that were trained with words; by default the task's own sentence."""
    goals: str = ""
    """Source of goals for policies that were trained with --goal: a data set, of whose successful
    demonstrations one lends its end to each episode, or expert: the end of the scripted expert's own demonstration from
    the same start (our tasks)."""
    goal_choice: GoalChoice = "nearest"
    """Which demonstration of that set: the one whose start is nearest, or one that is drawn by --seed."""
    denoise_steps: int | None = None
    """K, denoising steps of --policy; by default as trained. --against is sampled as trained."""
    guidance: float | None = None
    """w of --policy, which was trained with a goal; by default as trained."""
    tempo: float = 1.0
    """Factor on the displacements of --policy, for actions that are displacements. --against keeps its own."""
    shuffle: tuple[str, ...] = ()
    """Features of --policy that come from another world at each decision, as in --shuffle images.wrist: what success
    falls to says how much it relies on them. --against is shown its own."""
    guide: Path | None = None
    """A run whose critics judge chunks (of an off-policy algorithm other than dsrl and rlpd), or its checkpoint folder:
    they choose among chunks of --policy at each decision, whatever policy that is. --against acts without them: a
    policy against itself says what they gain."""
    guide_samples: int = 10
    """N, chunks of --policy that the critics choose among."""
    guide_temperature: float = 0.0
    """β: a chunk is drawn with probability proportional to exp(Q / β); 0 takes the largest Q."""
    worlds: int = 64
    """Worlds side by side."""
    seed: int = 1000
    """Of starts and of the policy's noise."""
    device: Device = "auto"
    backend: BackendName = "torch"
    """Backend that computes the decisions of --policy: torch, compile (torch's compiler) or onnx (onnxruntime, on the
    CPU). --against is computed by torch, so a policy against itself says what a backend costs."""
    precision: InferencePrecision = "float32"
    """Of --policy: float32, bfloat16 (torch, compile) or int8 (onnx)."""
    view: WorkView = "none"
    record: Path | None = None
    """Write the episodes of --policy into this new data set, with its cameras and those of --cameras."""
    out: Path | None = None
    """Write report.html, with videos of the worst and the best episode, into this folder."""

    def run(self) -> dict[str, Any]:
        from policies.storage.backends import check_backend
        from policies.storage.loading import open_policy
        from policies.wrappers.prompted import set_goals, set_prompt
        from policies.wrappers.tempo import at_tempo
        from policies.wrappers.value_guided import ValueGuidedPolicy
        from policies.wrappers.wrapper import ShuffledPolicy
        from robolearn.cli.view import check_watched, noting, watched
        from robolearn.core import bind_policy
        from robolearn.eval import compare
        from robolearn.eval.report import check_report_folder

        at_least(1, episodes=self.episodes, worlds=self.worlds)
        check_seed(self.seed)
        if self.paired_with:
            return self._paired()
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
        needed = [policy.interface for policy in policies] + ([guide.interface] if guide else [])
        world = self.world.matching(*needed)
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
            result = {"policy": str(self.policy), **done[0].to_json()}
            if self.goals:
                result["goals"] = {"from": self.goals, "choice": self.goal_choice}
            result |= {"shuffled": list(self.shuffle)} if self.shuffle else {}
            result |= {"guide": self._guidance(env, guided)} if guided else {}
            result |= {"tempo": self.tempo} if self.tempo != 1.0 else {}
            result |= {"recorded": str(self.record)} if self.record else {}
            verdict = None
            if self.against:
                names = (str(self.policy), str(self.against))
                verdict = compare(done[0], done[1], names=names)
                result["against"] = {"policy": str(self.against), **done[1].to_json()}
                result["verdict"] = verdict.to_json()
            if self.out is not None:
                result |= reported(lambda: self._report(env, policies, done, verdict))
        result["wall_s"] = {**result["wall_s"], "total": time.perf_counter() - begun}
        return result

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        if "paired" in result:
            show_paired(result, console)
            return
        rows = [row for row in (result, result.get("against")) if row]
        success = all(row["success"] is not None for row in rows)
        heads = ("success", "cycle time of successes, s") if success else ("mean return",)
        lines = [
            (row["policy"], rate_text(row["success"]), _span(row["cycle_time_s"], "{:.2f}")) if success else
            (row["policy"], f"{_span(row['return'], '{:.4g}')}, {row['return']['count']} episodes")
            for row in rows
        ]  # fmt: skip
        print_table(console, ("policy", *heads), lines, title=f"{result['task']}, seed {result['seed']}")
        if guide := result.get("guide"):
            alone, guided = (guide["latency_ms"][name]["p50"] for name in ("policy", "guided"))
            console.print(f"guide: {guide['run']} took another chunk than the first in {guide['departures']:.0%} of "
                          f"decisions; one takes {guided:.1f} ms, without guidance {alone:.1f} ms (p50)")  # fmt: skip
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
        from robolearn.cli.goals import GoalSource, check_goal_flags
        from robolearn.rollout.engine import spread

        check_goal_flags(self.goals, self.goal_choice)
        if not self.goals:
            return None
        return GoalSource(self.goals, self.goal_choice, world, spread(self.episodes, worlds), self.seed)


def _span(mean: Mapping[str, Any], form: str) -> str:
    """A mean with its interval, e.g. ``1.74 (1.72–1.76)``."""
    if mean["mean"] is None:
        return "-"
    text = form.format(mean["mean"])
    # A single value has no interval.
    return text if mean["low"] is None else f"{text} ({form.format(mean['low'])}–{form.format(mean['high'])})"


def warn_of_trained_starts(path: Path, seed: int) -> None:
    """Log a warning where the run folder `path` was fine-tuned with `seed`: on these very starts it has learned."""
    from robolearn.io.json_files import read_json
    from robolearn.runs.run import CONFIG, is_run

    run = path if is_run(path) else path.parent  # a run's checkpoint folder is its policy/
    if not is_run(run):
        return
    config = read_json(run / CONFIG, what=f"run {run}")
    if config.get("command") == "finetune" and config.get("seed") == seed:
        log.warning("%s was fine-tuned with --seed %d and met these starts in training: take another --seed", run, seed)
