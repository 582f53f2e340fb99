"""``robolearn hil actor``: the half that acts."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from robolearn.cli.hil.acting import Acting
from robolearn.cli.teleop_flags import teleop_values
from robolearn.core import BadInput

log = logging.getLogger(__name__)

SWITCH_S = 1e-3  # the control loop gets the interpreter back from the threads of the link so soon


@dataclass(frozen=True, kw_only=True)
class HilActor(Acting):
    """Act in a world or on an arm, step by step, for a learner, and let an operator take over. Asks nothing on standard
    input unless your device is there; what it did is on its disk before it is sent, and goes on from there after a
    kill."""

    def run(self) -> dict[str, Any]:
        import torch

        from policies.storage.checkpoint import load_chunk_policy
        from robolearn.core.device import resolve_device

        self.check_playing()
        torch.set_num_threads(1)
        base = load_chunk_policy(self.policy, resolve_device(self.device))
        if self.robot:
            from robolearn.cli.hil.arm import play_on_arm

            return play_on_arm(self, base)
        return self._play_in_a_world(base)

    def _play_in_a_world(self, base: Any) -> dict[str, Any]:
        from robolearn.cli.hil.stopping import stopping
        from robolearn.core import bind_policy
        from robolearn.hil.actor import Actor
        from robolearn.hil.agent import DoubleBufferedPolicy
        from robolearn.hil.link import opened
        from sim.registry import WorldConfig

        outbox, link = self.reach(base)
        env = None
        try:
            world = WorldConfig(self.task, threads=1).matching(base.interface)
            env = world.build(1)
            if self.teleop and world.family.has_scene:
                env.max_episode_steps = round(self.seconds * env.interface.control_hz)
            bind_policy(base, env.interface, what=f"policy {self.policy} in {self.task}")
            with stopping() as stop, opened(link), self._people(env, stop) as (person, hand):
                config = link.open(stop)
                if config is None:
                    raise KeyboardInterrupt
                if hand is not None and config.pace != "realtime":
                    raise BadInput("learner", got=f"--pace {config.pace}", expected="realtime beside a person")
                buffered = DoubleBufferedPolicy(lambda: config.settings.build(base, seed=config.seed))
                link.start(buffered)
                actor = Actor(
                    env, buffered, link, outbox, config, self.name, tuple(base.interface.observation),
                    self._operators(env) if hand is None else lambda _: hand, person,
                )  # fmt: skip
                sys.setswitchinterval(SWITCH_S)
                played = actor.run(stop)
                period = link.measure()
                if stop():
                    raise KeyboardInterrupt
        finally:
            outbox.close()
            if env is not None:
                env.close()
        return self.result(played, outbox, link, period)

    @contextlib.contextmanager
    def _people(self, env: Any, stop: Callable[[], bool]) -> Iterator[tuple[Any, Any]]:
        """(who is shown each step and asked, the person with a device), each or None."""
        from robolearn.cli.hil.hands import opened_device, opened_page
        from robolearn.hil.device_operator import DeviceOperator
        from robots import ROBOTS

        with opened_page(self.console, self.out, env.interface, getattr(env, "scene", None), stop) as page:
            if not self.teleop:
                yield page, None
                return
            robot = ROBOTS.get(env.interface.embodiment)
            if robot is None:
                raise BadInput("--teleop", got=f"a world with {env.interface.embodiment}", available=ROBOTS)
            with opened_device(self.teleop, teleop_values(self), env.interface, robot, self.out) as device:
                scene = None if self.screen else getattr(env, "scene", None)
                hand = DeviceOperator(device, env.interface, robot, scene=scene, ending=stop, console=page)
                yield hand, hand

    def _operators(self, env: Any) -> Callable[[int], Any] | None:
        if self.operator == "none":
            return None
        from sim.experts import make_operator

        make_operator(self.task, env.interface, 1, 0)  # a task without a script is refused now
        return lambda seed: make_operator(self.task, env.interface, 1, seed)
