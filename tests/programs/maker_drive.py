"""Plays 1 kHz set-points to libfranka, in the environment of `maker_judge.py`; a JSON line for each segment."""

from __future__ import annotations

import json
import sys

import numpy as np
import pylibfranka

HELD = 200  # ms in which the last set-point is held before a motion is called finished


def main(path: str) -> None:
    segments = np.load(path)
    robot = pylibfranka.Robot("127.0.0.1", pylibfranka.RealtimeConfig.kIgnore)
    for name in segments.files:
        way, error, where = segments[name], "", "on the way to its start"
        control = None  # one at a time
        robot.automatic_error_recovery()
        control = robot.start_joint_position_control(pylibfranka.ControllerMode.JointImpedance)
        here = np.array(control.readOnce()[0].q_d)
        control.writeOnce(pylibfranka.JointPositions(here.tolist()))
        try:
            play(control, smooth(here, way[0]))
            where = ""
            play(control, way)
            play(control, np.repeat(way[-1:], HELD, axis=0), last=True)
        except pylibfranka.ControlException as caught:
            error = f"{where} {caught}".strip()
        print(json.dumps({"name": name, "ticks": len(way), "error": error}), flush=True)


def smooth(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(T, 7) from a to b with 10 s³ − 15 s⁴ + 6 s⁵, at most 1 rad/s."""
    steps = max(500, int(1900 * np.abs(b - a).max()))
    s = np.linspace(0.0, 1.0, steps)[:, None]
    return a + s**3 * (10 - 15 * s + 6 * s**2) * (b - a)


def play(control: pylibfranka.ActiveControlBase, way: np.ndarray, *, last: bool = False) -> None:
    for i, positions in enumerate(way):
        control.readOnce()
        command = pylibfranka.JointPositions(positions.tolist())
        command.motion_finished = last and i == len(way) - 1
        control.writeOnce(command)


if __name__ == "__main__":
    main(sys.argv[1])
