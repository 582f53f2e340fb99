"""The console as an actor meets it: buttons become asks, STOP holds the world, status becomes a page."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any

import numpy as np

from robolearn.hil.learner_service import LearnerProgress, Period
from robolearn.hil.operator_console import ActorStatus, HilStatus, InControl, OperatorCommand, PageConsole
from robots import PANDA
from sim.registry import make_env


class Page:
    """A console whose buttons are pressed by a test; STOP comes again until RELEASE, as on the page."""

    def __init__(self) -> None:
        self.shown: list[HilStatus] = []
        self.pressed: deque[OperatorCommand] = deque()
        self.stopped = False

    def show(self, status: HilStatus) -> None:
        self.shown.append(status)

    def poll(self) -> tuple[OperatorCommand, ...]:
        asked = tuple(self.pressed.popleft() for _ in range(len(self.pressed)))
        self.stopped = (self.stopped or OperatorCommand.STOP in asked) and OperatorCommand.RELEASE not in asked
        return (*asked, OperatorCommand.STOP) if self.stopped and OperatorCommand.STOP not in asked else asked


def status(observation: Any, **changes: Any) -> ActorStatus:
    values: dict[str, Any] = {
        "episode": 2, "step": 30, "observation": observation, "operator": False, "version": 4,
        "period": Period(50.0, 57.0, 90), "linked": True, "unsent": 0,
        "progress": LearnerProgress(env_steps=1000, updates=800, success=0.9, intervention_rate=0.1, q=0.4),
    }  # fmt: skip
    return ActorStatus(**values | changes)


def test_buttons_become_asks_and_stop_holds_the_world() -> None:
    env, page = make_env("lift", 1, threads=1), Page()
    person = PageConsole(page, env.interface, PANDA.joints, env.scene)
    assert person.poll() == []
    page.pressed.extend([OperatorCommand.TAKE_OVER, OperatorCommand.SUCCESS])
    assert person.poll() == ["take_over", "success"]
    page.pressed.extend([OperatorCommand.RETURN, OperatorCommand.HAND_BACK, OperatorCommand.FAILURE])
    assert person.poll() == ["return", "hand_back", "failure"]

    page.pressed.append(OperatorCommand.STOP)
    found: list[Any] = []
    waiting = threading.Thread(target=lambda: found.append(person.poll()))
    waiting.start()
    time.sleep(0.3)
    assert waiting.is_alive() and not found
    page.pressed.append(OperatorCommand.RELEASE)
    waiting.join(5.0)
    assert found == [[]]
    env.close()


def test_an_actor_that_is_to_end_is_not_held() -> None:
    env, page = make_env("lift", 1, threads=1), Page()
    page.pressed.append(OperatorCommand.STOP)
    assert PageConsole(page, env.interface, PANDA.joints, ending=lambda: True).poll() == []
    env.close()


def test_the_page_shows_the_step() -> None:
    env, page = make_env("lift", 1, threads=1), Page()
    observation, _ = env.reset(seed=1)
    person = PageConsole(page, env.interface, PANDA.joints, env.scene)
    for operator in (False, True, True):
        person.show(status(observation, operator=operator))
    first, _, last = page.shown
    assert (first.in_control, last.in_control) == (InControl.POLICY, InControl.PERSON)
    assert (last.episode, last.seconds, last.in_control_s) == (2, 1.5, 0.05)
    assert last.joints is not None and first.metrics is not None
    data = env.batch.get_data(0)
    np.testing.assert_allclose(last.joints, data.qpos[:7], atol=1e-5)
    np.testing.assert_allclose(last.opening, observation["proprio"][0, 7])
    assert (first.metrics.utd, first.metrics.success, first.metrics.latency_ms) == (0.8, 0.9, 57.0)
    # The cube lies where MuJoCo has it.
    assert last.scene is not None
    cube = next(shape.name for shape in last.scene.shapes if shape.name.startswith("cube"))
    place = data.qpos[env.model.joint("cube").qposadr[0] :][:3]
    np.testing.assert_allclose(last.scene.pose(cube)[:3], place, atol=1e-6)
    env.close()
