"""Arming, stopping, resetting and judging an arm by keys, beside nodes that something else has started.

The software dead-man's switch is this process: it is held from `A` until the arm is disarmed, and released by any key
that stops, by the end of the process however it comes, and by a terminal that hangs up.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from hardware.observing.timing import SafetySilent
from hardware.safety.states import SafetyState
from robolearn.core import RobolearnError
from robolearn.deploy.session import SafetySwitch

POLL_S = 0.02
STOPS = ("space", "escape")
VERDICTS = {"1": True, "-": False}  # the keys that devices at a terminal have for them


class JudgedSwitch(SafetySwitch, Protocol):
    """A switch that takes verdicts, too; `hardware.ros2.safety_client.SafetyClient`."""

    def judge(self, success: bool, timeout_s: float = ...) -> Callable[[], str]: ...


class Pressed(Protocol):
    """The source of keys; `hardware.teleop.terminal.Keys`."""

    gone: bool

    def poll(self) -> list[tuple[str, bool]]: ...


def operate_station(
    keys: Any,
    say: Callable[[str], None],
    ready: Callable[[], None],
    *,
    domain: int | None,
    wait_s: float,
    station: str = "",
) -> dict[str, Any]:
    """Wait `wait_s` [s] for the safety node, then `operate` it by `keys`, which are opened and closed.

    Args:
      keys: a `hardware.teleop.terminal.Keys`; `ready` is called once when they begin to work.
      say: shows a line.
      domain: ROS domain; None: that of the environment.
      station: the namespace of the station.

    Raises:
      RobolearnError: the safety node does not appear.
      BadInput: there is no ROS 2 here.
    """
    from hardware.ros2.environment import prepare

    if domain is not None:
        os.environ["ROS_DOMAIN_ID"] = str(domain)
    prepare()
    from hardware.ros2.safety_client import SafetyClient

    with SafetyClient(station=station) as client:
        client.wait_ready(wait_s, policy=False)
        keys.open()
        try:
            ready()
            return operate(client, keys, say)
        finally:
            client.release()
            keys.close()


def operate(
    switch: JudgedSwitch, keys: Pressed, say: Callable[[str], None], sleep: Callable[[float], None] = time.sleep
) -> dict[str, Any]:
    """Do what is pressed until Q, or until the terminal is gone; `switch` is the safety node's client. `say` shows a
    line; the same line again is not news. `sleep` waits between two polls. Returns how often the arm was armed and
    stopped, and the state that it was left in."""
    armed = stopped = 0
    judged = False
    answer: Callable[[], str] | None = None  # to a verdict

    def obey(key: str) -> None:
        nonlocal armed, stopped, answer
        if key == "a":
            switch.arm(2.0)
            armed += 1
        elif key == "d":
            switch.disarm()
            switch.release()
        elif key == "r":
            switch.reset()
        elif key in STOPS:
            stopped += 1
            switch.estop()
        elif key in VERDICTS and answer is None:
            answer = switch.judge(VERDICTS[key])

    def hear() -> None:
        """Say how the episode ended; the dead-man's switch is let go once the arm is at rest."""
        nonlocal answer, judged
        asked, answer = answer, None  # it may raise
        if asked is not None:
            if outcome := asked():
                say(f"the episode has ended: {outcome}")
                judged = True
            else:
                answer = asked
        if judged and switch.state == SafetyState.DISARMED:
            switch.release()
            judged = False

    try:
        while not keys.gone:
            # Whatever is pressed besides, a stop comes first.
            pressed = sorted((key for key, new in keys.poll() if new), key=lambda key: key not in STOPS)
            if "q" in pressed and "space" not in pressed:
                break
            for do in (*(partial(obey, key) for key in pressed), hear):
                try:
                    do()
                except RobolearnError as error:
                    say(f"refused: {error}")
            say(_heard(switch))
            sleep(POLL_S)
        if not keys.gone and switch.state == SafetyState.ARMED:
            switch.disarm()
    except SafetySilent as error:
        say(str(error))
    finally:
        switch.release()  # brakes and latches, should it still be armed
    return {"armed": armed, "stopped": stopped, "state": switch.state}


def _heard(switch: SafetySwitch) -> str:
    """The report of the safety node, in a line; a node that hangs reports nothing, whatever its last state."""
    try:
        switch.check_heard()
    except SafetySilent as error:
        return str(error)
    return f"{switch.state or 'silent'}{': ' if switch.reason else ''}{switch.reason}"
