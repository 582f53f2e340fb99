"""``robolearn benchmark hil-updates``: updates per second of our RLPD learner, beside LeRobot's SAC learner."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from robolearn.bench.measuring import LeRobot, MeasuringProcess, in_turn, rate
from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.core.machine import torch_threads
from robolearn.core.switches import Count
from robolearn.rl.off_policy_settings import RlpdConfig
from robolearn.runs.command import Command

log = logging.getLogger(__name__)

FEATURES, COMPONENTS, CHUNK = 24, 7, 4  # of an observation, of an action; actions in a chunk
TRANSITIONS, EPISODE = 5000, 50  # in each of the two buffers
LONG_EPISODE = 500  # of a buffer whose size is asked for: it fills in seconds
WARM = 5


@dataclass(frozen=True, kw_only=True)
class BenchmarkHilUpdates(Command):
    """Critics, actor, temperature and targets once each, from a batch of both buffers: updates per second, one thread.

    24 features and chunks of 28 numbers; networks, batch and critics as the settings of RLPD say. LeRobot's SAC learner
    does the same in the environment of --lerobot-python, compiled as it comes and not compiled; all take turns, and
    medians count. Ratios are over its better one. --replay 10000 100000 1000000 measures ours with so many steps of its
    own in the replay, too, and their memory.
    """

    rounds: Count = 5
    """Turns of each."""
    seconds: float = 3.0
    """Of a turn."""
    lerobot_python: Path | None = None
    """The interpreter of an environment with LeRobot; by default this one, where it has LeRobot."""
    replay: tuple[int, ...] = ()
    """Steps in the replay; one measure of ours for each."""
    settings: RlpdConfig = field(default_factory=RlpdConfig)

    def run(self) -> dict[str, Any]:
        for steps in self.replay:
            if steps < LONG_EPISODE:
                raise BadInput("--replay", got=steps, expected=f"at least {LONG_EPISODE}")
        if not self.seconds > 0:
            raise BadInput("--seconds", got=self.seconds, expected="a positive number")
        if self.settings.batch % 2:
            raise BadInput("--batch", got=self.settings.batch, expected="an even number: half of it demonstrations")
        begun = time.perf_counter()
        lerobot = LeRobot.found(self.lerobot_python)
        with ExitStack() as stack, torch_threads(1):
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="robolearn-hil-updates-")))
            sides: dict[str, Callable[[], float]] = {}
            parameters: dict[str, int] = {}
            version = None
            if lerobot is not None:
                for name, compiled in (("lerobot", True), ("lerobot_eager", False)):
                    log.info("%s gets ready", name)
                    rival = stack.enter_context(_rival(lerobot, work, self.settings, compiled=compiled))
                    ready, sides[name] = rival.answer(), partial(rival.measure, self.seconds)
                    parameters[name], version = ready["parameters"], ready["ready"]
            update, parameters["ours"], _ = _ours(self.settings)
            sides["ours"] = lambda: rate(update, self.seconds)
            filled = {steps: _ours(self.settings, steps) for steps in self.replay}
            at = {steps: partial(rate, ours[0], self.seconds) for steps, ours in filled.items()}
            rates = in_turn(sides, self.rounds, warm=0)
            by_steps = in_turn(at, self.rounds, warm=0)
        sizes = [
            {"steps": steps, "updates_per_s": median(by_steps[steps]), "mb": ours[2] / 1e6}
            for steps, ours in filled.items()
        ]
        found = {name: median(values) for name, values in rates.items()}
        best = max((rate for name, rate in found.items() if name != "ours"), default=None)
        return {
            "updates_per_s": found,
            "ratio": None if best is None else found["ours"] / best,
            "rounds": rates,
            "critic_parameters": parameters,
            **({"replay": sizes} if sizes else {}),
            "lerobot_version": version,
            "wall_s": {"total": time.perf_counter() - begun},
        }

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        super().show({key: value for key, value in result.items() if key not in ("rounds", "replay")}, console)
        for row in result.get("replay", ()):
            console.print(f"{row['steps']:,} steps: {row['updates_per_s']:.1f} updates/s, {row['mb']:.0f} MB")


def _ours(settings: RlpdConfig, steps: int = 0) -> tuple[Callable[[], float], int, int]:
    """One update of the learner: a batch from both buffers, the update, the sums of its metrics. And the
    number of the critics' parameters, and the bytes of both buffers, of which the learner's own has `steps`."""
    import torch

    from policies.normalize import Normalizer
    from policies.policy import ChunkPolicy
    from policies.settings import FlowConfig
    from robolearn.data.replay import PlayedEpisode
    from robolearn.rl.algorithms.rlpd import Rlpd
    from robolearn.rl.experience import Experience

    interface = Interface({"proprio": ArraySpec((FEATURES,))}, ArraySpec((COMPONENTS,)), 20.0)
    config = FlowConfig(horizon=CHUNK, execute=CHUNK)
    settings = replace(settings, capacity=max(settings.capacity, 2 * steps))
    algorithm = Rlpd(ChunkPolicy(config.build(interface), Normalizer(interface), interface), settings, seed=0)
    rng = np.random.default_rng(0)

    def episode(length: int = EPISODE) -> PlayedEpisode:
        reward = np.zeros(length, np.float32)
        reward[-1] = 1.0
        return PlayedEpisode(
            {"proprio": rng.standard_normal((length + 1, FEATURES)).astype(np.float32)},
            rng.uniform(-1, 1, (length, COMPONENTS)).astype(np.float32),
            reward,
            np.zeros(length, np.bool_),
            terminated=True,
            success=True,
        )

    experience = Experience(algorithm, [episode() for _ in range(TRANSITIONS // EPISODE)])
    length = LONG_EPISODE if steps else EPISODE
    for _ in range((steps or TRANSITIONS) // length):
        experience.online.add(episode(length))
    draws, sums = torch.Generator().manual_seed(0), {}

    def update() -> float:
        for name, value in algorithm.update(experience.sample(draws)).items():
            sums[name] = sums.get(name, torch.zeros(())) + value.detach().cpu()
        return 1

    for _ in range(WARM):
        update()
    buffers = (experience.online, experience.demonstrations)
    windows = sum(column.nbytes for buffer in buffers for column in buffer.windows.values())
    return update, sum(p.numel() for p in algorithm.critic.net.parameters()), experience.bytes + windows


def _rival(lerobot: LeRobot, work: Path, settings: RlpdConfig, *, compiled: bool) -> MeasuringProcess:
    """LeRobot's learner in a process of its own."""
    task = {
        "features": FEATURES, "actions": COMPONENTS * CHUNK, "transitions": TRANSITIONS, "batch": settings.batch,
        "width": settings.width, "depth": settings.depth, "critics": settings.critics, "subset": settings.subset,
        "compile": compiled,
    }  # fmt: skip
    return MeasuringProcess(lerobot.program("lerobot_sac.py", task), lerobot.failed, **lerobot.options(work))
