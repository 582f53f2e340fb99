"""Arrays called ``timestamp`` or ``timestamps``: the clock of an episode, and never an observation.

They are judged as LeRobot's column is (`clock_faults`), counted from the first frame on, and then left out: frame / hz
stands for them. Whole numbers are in a unit that nothing says, and are left out unjudged.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.data.convert.formats.arrays import Head
from robolearn.data.convert.options import Account, ReadOptions
from robolearn.data.lerobot.clock import GRID_S, clock_faults

CLOCKS = ("timestamp", "timestamps")


def clocks(
    found: Mapping[str, Head], options: ReadOptions, account: Account
) -> tuple[tuple[str, ...], dict[str, Head]]:
    """The arrays of `found` that are clocks to be judged, and those that are none; `account` names the clocks.

    An array that the user maps is what the user says.
    """
    judged, others = [], {}
    for name, head in found.items():
        word = name.rsplit("/", 1)[-1]
        alone = head.shape in ((), (1,)) and head.dtype.kind in "fiu"
        if not alone or word not in CLOCKS or {name, word} & dict(options.named).keys():
            others[name] = head
        elif head.dtype.kind == "f":
            judged.append(name)
            account.left_out.append(f"{name} ({head}): a clock, for which frame / hz stands")
        else:
            account.left_out.append(f"{name} ({head}): a clock in a unit that nothing says")
    return tuple(judged), others


def check_clock(stamps: NDArray, hz: float, where: str, options: ReadOptions, account: Account) -> None:
    """Raise `BadInput` where `stamps` (T,) or (T, 1) [s] of the episode `where` are off the grid of `hz`; note in
    `account` where they are put onto it."""
    stamps = np.asarray(stamps, np.float64).reshape(-1)
    stamps = stamps - stamps[:1]
    for fault in clock_faults(stamps, hz, options.tolerance_s):
        hint = (
            "--skip-bad leaves such episodes out, --tolerance-s SECONDS puts its frames onto the grid, "
            "--hz says another rate"
        )
        got, expected = f"{fault.check} ({fault.what})", f"frame / {hz:g} Hz"
        raise BadInput(f"{where}, frame {fault.first}", got=got, expected=expected, hint=hint)
    off = np.abs(stamps - np.arange(len(stamps)) / hz).max(initial=0.0)
    if off > max(GRID_S, 1e-6 * len(stamps) / hz):
        account.changed.append(f"{where}: its timestamps, up to {off:.3g} s off, are put onto the grid")
