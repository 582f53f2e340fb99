"""A teleoperation device, listened to for some seconds: what it says, on the screen."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from robolearn.core import BadInput

SHOWN_S = 0.2  # between two lines


def listen(name: str, say: Callable[[str], None], *, port: str = "", seconds: float = 5.0) -> dict[str, Any]:
    """Open the device `name` as for an arm that stands at home, and say what it says.

    Args:
      name: of a device that is no page.
      say: is given a line for people, at most five a second, each time something changed.
      port: the serial port of a leader arm, if not the usual one.
      seconds: how long.

    Returns:
      ``{"device", "samples", "engaged", "events", "low", "high"}``; `low` and `high` by the action's components.

    Raises:
      BadInput: there is no such device, or it is not plugged in.
    """
    from hardware.teleop import TELEOPERATORS, make_device
    from robots.proprio import proprio
    from robots.stations import load_contract

    local = [one for one, config in TELEOPERATORS.items() if config.shows_in_terminal]
    if name not in local:
        raise BadInput("--device", got=name, available=local)
    config = TELEOPERATORS[name]
    contract = load_contract(config.station)
    robot, interface = contract.robot, contract.interface
    home = np.asarray(robot.home)[None]
    observation = {"proprio": proprio(home, np.array([robot.gripper.max_width]), *robot.chain.forward(home))[0]}
    options = {"port": port} if port and "leader_port" in config.flags() else {}
    device = make_device(name, interface, robot, **options)
    actions, events, samples, engaged = [], [], 0, 0
    device.open()
    try:
        start = now = time.monotonic()
        shown, shown_at = "", -np.inf
        while now - start < seconds:
            sample = device.sample(observation)
            samples, engaged = samples + 1, engaged + sample.engaged
            events += map(str, sample.events)
            line = "holds still" if sample.engaged else "not engaged"
            if sample.action is not None:
                actions.append(sample.action)
                named = zip(interface.action.names, sample.action, strict=True)
                line = "  ".join(f"{part} {value:+.2f}" for part, value in named)
            line += f"  {sample.note}" if sample.note else ""
            line += "".join(f"  [{event}]" for event in sample.events)
            if line != shown and (sample.events or now - shown_at >= SHOWN_S):
                say(line)
                shown, shown_at = line, now
            time.sleep(max(0.0, start + samples / interface.control_hz - time.monotonic()))
            now = time.monotonic()
    finally:
        device.close()
    spread = np.array(actions).reshape(-1, interface.action.size)
    low, high = (spread.min(0), spread.max(0)) if len(spread) else (None, None)
    return {
        "device": name,
        "samples": samples,
        "engaged": engaged,
        "events": events,
        "low": None if low is None else [round(float(v), 4) for v in low],
        "high": None if high is None else [round(float(v), 4) for v in high],
    }
