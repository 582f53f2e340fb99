"""Actions of other systems, in their own units, to and from the [-1, 1] that robolearn's actions keep to.

Per component, with the extremes low and high over the whole set,

    a = 2 (x − low) / (high − low) − 1        x = low + (a + 1) (high − low) / 2

A component that never changes becomes 0. The scale stands in the interface's ``extra["action_scale"]``, so that an
export gives back the units of the import, and the deployment of a policy scales by them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Interface
from robolearn.data.convert.source import EpisodeDraft

KEY = "action_scale"
TOLERANCE = 1e-6  # as in the checks of a writer


@dataclass(frozen=True)
class Scale:
    """low, high: (Da,) what −1 and 1 stand for."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def apply(self, action: NDArray) -> NDArray[np.float32]:
        """(…, Da) in the system's units → [-1, 1]."""
        span = self.high - self.low
        x = np.asarray(action, np.float64) - self.low
        a = 2.0 * x / np.where(span > 0, span, 1.0) - 1.0
        return np.clip(np.where(span > 0, a, 0.0), -1.0, 1.0).astype(np.float32)

    def invert(self, action: NDArray) -> NDArray[np.float32]:
        """(…, Da) in [-1, 1] → the system's units."""
        x = self.low + 0.5 * (np.asarray(action, np.float64) + 1.0) * (self.high - self.low)
        return x.astype(np.float32)


def scale_for(actions: Iterable[tuple[str, NDArray]]) -> Scale | None:
    """The scale for the `actions` (T, Da) of named episodes, or None where all are in [-1, 1] already.

    Raises:
      BadInput: a number that is not finite; the episode and the frame are named.
    """
    low: NDArray[np.float64] | None = None
    high: NDArray[np.float64] | None = None
    for name, action in actions:
        if not len(action):
            continue
        if not np.isfinite(action).all():
            frame, component = (int(i) for i in np.argwhere(~np.isfinite(action))[0])
            raise BadInput(f"{name}: action at frame {frame}, component {component}", got=action[frame, component],
                           expected="a finite number")  # fmt: skip
        least, most = action.min(axis=0).astype(np.float64), action.max(axis=0).astype(np.float64)
        low = least if low is None else np.minimum(low, least)
        high = most if high is None else np.maximum(high, most)
    if low is None or high is None or (low.min() >= -1 - TOLERANCE and high.max() <= 1 + TOLERANCE):
        return None
    return Scale(low, high)


def scaled(draft: EpisodeDraft, scale: Scale | None) -> EpisodeDraft:
    """`draft` with its actions in [-1, 1]."""
    if scale is None:
        return draft
    return replace(draft, episode=replace(draft.episode, action=scale.apply(draft.episode.action)))


def with_scale(interface: Interface, scale: Scale | None) -> Interface:
    """`interface` with `scale` written into it."""
    if scale is None:
        return interface
    return replace(interface, extra={**interface.extra, KEY: {"low": scale.low.tolist(), "high": scale.high.tolist()}})


def without_scale(interface: Interface) -> Interface:
    """`interface` as it was before `with_scale`."""
    return replace(interface, extra={key: value for key, value in interface.extra.items() if key != KEY})


def scale_of(interface: Interface) -> Scale | None:
    """The scale that is written into `interface`, if any."""
    stored = interface.extra.get(KEY)
    if stored is None:
        return None
    return Scale(np.asarray(stored["low"], np.float64), np.asarray(stored["high"], np.float64))


def note(scale: Scale | None) -> tuple[str, ...]:
    """Remarks for the user."""
    if scale is None:
        return ()
    low, high = float(scale.low.min()), float(scale.high.max())
    return (
        f"the actions were not in [-1, 1] ({low:.4g} to {high:.4g}): each component is scaled by its own extremes, "
        f"which stand in the interface's extra['{KEY}']; export gives the original units back",
    )
