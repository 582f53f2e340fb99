"""``robolearn benchmark worlds``: the price of the bridge to worlds in processes, and the speed of one of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robolearn.bench.measuring import in_turn, rate
from robolearn.runs.command import Command, at_least

STATE, PICTURES = "state", "pictures"


@dataclass(frozen=True, kw_only=True)
class BenchmarkWorlds(Command):
    """Step worlds in which nothing happens, here and in a worker process: the difference is the bridge.

    The durations are those of the fastest tenth of the steps, in turn: on a machine with other work the rest measures
    that work. With --task also control steps a second of a world of another maker, by small random actions.
    """

    task: str = ""
    """A task whose worlds are measured besides, such as metaworld:drawer-open-v3."""
    world_python: Path | None = None
    """The interpreter of the worker process; by default this one."""
    worlds: int = 64
    """Worlds side by side."""
    image_size: int = 84
    """Edge of the pictures [px]."""
    seconds: float = 2.0
    """Length of one measurement."""
    repeats: int = 3
    """Measurements of each kind, in turn."""

    def run(self) -> dict[str, Any]:
        """``{"worlds", "step_us": {kind: {"here", "bridge", "own"}}, "pictures_gb_per_s", "steps_per_s"}``."""
        import numpy as np

        from sim.adapters import AdapterVectorEnv
        from sim.bridge.pools import EnvFactory, LocalPool, WorkerPool
        from sim.registry import WorldConfig

        at_least(1, worlds=self.worlds, repeats=self.repeats)
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
        return result

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


def _chunk(env: Any) -> int:
    """The control steps of a chunk of 8 small random actions."""
    import numpy as np

    shape = (env.num_envs, 8, env.interface.action.size)
    chunk = np.random.default_rng(0).uniform(-0.5, 0.5, shape).astype(np.float32)
    return int(env.step_chunk(chunk)[4]["steps"].sum())
