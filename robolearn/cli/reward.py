"""``robolearn reward score`` and ``evaluate``: what a reward model says of episodes, and how good it is."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from robolearn.core import BadInput, RewardWithheld, RobolearnError
from robolearn.core.machine import resolve_device
from robolearn.core.switches import Seed, Within
from robolearn.runs import Progress
from robolearn.runs.command import Command, command_text, rate_text, reported

if TYPE_CHECKING:
    from robolearn.core import RewardModel
    from robolearn.data import Dataset

log = logging.getLogger(__name__)

FORMER = {"--critic": "--reward"}
OTHER = "put the spoon into the bowl"  # the words of a task that no training sentence names


@dataclass(frozen=True, kw_only=True)
class RewardEvaluate(Command):
    """Measure a reward model on episodes whose outcome is known, and name what rules it out as a reward to learn from.

    Exit code 1 where it is none. VOC alone proves nothing: a clock has 1.
    """

    former = FORMER

    reward: str
    """A run or a checkpoint folder of robolearn reward train, a vision-language model (robometer:, topreward:,
    roboreward:, vlac: or gvl:<model>), serve:<host>:<port>, <module>:<Class>, or what a plug-in adds."""
    data: tuple[str, ...]
    """LeRobotDataset v3.0 folders with successes and failures that training has not seen."""
    reference: str = ""
    """DATA:EPISODE, an episode that solved the task: one-shot mode of a critic of robolearn reward train, which is read
    from its first frame in the place of the stored ones, and of vlac: and gvl:<model>, which are shown its frames."""
    wrong: str = OTHER
    """The words of another task, for the wrong-task ratio."""
    episodes: Annotated[int, Within(0)] = 0
    """Of each set, the first so many; 0 for all."""
    device: str = "auto"
    """Device of the model: auto, cpu, cuda or cuda:<i>."""
    seed: Seed = 0
    """Of the intervals."""
    out: Path | None = None
    """Write report.html, with curves and the worst mistakes as film strips, into this folder."""

    def run(self) -> dict[str, Any]:
        from robolearn.eval.critics import check_outcomes, evaluate_critic
        from robolearn.eval.report import check_report_folder
        from robolearn.rewards.metrics import judge

        if self.out is not None:
            check_report_folder(self.out)
        begun = time.perf_counter()
        datasets = [opened(path) for path in self.data]
        check_outcomes([bool(s) for dataset in datasets for s in dataset.success[: self._count(dataset)]])
        model = reward_model(self.reward, datasets, self.device, self.reference)
        judged, before, withheld = [], 0, list[str]()
        total = sum(self._count(dataset) for dataset in datasets)
        with Progress("judging", total=total, unit="episodes", quiet=self.json) as progress:
            for dataset in datasets:
                episodes = (dataset.episode(e) for e in range(self._count(dataset)))
                judged += judge(model, episodes, self.wrong, source=str(dataset.path),
                                progress=lambda n, before=before: progress(before + n), withheld=withheld)  # fmt: skip
                before += self._count(dataset)
        if not judged:
            raise RobolearnError(f"no score of any episode: {withheld[0]}")
        evaluation = evaluate_critic(judged, seed=self.seed)
        result = {"critic": self.reward, "data": list(self.data), "withheld": withheld, **evaluation.to_json()}
        if self.out is not None:
            result |= reported(lambda: self._report(evaluation, datasets))
        return result | {"wall_s": {"total": time.perf_counter() - begun}}

    def exit_code(self, result: Mapping[str, Any]) -> int:
        return 0 if result["trusted"] and not result.get("report_error") and not result["withheld"] else 1

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        count = result["episodes"]
        console.print(f"{result['critic']}: {count['success']} successes, {count['failure']} failures")
        for key in ("voc", "voc_reversed", "tau", "success_failure_gap", "wrong_task_ratio", "calibration"):
            console.print(f"{key:20} {_span(result[key])}")
        console.print(f"{'false positives':20} {rate_text(result['false_positive_rate'])}")
        for kind, row in result["by_failure"].items():
            console.print(f"{'  ' + kind:20} {rate_text(row['called_done'])} called done")
        for name in ("precision", "recall"):
            value = result["done"][name]
            console.print(f"{'done: ' + name:20} {rate_text(value) if value else 'never called done'}")
        pace = result["latency_ms"]
        console.print(f"{'a frame':20} {pace['p50']:.1f} ms ({pace['p50_low']:.1f} to {pace['p50_high']:.1f})")
        _show_withheld(result, console)
        for fault in result["faults"]:
            console.print(f"no reward: {fault}")
        if not result["faults"]:
            console.print("not ruled out as a reward; what it gets wrong stands above")
        if "report" in result:
            console.print(f"report: {result['report'] or result['report_error']}")

    def _count(self, dataset: Dataset) -> int:
        return min(self.episodes, dataset.episodes) if self.episodes else dataset.episodes

    def _report(self, evaluation: Any, datasets: list[Dataset]) -> Path:
        from robolearn.eval.critic_page import pictures_after, render_critic, write_critic_report

        assert self.out is not None
        by_path = {str(dataset.path): dataset for dataset in datasets}
        camera = next(iter(datasets[0].readers), "")
        html = render_critic(
            evaluation,
            title=f"Reward model {self.reward}",
            subtitle=f"{len(evaluation.judged)} episodes of {', '.join(self.data)}",
            commands=[command_text("reward evaluate", self)],
            pictures=(lambda j: pictures_after(by_path[j.source].episode(j.index), camera)) if camera else None,
        )
        return write_critic_report(self.out / "report.html", html)


@dataclass(frozen=True, kw_only=True)
class RewardScore(Command):
    """Score the episodes of a data set; --write stores progress, reward and done of each frame beside it."""

    former = FORMER

    reward: str
    """A run or a checkpoint folder of robolearn reward train, a vision-language model (robometer:, topreward:,
    roboreward:, vlac: or gvl:<model>), serve:<host>:<port>, <module>:<Class>, or what a plug-in adds."""
    data: str
    """A LeRobotDataset v3.0 folder."""
    reference: str = ""
    """DATA:EPISODE, an episode that solved the task: one-shot mode of a critic of robolearn reward train, which is read
    from its first frame in the place of the stored ones, and of vlac: and gvl:<model>, which are shown its frames."""
    write: bool = False
    """Store the scores in the set's meta/robolearn_scores.parquet; a model's scores are not made twice."""
    video: Path | None = None
    """Write an MP4 with the curve under the pictures to this file."""
    episode: int = 0
    """The episode of --video."""
    camera: str = ""
    """The camera of --video, by default the first."""
    device: str = "auto"
    """Device of the model: auto, cpu, cuda or cuda:<i>."""

    def goes_on(self) -> bool:
        return self.write

    def run(self) -> dict[str, Any]:
        from robolearn.rewards.metrics import score_or_withhold, window_of
        from robolearn.rewards.stored import model_name, read_scores, scores_file, write_scores

        if self.video is not None and self.video.suffix != ".mp4":
            raise BadInput("--video", got=self.video, expected="a file that ends in .mp4")
        begun = time.perf_counter()
        dataset = opened(self.data)
        dataset.check_episodes([self.episode])
        camera = self._camera(dataset) if self.video is not None else ""
        model = reward_model(self.reward, [dataset], self.device, self.reference)
        name = model_name(self.reward, model)
        scores, withheld = read_scores(dataset, name), list[str]()
        asked = [e for e in range(dataset.episodes) if e not in scores]
        try:
            with Progress("scoring", total=len(asked), unit="episodes", quiet=self.json) as progress:
                for done, e in enumerate(asked, 1):
                    episode = dataset.episode(e)
                    try:
                        (scores[e],) = score_or_withhold(model, [window_of(episode)], [episode.task])
                    except RewardWithheld as why:
                        withheld.append(f"episode {e}: {why}")
                    progress(done)
        except BaseException:  # Ctrl-C, or a server that is gone: what was made stays
            if self.write and not scores.keys().isdisjoint(asked):
                write_scores(dataset, scores, name)
            raise
        scored = len(asked) - len(withheld)
        result: dict[str, Any] = {
            "critic": self.reward,
            "dataset": self.data,
            "scored": scored,
            "withheld": withheld,
            "scores": [
                {"episode": e, "progress": float(s.progress[-1]), "done": bool(s.done.any()),
                 "success": bool(dataset.success[e]), "failure": dataset.failure[e]}
                for e, s in sorted(scores.items())
            ],
        }  # fmt: skip
        if self.write and scores:
            result["written"] = str(write_scores(dataset, scores, name) if scored else scores_file(dataset))
        if self.video is not None and self.episode in scores:
            from robolearn.eval.critic_page import pictures_after, scored_frames
            from robolearn.eval.video import write_video

            pictures, score = pictures_after(dataset.episode(self.episode), camera), scores[self.episode]
            write_video(self.video, scored_frames(pictures, score.progress, score.done),
                        fps=dataset.interface.control_hz)  # fmt: skip
            result["video"] = str(self.video)
        return result | {"wall_s": {"total": time.perf_counter() - begun}}

    def exit_code(self, result: Mapping[str, Any]) -> int:
        return 1 if result["withheld"] else 0

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        for row in result["scores"]:
            truth = "success" if row["success"] else f"failure{': ' + row['failure'] if row['failure'] else ''}"
            said = "done" if row["done"] else "not done"
            console.print(f"episode {row['episode']:4}   {row['progress']:.2f}   {said:8}   {truth}")
        _show_withheld(result, console)
        if self.write and result["withheld"]:
            console.print("the same command asks again for those that are missing, and for no others")
        for key in ("written", "video"):
            if key in result:
                console.print(f"{key}: {result[key]}")

    def _camera(self, dataset: Dataset) -> str:
        cameras = list(dataset.readers)
        wanted = self.camera if self.camera.startswith("images.") else f"images.{self.camera}"
        if not cameras or (self.camera and wanted not in cameras):
            raise BadInput("--camera", got=self.camera or "no camera in the set", available=dataset.cameras)
        return wanted if self.camera else cameras[0]


def _show_withheld(result: Mapping[str, Any], console: Any) -> None:
    if result["withheld"]:
        console.print(f"withheld    {len(result['withheld'])} episodes have no score: {result['withheld'][0]}")


def _span(value: Mapping[str, Any]) -> str:
    """A mean with its interval: ``0.91 (0.88 to 0.94)``."""
    if value["mean"] is None:
        return "-"
    interval = "" if value["low"] is None else f" ({value['low']:.2f} to {value['high']:.2f})"
    return f"{value['mean']:.2f}{interval}"


def opened(path: str, *, outcomes: bool = True) -> Dataset:
    """The set; with `outcomes` one that says which episodes succeeded."""
    from robolearn.data import Dataset

    dataset = Dataset.open(path)
    if outcomes and not dataset.outcomes:
        raise BadInput(f"data set {path}", got="no word on which episodes succeeded", expected="one that says it")
    return dataset


def reward_model(text: str, datasets: list[Dataset], device: str, reference: str = "") -> RewardModel:
    """The reward model `text` for these sets, which all have to fit; shown the episode `reference`, if any."""
    from robolearn.rewards.choice import make_reward_model
    from robolearn.rewards.first_frames import LOOKED_AT, warn_if_strange
    from robolearn.rewards.metrics import window_of

    if not datasets:
        raise BadInput("--data", got="nothing", expected="a data set, or several")
    first, *others = (dataset.interface for dataset in datasets)
    model = make_reward_model(text, first, resolve_device(device), "--reward")
    check: Any = getattr(model, "check", None)
    if check is not None:
        for interface in others:
            check(interface)
    for dataset in datasets:
        episodes = range(min(LOOKED_AT, dataset.episodes))
        warn_if_strange(model, (window_of(dataset.episode(e)) for e in episodes), str(dataset.path))
    if reference:
        from robolearn.rewards.reference import show_reference

        show_reference(model, reference)
    return model
