"""``robolearn benchmark sim``: environment steps and pictures per second, beside the physics bound and robosuite."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Annotated, Any

import numpy as np

from robolearn.bench.measuring import in_turn, rate
from robolearn.core import BadInput, check_choice
from robolearn.core.switches import Count, switch
from robolearn.runs.command import Command, print_table
from sim.registry import WorldConfig, task_names


@dataclass(frozen=True, kw_only=True)
class BenchmarkSim(Command):
    """Speed of an embedded task at 1 and 2 threads, of its bare physics, and of robosuite's Lift on the same cores.

    With --cameras also of worlds that are seen by them in every control step, and beside them of robosuite's agentview.
    """

    world: WorldConfig = field(default_factory=WorldConfig)
    worlds: Count = 64
    """Worlds side by side."""
    seconds: float = 2.0
    """Length of one measurement."""
    repeats: int = 3
    """Measurements of each kind, in turn; medians are printed."""
    robosuite: Annotated[bool, switch("robosuite")] = True
    """Measure robosuite's Lift as well (needs the robosuite extra)."""

    def run(self) -> dict[str, Any]:
        check_choice("--task", self.world.task, task_names())
        if self.world.workers:
            hint = "robolearn benchmark worlds --task lift --workers 1 2 measures workers"
            raise BadInput("--workers", got=self.world.workers, expected="none: one process is measured", hint=hint)
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
            envs[0] = rival = _robosuite(len(threads))
            measures["robosuite"] = lambda: _chunks(rival, self.seconds)
        if self.world.cameras:
            measures |= self._seeing(envs, threads)
        try:
            found = {name: median(values) for name, values in in_turn(measures, self.repeats).items()}
        finally:
            for env in envs.values():
                env.close()
        most = threads[-1]
        result: dict[str, Any] = {
            "task": self.world.task,
            "worlds": self.worlds,
            "env_steps_per_s": {str(n): found[f"env_{n}"] for n in threads},
            "bound_steps_per_s": {str(n): found[f"bound_{n}"] for n in threads},
            "ratio_bound": found[f"env_{most}"] / found[f"bound_{most}"],
        }
        if self.robosuite:
            result["robosuite_steps_per_s"] = {str(most): found["robosuite"]}
            result["ratio_robosuite"] = found[f"env_{most}"] / found["robosuite"]
        if self.world.cameras:
            result |= {"cameras": list(self.world.cameras), "image_size": self.world.image_size}
            result["frames_per_s"] = {str(n): found[f"frames_{n}"] for n in threads}
            if self.robosuite:
                result["robosuite_frames_per_s"] = {str(most): found["robosuite_frames"]}
                result["ratio_robosuite_frames"] = found[f"frames_{most}"] / found["robosuite_frames"]
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
            envs[-9] = rival = _robosuite(len(threads), cameras=("agentview",), image_size=self.world.image_size)
            measures["robosuite_frames"] = lambda: _frames(rival, self.seconds)
        return measures

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        def rows(names: Mapping[str, str]) -> list[tuple[str, str, str]]:
            return [(name, n, f"{x:,.0f}") for key, name in names.items() for n, x in result.get(key, {}).items()]

        own = f"robolearn {result['task']}"
        speeds = {"env_steps_per_s": own, "bound_steps_per_s": "its bare physics",
                  "robosuite_steps_per_s": "robosuite Lift (processes)"}  # fmt: skip
        title = f"{result['task']}, {result['worlds']} worlds, 20 Hz control"
        print_table(console, ("", "threads", "env-steps/s"), rows(speeds), title=title)
        if "frames_per_s" in result:
            seen = {"frames_per_s": f"{own}, {' and '.join(result['cameras'])}",
                    "robosuite_frames_per_s": "robosuite Lift, agentview (processes)"}  # fmt: skip
            title = f"{result['image_size']} px, a picture of every control step"
            print_table(console, ("", "threads", "frames/s"), rows(seen), title=title)
        console.print(f"{result['ratio_bound']:.0%} of the physics bound", highlight=False)
        if "ratio_robosuite" in result:
            console.print(f"{result['ratio_robosuite']:.0f} times robosuite's Lift on the same cores", highlight=False)


def _robosuite(workers: int, **options: Any) -> Any:
    """Robosuite's Lift, reset, a process for each world."""
    from sim.adapters import make_robosuite

    env = make_robosuite("robosuite:Lift", workers, workers=workers, **options)
    env.reset(seed=0)
    return env


def _chunks(env: Any, seconds: float) -> float:
    """Control steps a second with small random actions, in chunks of 4, resets included."""
    draw = _draws(env.num_envs, 4, env.interface.action.size)
    return rate(lambda: int(env.step_chunk(draw())[4]["steps"].sum()), seconds)


def _frames(env: Any, seconds: float) -> float:
    """Pictures a second where every control step is looked at, physics and resets included."""
    draw = _draws(env.num_envs, env.interface.action.size)
    frames = env.num_envs * sum(k.startswith("images.") for k in env.interface.observation)

    def step() -> int:
        env.step(draw())
        return frames

    return rate(step, seconds)


def _draws(*shape: int) -> Callable[[], Any]:
    """Draws small random actions of this shape."""
    rng = np.random.default_rng(0)
    return lambda: rng.uniform(-0.5, 0.5, shape).astype(np.float32)


def _physics(env: Any, seconds: float) -> float:
    """The same worlds with constant set-points: nothing but `Batch.step`, from the states they are in."""

    def step() -> int:
        env.physics_step()
        return env.num_envs

    found = rate(step, seconds)
    env.reset()
    return found
