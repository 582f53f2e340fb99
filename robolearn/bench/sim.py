"""``robolearn benchmark sim``: environment steps and pictures per second, beside the physics bound and robosuite."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Annotated, Any

from robolearn.core.switches import switch
from robolearn.runs.command import Command, at_least
from sim.registry import WorldConfig


@dataclass(frozen=True, kw_only=True)
class BenchmarkSim(Command):
    """Speed of an embedded task at 1 and 2 threads, of its bare physics, and of robosuite's Lift on the same cores.

    With --cameras also of worlds that are seen by them in every control step, and beside them of robosuite's agentview.
    """

    world: WorldConfig = field(default_factory=WorldConfig)
    worlds: int = 64
    """Worlds side by side."""
    seconds: float = 2.0
    """Length of one measurement."""
    repeats: int = 3
    """Measurements of each kind, in turn; medians are printed."""
    robosuite: Annotated[bool, switch("robosuite")] = True
    """Measure robosuite's Lift as well (needs the robosuite extra)."""

    def run(self) -> dict[str, Any]:
        from robolearn.core import BadInput
        from sim.registry import task_names

        at_least(1, worlds=self.worlds)
        if self.world.task not in task_names():
            raise BadInput("--task", got=self.world.task, available=task_names())
        for name in ("seconds", "repeats"):
            if not getattr(self, name) > 0:
                raise BadInput(name, got=getattr(self, name), expected="more than 0")
        threads = [self.world.threads] if self.world.threads else sorted({1, min(2, os.cpu_count() or 1)})
        envs: dict[int, Any] = {n: replace(self.world, threads=n, cameras=()).build(self.worlds) for n in threads}
        measures: dict[str, Callable[[], float]] = {}
        for n, env in envs.items():
            env.reset(seed=0)
            measures[f"env_{n}"] = lambda env=env: _chunks(env, self.seconds)
            measures[f"bound_{n}"] = lambda env=env: _physics(env, self.seconds)
        if self.robosuite:
            from sim.adapters import make_robosuite

            rival = make_robosuite("robosuite:Lift", len(threads), workers=len(threads))
            rival.reset(seed=0)
            measures["robosuite"] = lambda: _chunks(rival, self.seconds)
            envs[0] = rival
        if self.world.cameras:
            measures |= self._seeing(envs, threads)
        try:
            # In turn, so that a machine whose speed drifts treats all alike.
            samples: dict[str, list[float]] = {name: [] for name in measures}
            for _ in range(self.repeats + 1):
                for name, measure in measures.items():
                    samples[name].append(measure())
        finally:
            for env in envs.values():
                env.close()
        rate = {name: median(values[1:]) for name, values in samples.items()}  # the first round warms up
        most = threads[-1]
        result: dict[str, Any] = {
            "task": self.world.task,
            "worlds": self.worlds,
            "env_steps_per_s": {str(n): rate[f"env_{n}"] for n in threads},
            "bound_steps_per_s": {str(n): rate[f"bound_{n}"] for n in threads},
            "ratio_bound": rate[f"env_{most}"] / rate[f"bound_{most}"],
        }
        if self.robosuite:
            result["robosuite_steps_per_s"] = {str(most): rate["robosuite"]}
            result["ratio_robosuite"] = rate[f"env_{most}"] / rate["robosuite"]
        if self.world.cameras:
            result |= {"cameras": list(self.world.cameras), "image_size": self.world.image_size}
            result["frames_per_s"] = {str(n): rate[f"frames_{n}"] for n in threads}
            if self.robosuite:
                result["robosuite_frames_per_s"] = {str(most): rate["robosuite_frames"]}
                result["ratio_robosuite_frames"] = rate[f"frames_{most}"] / rate["robosuite_frames"]
        return result

    def _seeing(self, envs: dict[int, Any], threads: list[int]) -> dict[str, Callable[[], float]]:
        """Measures of pictures; the worlds go into `envs`."""
        measures: dict[str, Callable[[], float]] = {}
        for n in threads:
            env = replace(self.world, threads=n).build(self.worlds)
            env.reset(seed=0)
            measures[f"frames_{n}"] = lambda env=env: _frames(env, self.seconds)
            envs[-n] = env
        if self.robosuite:
            from sim.adapters import make_robosuite

            rival = make_robosuite("robosuite:Lift", len(threads), workers=len(threads), cameras=("agentview",),
                                   image_size=self.world.image_size)  # fmt: skip
            rival.reset(seed=0)
            measures["robosuite_frames"] = lambda: _frames(rival, self.seconds)
            envs[-9] = rival
        return measures

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        from rich.table import Table

        table = Table("", "threads", "env-steps/s", title=f"{result['task']}, {result['worlds']} worlds, 20 Hz control")
        for n, value in result["env_steps_per_s"].items():
            table.add_row(f"robolearn {result['task']}", n, f"{value:,.0f}")
        for n, value in result["bound_steps_per_s"].items():
            table.add_row("its bare physics", n, f"{value:,.0f}")
        for n, value in result.get("robosuite_steps_per_s", {}).items():
            table.add_row("robosuite Lift (processes)", n, f"{value:,.0f}")
        console.print(table)
        if "frames_per_s" in result:
            table = Table(
                "", "threads", "frames/s", title=f"{result['image_size']} px, a picture of every control step"
            )
            for n, value in result["frames_per_s"].items():
                table.add_row(f"robolearn {result['task']}, {' and '.join(result['cameras'])}", n, f"{value:,.0f}")
            for n, value in result.get("robosuite_frames_per_s", {}).items():
                table.add_row("robosuite Lift, agentview (processes)", n, f"{value:,.0f}")
            console.print(table)
        console.print(f"{result['ratio_bound']:.0%} of the physics bound", highlight=False)
        if "ratio_robosuite" in result:
            console.print(f"{result['ratio_robosuite']:.0f} times robosuite's Lift on the same cores", highlight=False)


def _chunks(env: Any, seconds: float) -> float:
    """Control steps a second with small random actions, in chunks of 4, resets included."""
    import numpy as np

    rng = np.random.default_rng(0)
    shape = (env.num_envs, 4, env.interface.action.size)
    steps, begun = 0, time.perf_counter()
    while not steps or time.perf_counter() - begun < seconds:
        actions = rng.uniform(-0.5, 0.5, shape).astype(np.float32)
        steps += int(env.step_chunk(actions)[4]["steps"].sum())
    return steps / (time.perf_counter() - begun)


def _frames(env: Any, seconds: float) -> float:
    """Pictures a second where every control step is looked at, physics and resets included."""
    import numpy as np

    rng = np.random.default_rng(0)
    shape, cameras = (
        (env.num_envs, env.interface.action.size),
        sum(k.startswith("images.") for k in env.interface.observation),
    )
    frames, begun = 0, time.perf_counter()
    while not frames or time.perf_counter() - begun < seconds:
        env.step(rng.uniform(-0.5, 0.5, shape).astype(np.float32))
        frames += env.num_envs * cameras
    return frames / (time.perf_counter() - begun)


def _physics(env: Any, seconds: float) -> float:
    """The same worlds with constant set-points: nothing but `Batch.step`, from the states they are in."""
    steps, begun = 0, time.perf_counter()
    while not steps or time.perf_counter() - begun < seconds:
        env.physics_step()
        steps += env.num_envs
    rate = steps / (time.perf_counter() - begun)
    env.reset()
    return rate
