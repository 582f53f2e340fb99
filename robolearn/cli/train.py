"""``robolearn train``: a policy from demonstrations."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from policies.settings import POLICIES, PolicyConfig
from robolearn.cli.choices import Cousins, Device, PolicyKind, Tracker
from robolearn.cli.config_file import write_flags
from robolearn.cli.evaluator import Evaluator, show_outcomes
from robolearn.core import BadInput, check_choice
from robolearn.core.machine import keep_freed_memory, resolve_device
from robolearn.core.specs import PREDICTED_ACTIONS, PROMPT
from robolearn.core.switches import Count, switch
from robolearn.io.hashes import sha256, sha256_weights
from robolearn.io.json_files import plain, read_json
from robolearn.runs import Progress, Run
from robolearn.runs.command import NOT_THE_WORK, Command, check_seed, last_row, peek, words_of
from robolearn.runs.loop import KeepConfig, Kept, run_loop
from robolearn.runs.run import CONFIG
from robolearn.runs.trackers import check_tracker
from robolearn.train.settings import ImitationConfig, PreferenceConfig
from sim.registry import WorldConfig

if TYPE_CHECKING:
    from robolearn.data.reading.reader import Dataset
    from robolearn.data.windows import Weights
    from robolearn.runs import Run
    from robolearn.train.imitation import ImitationTrainer


log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Train(Command):
    """Train a policy on data sets by imitation. Can be killed at any moment and resumed.

    Of several data sets (--data A B --mix 0.7 0.3) the first says what is observed and done; the others have to have
    the same arm, control rate, actions and observations. --policy chooses the kind of policy, and with it which of the
    settings below there are.
    """

    data: tuple[str, ...]
    """A LeRobotDataset v3.0 folder or its address, http://HOST/PATH, or several."""
    out: Path
    """The run folder; the policy goes to its policy/."""
    start: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Begin with the weights of this policy, a run or its checkpoint folder, in place of random ones; kind, settings
    and normalisation are then its own."""
    policy: PolicyKind = "flow"
    """The kind of policy."""
    settings: ImitationConfig = field(default_factory=ImitationConfig)
    observe: tuple[str, ...] = ()
    """Observation of the policy, as in --observe proprio images.front; images stands for all cameras. By default all
    that the set has, but beside pictures nothing privileged: real arms have cameras, not a simulator's truth. prompt
    is the task in words, for a policy of several tasks: --data A B --mix 1 1 --observe proprio images prompt."""
    goal: tuple[str, ...] = ()
    """Features whose later values are the policy's goal, as in --goal objects or --goal images.front; --hindsight says
    which. evaluate and deploy then want --goals."""
    images: Annotated[bool, switch("images")] = True
    """Let the policy see the cameras of the set; --no-images leaves them out, as --observe proprio objects does."""
    mix: tuple[float, ...] = ()
    """Of several data sets, the share of each in the windows that are drawn, one number ≥ 0 for each set in proportion
    to its share. By default every window of all sets is drawn once per epoch."""
    weights: bool = False
    """Draw the episodes of a data set by the weights that `robolearn dataset quality --weights` wrote into it."""
    preferences: bool = False
    """Learn from the preferences beside the data set (robolearn reward prefer), too (CPL): better clips are imitated,
    and made more likely than worse ones. Flow and diffusion; best begun --from a policy. More flags come with it."""
    weigh: Literal["none", "progress"] = "none"
    """progress: draw windows by what their chunk gains of the progress that `robolearn reward score --write` stored
    beside the steps: in full where it gains, in part where it waits, never where it loses."""
    eval_task: str = ""
    """A task in simulation in which the policy is evaluated: at the end, and on the way with --eval-every."""
    eval_cousins: Cousins = "none"
    """Cousins of that task's scene (--cousins of evaluate)."""
    keep: KeepConfig = field(default_factory=KeepConfig)
    processes: Count = 1
    """Processes that take a share of every batch each, with the gradient of the whole: on the CPU, or with --device
    cuda on a GPU each (extra processes)."""
    device: Device = "auto"
    checkpoint_every: Count = 10
    """Iterations (of --steps-per-iteration gradient steps) between two saved states."""
    log: Tracker = "none"
    resume: bool = False
    """Go on with the run in --out, exactly; with more --steps than it had, also with a finished one."""

    @classmethod
    def defaults(cls, args: Sequence[str]) -> dict[str, Any]:
        if sum(word == "--data" or word.startswith("--data=") for word in args) > 1:
            raise BadInput("--data", got="it twice", expected="all data sets after one, as in --data A B")
        kind = peek(args, "--policy", "flow")
        check_choice("--policy", kind, POLICIES)
        config = PreferenceConfig if "--preferences" in args else ImitationConfig
        if begun := peek(args, "--from", ""):
            kind, policy = _of_policy(Path(begun))
            return {"policy": kind, "settings": config(policy=policy)}
        return {"settings": config(policy=POLICIES[kind]())}

    def run(self) -> dict[str, Any]:
        from robolearn.train.imitation import split_episodes

        check_tracker(self.log)
        check_seed(self.settings.seed)
        if self.keep.every and not self.eval_task:
            raise BadInput("--eval-every", got=self.keep.every, expected="--eval-task with it, to evaluate in")
        if self.goal and self.eval_task:
            got = f"{self.eval_task} for a policy with a goal"
            raise BadInput("--eval-task", got=got, expected="none; `robolearn evaluate --goals …` has goals for it")
        if self.eval_cousins != "none" and not self.eval_task:
            raise BadInput("--eval-cousins", got=self.eval_cousins, expected="--eval-task with it, to evaluate in")
        judged = WorldConfig(self.eval_task, cousins=self.eval_cousins)
        if self.eval_task:
            judged.build(1).close()  # an unknown task is refused before anything is written
        if not self.data:
            raise BadInput("--data", got="nothing", expected="a data set, or several")
        if self.weights and self.weigh != "none":
            raise BadInput("--weigh", got=f"{self.weigh} beside --weights", expected="one of the two")
        if len(self.data) == 1 and self.mix:
            raise BadInput("--mix", got="one data set", expected="several, as in --data A B --mix 0.7 0.3")
        self._check_preferences()
        keep_freed_memory()
        device = self._device(0)
        datasets, weights, shares = self._datasets()
        if privileged := datasets[0].interface.privileged:
            log.info("the policy sees %s, which only a simulated world has", ", ".join(privileged))
        self._build_cache(datasets)
        frames = [dataset.frames_content() for dataset in datasets]
        content = [dataset.content(own) for dataset, own in zip(datasets, frames, strict=True)]
        trainer = self.trainer(device, datasets, weights, shares)
        config = trainer.config  # with the number of windows of a batch, which may depend on what is seen
        if self.processes > 1 and not trainer.net.loss_has_parts:
            raise BadInput("--processes", got=f"{self.processes} for a policy of kind {self.policy}", expected="1")
        drawn: dict[str, Any] = {"data": self.data[0], "sha256": frames[0], "content": content[0]}
        if len(datasets) > 1:
            drawn = {"data": list(self.data), "sha256": frames, "content": content, "mix": shares}
        begun = self._begin(trainer, device)
        stored = {
            "command": "train",
            **drawn,  # the folders may move before a resumption; what is in them may not change
            "interface": datasets[0].interface.to_json(),
            "kind": self.policy,  # two kinds may have the same settings
            "imitation": plain(config),
        } | ({"weights": weights if len(datasets) > 1 else weights[0]} if self.weights else {})
        if self.preferences:
            from robolearn.rewards.labels import preferences_digest

            stored["preferences"] = preferences_digest(datasets[0])
        if self.weigh == "progress":
            stored["weigh"] = {"by": self.weigh, "sha256": sha256(*(one for own in weights for one in own or ()))}
        stored |= begun | (
            {"keep": {"task": self.eval_task, **judged.drawn(), **plain(self.keep)}} if self.keep.every else {}
        )
        evaluator = Evaluator(judged, self.keep.episodes, config.seed, self.json)
        may, added = ("data", "from.policy"), ("content", "kind")
        with (
            closing(evaluator),
            Run.create(
                self.out, stored, resume=self.resume, may_differ=may, added=added, longer="imitation.steps"
            ) as run,
        ):
            write_flags(replace(self, settings=config), "train", run.path)
            run.track(self.log)
            with self._together(trainer, run, device), Progress("imitation", total=config.steps, unit="gradient steps",
                          show=("loss", "validation_loss"), quiet=self.json) as progress:  # fmt: skip
                kept = Kept(trainer, run, self.keep, evaluator)
                done = run_loop(run, kept, checkpoint_every=self.checkpoint_every,
                                progress=lambda _, row: progress(int(row["gradient_steps"]), row))  # fmt: skip
            last = last_row(self.out)
            result = {
                "run": str(self.out),
                "policy": str(run.policy_dir),
                "episodes": sum(len(split_episodes(dataset.episodes, config)[0]) for dataset in datasets),
                "frames": len(trainer.windows),
                "observes": list(datasets[0].interface.observation),
                "privileged": list(datasets[0].interface.privileged),
                "predicted_actions": list(datasets[0].interface.extra.get(PREDICTED_ACTIONS, {})),
                "steps": trainer.steps,
                "loss": last.get("loss"),
                "validation_loss": last.get("validation_loss"),
                "wall_s": {"total": done["wall_s"]},
            }
            if self.preferences:
                result["preferences"] = {**self._compared(trainer), "accuracy": last.get("accuracy")}
            if self.eval_task and self.keep.episodes:
                result |= evaluator.outcomes(run, kept)
            run.finish(result)
        return result

    def _begin(self, trainer: ImitationTrainer, device: Any) -> dict[str, Any]:
        """Begin with the policy of --from; what the run's configuration says of it."""
        if self.start is None:
            if self.resume and (self.out / CONFIG).exists():
                before = read_json(self.out / CONFIG, what=f"run {self.out}").get("from")
                if before is not None:
                    raise BadInput("--from", got="nothing", expected=f"{before['policy']}, as when {self.out} began")
            return {}
        from policies.storage.checkpoint import load_chunk_policy

        policy = load_chunk_policy(self.start, device)
        trainer.begin_from(policy)
        return {"from": {"policy": str(self.start), "sha256": sha256_weights(policy)}}

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        sees = ", ".join(result["observes"])
        only = f" ({', '.join(result['privileged'])}: only in simulation)" if result["privileged"] else ""
        console.print(f"policy      {result['policy']}, which observes {sees}{only}")
        console.print(f"trained     {result['steps']:,} gradient steps on {result['episodes']} episodes, "
                      f"{result['frames']:,} frames, in {result['wall_s']['total']:.0f} s")  # fmt: skip
        if result["predicted_actions"]:
            console.print(f"actions     predicted, not executed, in {', '.join(result['predicted_actions'])}")
        if "preferences" in result:
            pairs, right = result["preferences"]["pairs"], result["preferences"]["accuracy"]
            said = "" if right is None else f", of which the policy agrees with {right:.0%}"
            console.print(f"preferences {pairs} pairs of clips{said}")
        if result["loss"] is not None:
            held = "none held out; --validation 0.1 holds some" if result["validation_loss"] is None else (
                f"{result['validation_loss']:.4f} on episodes that were held out")  # fmt: skip
            console.print(f"loss        {result['loss']:.4f} in training; {held}")
        show_outcomes(result, console, "success     ")
        if "evaluation" not in result:
            console.print(f"next        robolearn evaluate --policy {result['run']} --task … : how often it succeeds")

    def _check_preferences(self) -> None:
        """Raise `BadInput` for what does not go with --preferences."""
        if not self.preferences:
            return
        alone = {
            "--data": len(self.data) > 1 and "several",
            "--goal": self.goal and "a policy with a goal",
            "--weights": self.weights and "weights of episodes",
            "--processes": self.processes > 1 and self.processes,
            "--accumulate": self.settings.accumulate > 1 and self.settings.accumulate,
        }
        for flag, got in alone.items():
            if got:
                raise BadInput(f"{flag} with --preferences", got=got, expected="one data set" if flag == "--data" else
                               "to be left out")  # fmt: skip

    @staticmethod
    def _compared(trainer: ImitationTrainer) -> dict[str, int]:
        from robolearn.train.preferences import PreferenceTrainer

        assert isinstance(trainer, PreferenceTrainer)
        return {"pairs": len(trainer.clips.label), "better_frames": len(trainer.clips.better)}

    def _device(self, rank: int) -> str:
        device = resolve_device(self.device)
        if self.processes == 1:
            return device
        from robolearn.train.processes import MOST, device_of, need_accelerate

        most = min(MOST, self.settings.batch or MOST)
        if self.processes > most:
            expected = f"at most {most}, and a window of the batch for each"
            raise BadInput("--processes", got=self.processes, expected=expected)
        need_accelerate()
        return device_of(device, rank, self.processes)

    def _datasets(self) -> tuple[list[Dataset], list[Weights | None], list[float]]:
        """The sets, weights of their episodes or frames, and their shares."""
        from robolearn.data.mixture import check_alike, shares_of
        from robolearn.data.reading.reader import Dataset

        features = tuple(name for name in self.observe if name != PROMPT)
        datasets = [Dataset.open(path, images=self.images).aiming(self.goal, features) for path in self.data]
        if PROMPT in self.observe:
            from policies.networks.words import SentenceEncoder

            embed = SentenceEncoder()
            datasets = [dataset.with_words(embed) for dataset in datasets]
            words = {k: v for dataset in datasets for k, v in dataset.interface.extra["words"].items()}
            datasets[0] = datasets[0].noting({"words": words})
        shares = shares_of(self.mix or None, datasets)
        check_alike(datasets)
        predicted = {str(d.path): d.interface.extra[PREDICTED_ACTIONS] for d in datasets
                     if PREDICTED_ACTIONS in d.interface.extra}  # fmt: skip
        if predicted:  # the policy says it, too, whichever set is the first
            datasets[0] = datasets[0].noting({PREDICTED_ACTIONS: predicted})
        if self.weigh == "progress":
            return datasets, self._by_progress(datasets), shares
        return datasets, [self._weights(dataset) for dataset in datasets], shares

    def trainer(
        self, device: str, datasets: list[Dataset], weights: list[Weights | None], shares: list[float]
    ) -> ImitationTrainer:
        """A trainer on what `_datasets` opened."""
        from robolearn.train.imitation import ImitationTrainer

        if self.preferences:
            from robolearn.train.preferences import PreferenceTrainer

            assert isinstance(self.settings, PreferenceConfig)
            return PreferenceTrainer.of_preferences(self.settings, datasets[0], device)
        if len(datasets) == 1:
            return ImitationTrainer.of_dataset(self.settings, datasets[0], device, weights=weights[0])
        return ImitationTrainer.of_mixture(self.settings, datasets, shares, device, weights=weights)

    @contextmanager
    def _together(self, trainer: ImitationTrainer, run: Run, device: str) -> Iterator[None]:
        """Within, other processes work on the batches of `trainer` where there are any."""
        if self.processes == 1:
            yield
            return
        from robolearn.train.processes import lead

        with lead(self.processes, "robolearn.cli.train_process", self.task(run.state_dir), device) as together:
            trainer.together = together
            yield

    def task(self, state: Path) -> dict[str, Any]:
        """The task of such a process, as JSON values: the words of its command, and where states are."""
        only = {one.name for one in fields(self)} - NOT_THE_WORK
        return {"words": ["train", *words_of(replace(self, out=state), only)], "state": str(state)}

    def follow(self, rank: int, meeting: Path, state: Path) -> None:
        """Do as the process that leads, whose states are in `state`, but write nothing."""
        from robolearn.runs.checkpoint import load_latest_state
        from robolearn.train.processes import TrainingProcesses

        keep_freed_memory()
        device = self._device(rank)
        trainer = self.trainer(device, *self._datasets())
        self._begin(trainer, device)
        if (found := load_latest_state(state)) is not None:
            trainer.load_state(found[0], found[1]["trainer"])
        trainer.together = together = TrainingProcesses(rank, self.processes, meeting, device)
        for i in range(trainer.done, trainer.iterations):
            trainer.iterate(i)
        together.close()

    def _build_cache(self, datasets: Sequence[Dataset]) -> None:
        total = sum(dataset.frames * len(dataset.cameras) for dataset in datasets)
        if not total:
            return
        with Progress("frame cache", total=total, unit="frames", quiet=self.json) as progress:
            before = 0
            for dataset in datasets:
                dataset.build_cache(lambda done, _, before=before: progress(before + done))
                before += dataset.frames * len(dataset.cameras)

    def _by_progress(self, datasets: list[Dataset]) -> list[Weights | None]:
        """Weights of the frames of each set, by the gains of all."""
        from robolearn.rewards.stored import progress_weights, stored_scores

        scores, _ = stored_scores(datasets)
        found = progress_weights([one.progress for own in scores for one in own], self.settings.policy.horizon)
        if not any(one.any() for one in found):
            raise BadInput("--weigh", got="progress that every chunk loses", expected="a chunk that gains, or waits")
        each = iter(found)
        return [[next(each) for _ in own] for own in scores]

    def _weights(self, dataset: Dataset) -> list[float] | None:
        if self.weights and dataset.weights is None:
            hint = "`robolearn dataset quality --weights` writes them"
            raise BadInput(f"data set {dataset.path}", got="no sampling weights", expected="some", hint=hint)
        return dataset.weights if self.weights else None


def _of_policy(path: Path) -> tuple[str, PolicyConfig]:
    """Kind and settings of the policy at `path`, which training begins with."""
    from policies.registry import config_from_json, unknown_kind
    from policies.storage.config_file import CONFIG, policy_folder, read_config

    file = policy_folder(path) / CONFIG
    config = read_config(file)
    if config["kind"] not in POLICIES:
        raise unknown_kind(config, f"--from {path}: kind of the policy", POLICIES)
    return config["kind"], config_from_json(POLICIES[config["kind"]], config["settings"], f"policy {file}")
