"""Plays 1 kHz set-points to libfranka, in the environment of `maker_judge.py`; a JSON line for each segment.

`missed_ms`: milliseconds for which libfranka had no call of ours, by its own count. The robot extrapolates over them,
and a reflex may then be the machine's and not that of the set-points: such a segment is played again, `TRIES` times at
most, and says so. A reflex without any is final.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import pylibfranka

TRIES = 3
HELD = 200  # ms in which the last set-point is held before a motion is called finished


def main(path: str) -> None:
    segments = np.load(path)
    robot = pylibfranka.Robot("127.0.0.1", pylibfranka.RealtimeConfig.kIgnore)
    for name in segments.files:
        not_counted = []  # ms missed before each reflex that may be the machine's
        while True:
            error, missed_ms = follow(robot, segments[name])
            if not error or not missed_ms or len(not_counted) == TRIES:
                break
            not_counted.append(missed_ms)
        row = {"name": name, "ticks": len(segments[name]), "error": error, "missed_ms": missed_ms}
        print(json.dumps(row | {"not_counted": not_counted}), flush=True)


def follow(robot: pylibfranka.Robot, way: np.ndarray) -> tuple[str, int]:
    """libfranka's error, or none, and the milliseconds that were missed up to it."""
    where, missed = "on the way to its start", [0]
    robot.automatic_error_recovery()
    control = robot.start_joint_position_control(pylibfranka.ControllerMode.JointImpedance)
    here = np.array(control.readOnce()[0].q_d)
    control.writeOnce(pylibfranka.JointPositions(here.tolist()))
    try:
        play(control, smooth(here, way[0]), missed)
        where = ""
        play(control, way, missed)
        play(control, np.repeat(way[-1:], HELD, axis=0), missed, last=True)
    except pylibfranka.ControlException as caught:
        return f"{where} {caught}".strip(), missed[0]
    return "", missed[0]


def smooth(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(T, 7) from a to b with 10 s³ − 15 s⁴ + 6 s⁵, at most 1 rad/s."""
    steps = max(500, int(1900 * np.abs(b - a).max()))
    s = np.linspace(0.0, 1.0, steps)[:, None]
    return a + s**3 * (10 - 15 * s + 6 * s**2) * (b - a)


def play(control: pylibfranka.ActiveControlBase, way: np.ndarray, missed: list[int], *, last: bool = False) -> None:
    for i, positions in enumerate(way):
        since = control.readOnce()[1]
        missed[0] += max(round(1000 * since.to_sec()) - 1, 0)
        command = pylibfranka.JointPositions(positions.tolist())
        command.motion_finished = last and i == len(way) - 1
        control.writeOnce(command)


if __name__ == "__main__":
    main(sys.argv[1])
