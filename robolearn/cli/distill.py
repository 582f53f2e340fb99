"""``robolearn distill``: a visuomotor policy, distilled from one that observes the simulator's state."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from policies.settings import POLICIES
from robolearn.cli.choices import Device, PolicyKind, Tracker
from robolearn.cli.config_file import write_flags
from robolearn.core import BadInput, bind_policy, check_choice
from robolearn.core.machine import keep_freed_memory, resolve_device
from robolearn.core.specs import is_instruction
from robolearn.core.switches import Count
from robolearn.io.hashes import sha256_weights
from robolearn.io.json_files import plain
from robolearn.runs import Progress, Run
from robolearn.runs.command import Command, check_seed, last_row, peek
from robolearn.runs.loop import run_loop
from robolearn.runs.trackers import check_tracker
from robolearn.train.settings import DistillConfig
from sim.registry import WorldConfig


@dataclass(frozen=True, kw_only=True)
class Distill(Command):
    """Distil a policy to cameras: the student acts in simulation, and a trained policy labels every decision (DAgger).

    The teacher may be privileged (the simulator's state); the student observes --observe alone, so that it can be
    deployed on an arm with cameras. Can be killed at any moment and resumed exactly.
    """

    teacher: Path
    """A run folder or a checkpoint folder, e.g. of `robolearn finetune`."""
    world: WorldConfig = field(default_factory=WorldConfig)
    out: Path
    """The run folder; the student goes to its policy/, what the worlds showed to its rollouts/."""
    observe: tuple[str, ...] = ("proprio", "images.front", "images.wrist")
    """Observation of the student; images.front, images.side and images.wrist are our tasks' cameras."""
    worlds: Count = 32
    """Worlds side by side."""
    device: Device = "auto"
    policy: PolicyKind = "flow"
    """The kind of student."""
    settings: DistillConfig = field(default_factory=DistillConfig)
    checkpoint_every: Count = 10
    """Iterations (of --steps-per-iteration gradient steps) between two saved states."""
    log: Tracker = "none"
    resume: bool = False
    """Go on with the run in --out, exactly."""

    @classmethod
    def defaults(cls, args: Sequence[str]) -> dict[str, Any]:
        kind = peek(args, "--policy", "flow")
        check_choice("--policy", kind, POLICIES)
        usual = DistillConfig()
        config: Any = POLICIES[kind]
        student = config(initial_noise_std=0.0) if config.denoises else config()
        return {"settings": replace(usual, imitation=replace(usual.imitation, policy=student))}

    def run(self) -> dict[str, Any]:
        from policies.storage.checkpoint import load_chunk_policy
        from robolearn.train.distill import Distiller

        check_tracker(self.log)
        keep_freed_memory()
        config = self.settings
        check_seed(config.imitation.seed)
        if not self.observe:
            raise BadInput("--observe", got="nothing", expected="e.g. proprio images.front images.wrist")
        if "images" in self.observe:
            expected = "cameras by their names, e.g. images.front images.wrist"
            raise BadInput("--observe", got="images, of which a set that is yet to come has none", expected=expected)
        device = resolve_device(self.device)
        teacher = load_chunk_policy(self.teacher, device)
        if told := [key for key in teacher.interface.observation if is_instruction(key)]:
            got = f"one that is told {', '.join(told)}"
            raise BadInput(f"teacher {self.teacher}", got=got, expected="one without words or goals")
        begun = time.perf_counter()
        cameras = tuple(name.removeprefix("images.") for name in self.observe if name.startswith("images."))
        task, asked = self.world.task, self.world
        world = replace(asked.matching(teacher.interface), cameras=cameras, image_size=asked.image_size)
        with closing(world.build(self.worlds)) as env:
            bind_policy(teacher, env.interface, what=f"teacher {self.teacher} in {task}")
            stored = {
                "command": "distill",
                "teacher": str(self.teacher),  # may move before a resumption, but not change
                "sha256": sha256_weights(teacher),
                "task": task,
                "interface": env.interface.seeing(self.observe, what=f"task {task}").to_json(),
                "kind": self.policy,  # two kinds may have the same settings
                "worlds": self.worlds,
                **{"looks": asked.looks, **asked.drawn()},
                "settings": plain(config),
            }
            with Run.create(self.out, stored, resume=self.resume, may_differ=("teacher",), added=("kind",)) as run:
                student = Distiller(config, env, teacher, self.observe, run.path / "rollouts", device)
                write_flags(self, "distill", run.path)
                run.track(self.log)
                with Progress(f"distilling {task}", total=config.imitation.steps, unit="gradient steps",
                              show=("loss", "round", "success"), quiet=self.json) as progress:  # fmt: skip
                    done = run_loop(run, student, checkpoint_every=self.checkpoint_every,
                                    progress=lambda _, row: progress(int(row["gradient_steps"]), row))  # fmt: skip
                last = last_row(self.out)
                result = {
                    "run": str(self.out),
                    "policy": str(run.policy_dir),
                    "task": task,
                    "observes": list(student.interface.observation),
                    "privileged": list(student.interface.privileged),
                    "teacher_sees": list(teacher.interface.observation),
                    "decisions": len(student.windows),
                    "steps": student.trainer.steps,
                    "loss": last.get("loss"),
                    "last_round_success": last.get("success") if last.get("episodes") else None,
                    "wall_s": {"total": time.perf_counter() - begun, "run": done["wall_s"]},
                }
                run.finish(result)
        return result

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        r = result
        console.print(f"policy      {r['policy']}, which observes {', '.join(r['observes'])}")
        console.print(f"distilled   {r['steps']:,} gradient steps on {r['decisions']:,} decisions, "
                      f"in {r['wall_s']['total']:.0f} s")  # fmt: skip
        if r["loss"] is not None:
            console.print(f"loss        {r['loss']:.4f}")
        if r["last_round_success"] is not None:
            share = f"{r['last_round_success']:.1%}"
            console.print(f"success     {share} of the last round's episodes, in which the teacher has a share")
        console.print(
            f"next        robolearn evaluate --policy {r['run']} --task {self.world.task} : how often it succeeds"
        )
