"""Motions of an arm out of the episodes that `record` or `deploy --record` kept of it, for `robolearn identify`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hardware.calibration.motion import GAP_S
from hardware.calibration.rows import motion_of_rows
from robolearn.core import BadInput
from robolearn.core.specs import PREDICTED_ACTIONS
from robolearn.data import Dataset
from robots.motion_log import SparseLog
from robots.stations import Contract

log = logging.getLogger(__name__)

SHORTEST_S = 2.0  # a shorter episode says nothing
LEAST_S = 15.0  # of motion, held-out episodes among it
LONGEST_S = 180.0  # of a longer set, episodes spread over it
LATE = 2.5  # control periods between two actions, at most
STILL = 0.05  # of a joint that moved [rad]
STAMPS = ("action", "proprio")


def logged_motions(path: Path, contract: Contract) -> list[SparseLog]:
    """The motions in the data set `path`, an episode each.

    Raises:
      BadInput: it is of another arm, rate or kind of action than `contract`; has no commands, or no stamps; has a gap;
        or in it the arm has hardly moved.
    """
    data = _opened(path, contract)
    sent, seen = (data.stamps[name] for name in STAMPS)
    q = data.observation["proprio"][:, : len(contract.joints)].astype(np.float64)
    motions, faults = [], {}
    for episode, (first, length) in enumerate(zip(data.starts, data.lengths, strict=True)):
        rows = slice(int(first), int(first + length))
        if fault := _fault(sent[rows], seen[rows], contract.control_hz):
            faults[episode] = fault
        elif (length - 1) / contract.control_hz >= SHORTEST_S:
            motions.append((q[rows], data.action[rows], sent[rows], seen[rows]))
    if faults:
        first, why = next(iter(faults.items()))
        which = ",".join(map(str, faults))
        raise BadInput(
            f"--log {path}: episode {first}", got=why,
            expected=f"actions at most {LATE / contract.control_hz:g} s apart, joints at most {GAP_S:g} s older",
            hint=f"robolearn dataset edit drop {path} --episodes {which} --out {path}-whole",
        )  # fmt: skip
    motions = _spread(motions, contract.control_hz)
    seconds = sum(len(one[0]) for one in motions) / contract.control_hz
    moved = max((float(np.ptp(one[0], axis=0).max()) for one in motions), default=0.0)
    if len(motions) < 2 or seconds < LEAST_S or moved < STILL:
        got = f"{len(motions)} episodes of {SHORTEST_S:g} s and more, {seconds:.1f} s"
        got += f", no joint farther than {moved:.2g} rad"
        more = f"robolearn record --robot {contract.name} --out {path} --resume"
        hint = f"{more} records more; without --log the arm is moved"
        raise BadInput(f"--log {path}", got=got, expected=f"2 or more, {LEAST_S:g} s, {STILL:g} rad", hint=hint)
    return [motion_of_rows(contract, *one) for one in motions]


def held_out(motions: Sequence[SparseLog], share: float) -> tuple[list[SparseLog], list[SparseLog]]:
    """(fitted, held out): the last episodes of at least a `share` of the time, at least one of each."""
    wanted = share * sum(one.seconds for one in motions)
    count, seconds = 0, 0.0
    while count == 0 or (seconds < wanted and count < len(motions) - 1):
        count += 1
        seconds += motions[-count].seconds
    return list(motions[:-count]), list(motions[-count:])


def _opened(path: Path, contract: Contract) -> Dataset:
    what, record = f"--log {path}", f"robolearn record --robot {contract.name} --out DATA"
    data = Dataset.open(path, images=False, acting=contract.interface)
    interface = data.interface
    if not np.isfinite(data.action).all() or PREDICTED_ACTIONS in interface.extra:
        got = "predicted actions" if PREDICTED_ACTIONS in interface.extra else "no commands (a column action)"
        raise BadInput(what, got=got, expected="what the arm was sent", hint=f"{record} keeps it")
    if interface.embodiment != contract.robot.name:
        got = f"the arm {interface.embodiment or 'of no name'}"
        raise BadInput(what, got=got, expected=contract.robot.name, hint="--robot names the station of the recording")
    if interface.action_kind != contract.action_kind or interface.action.names != contract.interface.action.names:
        got = f"actions {interface.action_kind or 'of no kind'}"
        raise BadInput(what, got=got, expected=contract.action_kind, hint="--robot names the station of the recording")
    if abs(interface.control_hz - contract.control_hz) > 1e-6 * contract.control_hz:
        got, expected = f"{interface.control_hz:g} rows/s", f"the {contract.control_hz:g} of {contract.name}"
        raise BadInput(what, got=got, expected=expected, hint="--robot names the station of the recording")
    if missing := [name for name in STAMPS if name not in data.stamps]:
        got = f"no stamps of {' and '.join(missing)}"
        hint = f"{record}, or deploy --record, keeps them; of simulated worlds there are none"
        raise BadInput(what, got=got, expected="when each action was sent and its joints measured", hint=hint)
    if "proprio" not in data.observation:
        raise BadInput(what, got="no measured joints", expected="proprio", hint=record)
    return data


def _fault(sent: np.ndarray, seen: np.ndarray, hz: float) -> str:
    """The fault of the stamps of an episode, or nothing."""
    if not (np.isfinite(sent).all() and np.isfinite(seen).all()):
        return "stamps that are no numbers"
    apart, age = np.diff(sent), sent - seen
    if len(apart) and apart.min() <= 0.0:
        return f"row {int(apart.argmin()) + 1} sent {-1e3 * apart.min():.0f} ms before the last"
    if len(apart) and apart.max() * hz > LATE:
        return f"no action for {apart.max():.2f} s after row {int(apart.argmax())}"
    worst = int(np.abs(age).argmax())
    return f"joints of row {worst} measured {age[worst]:.2f} s before its action" if abs(age[worst]) > GAP_S else ""


def _spread(motions: list, hz: float) -> list:
    """Of more than `LONGEST_S` the episodes that are spread over all."""
    lengths = np.array([len(one[0]) for one in motions]) / hz
    if lengths.sum() <= LONGEST_S:
        return motions
    count = max(int(LONGEST_S / lengths.mean()), 2)
    picked = np.unique(np.linspace(0, len(motions) - 1, count).round().astype(int))
    log.warning("%d of %d episodes, spread over the set, are used", len(picked), len(motions))
    return [motions[i] for i in picked]
