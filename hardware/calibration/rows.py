"""Set-points that an arm was sent between the rows of an episode that `record` or `deploy --record` kept.

A row has the joints q_k when they were measured, and the action that was executed from there. The set-points in between
were the safety filter's: its motion towards the newest target, one step a period of the stream, is made once more.

    target_k      what action_k leads to from q_k, in the filter's joint box, from the stamp of action_k on
    commanded_i   the set-point of step i, at t_0 + i Δt

When within a period the filter stepped is not in the rows. Steps are put half a period after the first action, so that
no delay is found too long or too short on the whole; of one recording it is off by half a period at most.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hardware.safety.configuration import inner_box
from hardware.safety.motion import Motion
from robots import make_control
from robots.motion_log import SparseLog
from robots.stations import Contract

Array = NDArray[np.float64]


def motion_of_rows(contract: Contract, q: Array, actions: NDArray, sent: Array, seen: Array) -> SparseLog:
    """The motion of an episode.

    Args:
      q: (K, n) measured joints [rad].
      actions: (K, Da) executed from there.
      sent, seen: (K,) when each action was sent, and its joints measured, on one clock, `sent` rising [s].
    """
    period = 1.0 / contract.stream_hz
    control = make_control(contract.action_kind, contract.robot, contract.control_hz)
    low, high = inner_box(contract.limits)
    goals = np.clip(control.targets(q, None, actions)[0], low, high).tolist()
    begin = sent[0] + 0.5 * period
    grid = begin + period * np.arange(int((sent[-1] + 1.0 / contract.control_hz - begin) / period))
    newest = np.searchsorted(sent, grid, side="right") - 1
    motion, commanded = Motion(contract.limits, period), np.empty((len(grid), q.shape[1]))
    motion.place(np.clip(q[0], low, high).tolist())
    for i, k in enumerate(newest):
        motion.take(motion.toward(goals[k]))
        commanded[i] = motion.q
    at = seen - begin
    kept = (at >= period) & (at <= len(grid) * period) & (np.diff(seen, prepend=-np.inf) > 0.0)
    return SparseLog(contract.robot.name, period, commanded, q[kept], at[kept])
