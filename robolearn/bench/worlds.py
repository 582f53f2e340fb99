"""``robolearn benchmark worlds``: the price of the bridge to worlds in processes, and the speed of one of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from robolearn.bench.measuring import in_turn, rate
from robolearn.core import BadInput
from robolearn.core.switches import Count
from robolearn.runs.command import Command, print_table

STATE, PICTURES = "state", "pictures"


@dataclass(frozen=True, kw_only=True)
class BenchmarkWorlds(Command):
    """Step worlds in which nothing happens, here and in a worker process: the difference is the bridge.

    The durations are those of the fastest tenth of the steps, in turn: on a machine with other work the rest measures
    that work. With --task also control steps a second of its worlds, by small random actions; with --workers besides in
    workers, with the CPU time and the bytes that each step takes on this side.
    """

    task: str = ""
    """A task whose worlds are measured besides, such as metaworld:drawer-open-v3."""
    workers: tuple[str, ...] = ()
    """Workers that the worlds of --task are spread over in turn, as in --workers 1 2 4 ray:2; one thread each."""
    world_python: Path | None = None
    """The interpreter of the worker process; by default this one."""
    cameras: tuple[str, ...] = ()
    """Cameras of --task that are observed in workers."""
    worlds: Count = 64
    """Worlds side by side."""
    image_size: int = 84
    """Edge of the pictures [px]."""
    seconds: float = 2.0
    """Length of one measurement."""
    repeats: Count = 3
    """Measurements of each kind, in turn."""

    def run(self) -> dict[str, Any]:
        """``{"worlds", "step_us": {kind: {"here", "bridge", "own"}}, "pictures_gb_per_s", "steps_per_s"}``."""
        import numpy as np

        from sim.adapters import AdapterVectorEnv
        from sim.bridge.pools import EnvFactory, LocalPool, WorkerPool
        from sim.registry import WorldConfig

        if self.workers and not self.task:
            raise BadInput("--workers", got="no --task", expected="a task, as in --task lift --workers 1 2 4")
        python, n = str(self.world_python or ""), self.worlds
        result: dict[str, Any] = {"worlds": n, "image_size": self.image_size}
        with ExitStack() as open_envs:
            measures: dict[tuple[str, str], Any] = {}
            for kind, cameras in ((STATE, []), (PICTURES, ["front"])):
                factory = EnvFactory(".idle:build", {"cameras": cameras, "image_size": self.image_size})
                pools = {"here": LocalPool([factory.build() for _ in range(n)]),
                         "bridge": WorkerPool(factory, n, 1, "idle", python)}  # fmt: skip
                for place, pool in pools.items():
                    env = AdapterVectorEnv(pool, n)
                    open_envs.callback(env.close)
                    env.reset(seed=0)
                    measures[kind, place] = lambda env=env: self._step_us(env)
            found = {name: float(np.min(values)) for name, values in in_turn(measures, self.repeats).items()}
        steps = {kind: {place: found[kind, place] for place in ("here", "bridge")} for kind in (STATE, PICTURES)}
        for kind in steps:
            steps[kind]["own"] = steps[kind]["bridge"] - steps[kind]["here"]
        result["step_us"] = steps
        result["pictures_gb_per_s"] = n * 3 * self.image_size**2 / steps[PICTURES]["bridge"] / 1e3
        if self.task:
            env = WorldConfig(self.task, world_python=self.world_python).build(n)
            try:
                env.reset(seed=0)
                values = in_turn({"world": lambda: rate(lambda: _chunk(env), self.seconds)}, self.repeats)
            finally:
                env.close()
            result["task"], result["steps_per_s"] = self.task, float(np.median(values["world"]))
        if self.workers:
            result["workers"] = self._in_workers()
        return result

    def _in_workers(self) -> dict[str, dict[str, float]]:
        """Workers, or ``here`` for none → control steps a second (the fastest measurement), and for each of them the
        CPU time of this process [µs] and the bytes that went to workers and came back."""
        import numpy as np

        from sim.registry import WorldConfig

        pictures = {"cameras": self.cameras, "image_size": self.image_size}
        config = WorldConfig(self.task, world_python=self.world_python, threads=1, **pictures)
        found: dict[str, dict[str, float]] = {}
        with ExitStack() as open_envs:
            envs: dict[str, Any] = {"here": config.build(self.worlds)}
            open_envs.callback(envs["here"].close)
            for workers in self.workers:
                envs[workers] = replace(config, workers=workers).build(self.worlds)
                open_envs.callback(envs[workers].close)
            for env in envs.values():
                env.reset(seed=0)
            cpu, moved = dict.fromkeys(envs, 0.0), dict.fromkeys(envs, 0)

            def measured(name: str) -> float:
                begun = time.process_time()
                speed = rate(lambda: counted(name), self.seconds)
                cpu[name] += time.process_time() - begun
                return speed

            def counted(name: str) -> int:
                steps = _chunk(envs[name])
                moved[name] += steps
                return steps

            before = {name: getattr(env, "traffic", 0) for name, env in envs.items()}
            speeds = in_turn({name: lambda name=name: measured(name) for name in envs}, self.repeats)
            for name, env in envs.items():
                found[name] = {
                    "steps_per_s": float(np.max(speeds[name])),
                    "cpu_us_per_step": 1e6 * cpu[name] / moved[name],
                    "bytes_per_step": (getattr(env, "traffic", 0) - before[name]) / moved[name],
                }
        return found

    def _step_us(self, env: Any) -> float:
        """The fastest tenth of the steps in so many seconds [µs]."""
        import numpy as np

        actions = np.zeros((env.num_envs, env.interface.action.size), np.float32)
        times, end = [], time.perf_counter() + self.seconds
        while time.perf_counter() < end or len(times) < 10:
            begun = time.perf_counter()
            env.step(actions)
            times.append(time.perf_counter() - begun)
        return 1e6 * float(np.quantile(times, 0.1))

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        console.print(f"a step of {result['worlds']} idle worlds, in the fastest tenth:")
        for kind, us in result["step_us"].items():
            parts = f"{us['here']:,.0f} µs here, {us['bridge']:,.0f} µs in a process: {us['own']:,.0f} µs by the bridge"
            console.print(f"{kind:12}{parts}")
        console.print(f"{'':12}{result['pictures_gb_per_s']:.2f} GB/s of {result['image_size']} px pictures")
        if "steps_per_s" in result:
            console.print(f"{result['task']}: {result['steps_per_s']:,.0f} control steps a second, resets included")
        if "workers" in result:
            rows = [
                (name, f"{one['steps_per_s']:,.0f}", f"{one['cpu_us_per_step']:,.1f}", f"{one['bytes_per_step']:,.0f}")
                for name, one in result["workers"].items()
            ]
            heads = ("workers", "control steps/s", "µs of this process a step", "bytes a step")
            print_table(console, heads, rows, title=f"{result['task']}, {result['worlds']} worlds, chunks of 8")


def _chunk(env: Any) -> int:
    """The control steps of a chunk of 8 small random actions."""
    import numpy as np

    shape = (env.num_envs, 8, env.interface.action.size)
    chunk = np.random.default_rng(0).uniform(-0.5, 0.5, shape).astype(np.float32)
    return int(env.step_chunk(chunk)[4]["steps"].sum())
