"""What an arm was sent between the rows of a recording: beside what the real filter did send, with its own stamps."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from logged_rig import CONTRACT, LoggedRig
from recording_rig import PERIOD, WALL

from hardware.calibration.motion import PerfectArm
from hardware.calibration.rows import motion_of_rows
from robots.motion_log import SparseLog


def recorded(late: float) -> tuple[LoggedRig, dict[str, np.ndarray]]:
    """A rig, and the columns of an episode that it recorded, whose rows are stamped so long before the filter steps."""
    rig = LoggedRig(PerfectArm(CONTRACT.joints, np.array(CONTRACT.robot.home)), late)
    rig.record()
    for k in range(60):
        rig.hand.action = np.array([0.0, np.sin(0.2 * k), 0.6 * np.cos(0.3 * k), 0.0, 0.0, 0.5 * np.sin(0.25 * k), 1.0])
        rig.steps(1)
    rows = rig.paper.rows
    return rig, {
        "q": np.array([row[0]["proprio"][:7] for row in rows], dtype=np.float64),
        "actions": np.array([row[1] for row in rows], dtype=np.float32),
        "sent": np.array([row[3]["action"] for row in rows]),
        "seen": np.array([row[3]["proprio"] for row in rows]),
    }


def test_set_points_are_those_that_the_filter_sent() -> None:
    """With the filter half a period after the stamps, as is assumed, each set-point is there to a tenth of a mrad."""
    rig, rows = recorded(0.5 * PERIOD)
    log = motion_of_rows(CONTRACT, **rows)
    when = rows["sent"][0] + 0.5 * PERIOD + log.period * np.arange(len(log.commanded))
    sent = {round((WALL + at) / PERIOD): q for at, q in rig.commands}
    whole = [k for k, at in enumerate(when) if round(at / PERIOD) in sent]
    assert len(whole) > 500
    errors = np.array([log.commanded[k] - sent[round(when[k] / PERIOD)] for k in whole])
    assert np.abs(errors[20:]).max() < 1e-4
    assert np.ptp(log.commanded, axis=0).max() > 0.1, "it moved"


def test_joints_are_at_their_own_stamps() -> None:
    """The perfect arm is where it was told to be one period before a joint state of it was stamped."""
    _, rows = recorded(0.5 * PERIOD)
    log = motion_of_rows(CONTRACT, **rows)
    assert len(log.measured) == len(rows["q"]) - 1, "the first was measured before the first set-point"
    np.testing.assert_allclose(log.at, rows["seen"][1:] - rows["sent"][0] - 0.5 * PERIOD, atol=1e-6)
    np.testing.assert_allclose(log.seen(log.commanded)[8:], log.measured[8:], atol=2e-4)


def test_a_row_that_repeats_a_joint_state_counts_once() -> None:
    _, rows = recorded(0.0)
    again = {**rows, "seen": rows["seen"].copy(), "q": rows["q"].copy()}
    again["seen"][10], again["q"][10] = rows["seen"][9], rows["q"][9]
    assert len(motion_of_rows(CONTRACT, **again).measured) == len(motion_of_rows(CONTRACT, **rows).measured) - 1


def test_a_sparse_log_by_hand() -> None:
    """Positions are one period after each set-point: 1, 2, 3 at 0.1, 0.2, 0.3 s."""
    log = SparseLog("x", 0.1, np.zeros((3, 1)), np.zeros((3, 1)), np.array([0.1, 0.25, 0.3]))
    positions = np.array([1.0, 2.0, 3.0]).reshape(1, 3, 1)
    np.testing.assert_allclose(log.seen(positions)[0, :, 0], [1.0, 2.5, 3.0])
    assert log.after(0.2) == slice(1, None) and log.after(0.25) == slice(1, None) and log.after(0.0) == slice(0, None)
    assert log.unsure_s == pytest.approx(0.1 * np.std(np.linspace(0.0, 1.0, 100_001)), rel=1e-4)
