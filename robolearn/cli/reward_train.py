"""``robolearn reward train``: a critic of progress, a success classifier, or a reward from preferences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Literal

from robolearn.cli.config_file import write_flags
from robolearn.cli.reward import opened
from robolearn.core import BadInput
from robolearn.core.machine import resolve_device
from robolearn.core.switches import Count
from robolearn.io.hashes import sha256
from robolearn.io.json_files import plain
from robolearn.rewards.settings import HAND, TRAINED, ClassifierConfig, CriticConfig, PreferenceRewardConfig
from robolearn.runs import Progress, Run
from robolearn.runs.command import Command, check_seed, last_row, peek, rate_text
from robolearn.runs.loop import run_loop
from robolearn.runs.run import check_new

if TYPE_CHECKING:
    from robolearn.data import Dataset


@dataclass(frozen=True, kw_only=True)
class RewardTrain(Command):
    """Train a progress critic, or a success classifier, on episodes that solved their task and episodes that did not,
    or a reward on preferences between clips. Can be killed at any moment and resumed.

    Example: robolearn reward train --data data/good data/failed --out runs/critic
    """

    data: tuple[str, ...]
    """LeRobotDataset v3.0 folders, of one arm and the same cameras."""
    out: Path
    """The run folder; the critic goes to its policy/."""
    cameras: tuple[str, ...] = ()
    """Cameras to look at, by default all."""
    kind: Literal["critic", "classifier", "preference"] = "critic"
    """critic: of progress, frame by frame. classifier: of success, from the ends of episodes and labelled frames.
    preference: of what better clips have more of (robolearn reward prefer), for one task; sets need no cameras and no
    outcomes."""
    reference: str = ""
    """DATA:EPISODE, an episode that solved the task: its first frame is stored in the place of those of the successes
    of its task (--kind critic)."""
    settings: CriticConfig | ClassifierConfig | PreferenceRewardConfig = field(default_factory=CriticConfig)
    device: str = "auto"
    """Device of the training: auto, cpu, cuda or cuda:<i>."""
    checkpoint_every: Count = 5
    """Iterations (of --steps-per-iteration gradient steps) between two saved states."""
    resume: bool = False
    """Go on with the run in --out, exactly; with more --steps than it had, also with a finished one."""

    @classmethod
    def defaults(cls, args: Sequence[str]) -> dict[str, Any]:
        return {"settings": TRAINED.get(peek(args, "--kind", "critic"), CriticConfig)()}

    def run(self) -> dict[str, Any]:
        from robolearn.eval.intervals import Success
        from robolearn.rewards.head_trainer import lengths_of
        from robolearn.rewards.reference import read_reference, show_reference

        check_seed(self.settings.seed)
        check_new(self.out, self.resume)
        datasets = [opened(path, outcomes=self.settings.needs_outcomes) for path in self.data]
        if self.reference:
            if self.kind != "critic":
                raise BadInput("--reference", got=f"with --kind {self.kind}", expected="--kind critic")
            read_reference(self.reference)  # before the minutes that encoding takes
        frames = self.settings.views * int(sum(lengths_of(dataset)[0].sum() for dataset in datasets))
        with Progress("encoding", total=frames, unit="frames", quiet=self.json) as encoding:
            trainer = resolve_name(self.settings.page)(
                self.settings, datasets, cameras=self.cameras, device=resolve_device(self.device),
                progress=lambda done, _: encoding(done),
            )  # fmt: skip
        if self.reference:
            show_reference(trainer.critic, self.reference)
        digests = [dataset.frames_content() for dataset in datasets]
        stored = {
            "command": "reward train",
            "data": list(self.data),
            "sha256": digests,
            "content": [dataset.content(own) for dataset, own in zip(datasets, digests, strict=True)],
            "cameras": list(trainer.critic.cameras),
            "critic": plain(self.settings),
            **({"reference": self.reference} if self.reference else {}),
            **({} if self.kind == "critic" else {"kind": self.kind, "labels": self._labels(datasets)}),
        }
        making = Run.create(
            self.out, stored, resume=self.resume, may_differ=("data",), added=("content",), longer="critic.steps"
        )
        with making as run:
            write_flags(self, "reward train", run.path)
            with Progress(self.settings.title, total=self.settings.steps, unit="gradient steps", show=("loss",),
                          quiet=self.json) as progress:  # fmt: skip
                done = run_loop(run, trainer, checkpoint_every=self.checkpoint_every,
                                progress=lambda _, row: progress(int(row["gradient_steps"]), row))  # fmt: skip
            success = sum(int(dataset.success.sum()) for dataset in datasets)
            shares = trainer.summary()
            result = {
                "run": str(self.out),
                "critic": str(run.policy_dir),
                "cameras": list(trainer.critic.cameras),
                "reads": list(trainer.critic.reads),
                "episodes": {"success": success, "failure": sum(d.episodes for d in datasets) - success},
                "frames": sum(dataset.frames for dataset in datasets),
                "steps": self.settings.steps,
                "loss": last_row(self.out).get("loss"),
                **{name: Success.of(*share).to_json() if share[1] else None for name, share in shares.items()},
                **trainer.fitted(),
                **trainer.counted(),
                "wall_s": {"total": done["wall_s"]},
            }
            run.finish(result)
        return result

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        count = result["episodes"]
        console.print(f"{self.settings.title:12}{result['critic']}, which reads {', '.join(result['reads'])}")
        if getattr(self.settings, "hand", False) and result["reads"] == result["cameras"]:
            console.print(f"            not the hand: the sets have no {', '.join(HAND)} in their proprio")
        of = f"{count['success']} successes and {count['failure']} failures"
        if "preferences" in result:
            decided, same = (result["preferences"][name] for name in ("decided", "same"))
            of = f"{decided} preferences, and {same} pairs that are the same"
        console.print(f"trained     {result['steps']:,} gradient steps on {of}, in {result['wall_s']['total']:.0f} s")
        if "threshold" in result:
            if "preferences" in result:
                how = "what parts better from worse clips" if result["threshold"] < 1 else "so never: see above"
            else:
                how = ("fitted on" if "recall" in result else "as ever: too few") + " episodes kept from training"
            console.print(f"done from   {result['threshold']:.3f}, {how}")
        for name in ("precision", "recall", "false_positive_rate", "agreement"):
            if name in result:
                none = "no decided pair is" if name == "agreement" else "nothing was called done"
                said = rate_text(result[name]) if result[name] else none
                console.print(f"{name.replace('_', ' '):12}{said} kept from training")
        console.print(f"next        robolearn reward evaluate --reward {result['run']} --data … : how good it is, on "
                      "episodes that it has not seen")  # fmt: skip

    def _labels(self, datasets: list[Dataset]) -> str:
        """A digest of the opinions beside the sets that are learned from: a run is resumed with the same ones alone."""
        from robolearn.rewards.labels import preferences_digest, read_labels

        if self.kind == "preference":
            return sha256(*map(preferences_digest, datasets))
        return sha256(*(repr(sorted(read_labels(dataset).items())) for dataset in datasets))
