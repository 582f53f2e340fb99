"""Stored actions beside the motion that followed: a set may hold what a policy predicted where a person steered.

    Δ_t = R_tᵀ (p_{t+ℓ+1} − p_{t+ℓ})                       measured motion of the tcp, in its frame, ℓ steps later
    c   = Σ_t a_t · Δ_t / √(Σ_t |a_t|² Σ_t |Δ_t|²)         of the frames of one author, a_t the translation

Actions that were executed point where the tcp then went. ℓ, of 0 to `LAGS` − 1, is where c is largest in the frames of
the policy, whose actions were executed; in those of a person c of actions that were overridden is far below. Nothing is
known of sets without both authors, or whose actions are no displacements.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from robolearn.data.reading.reader import Dataset

LAGS = 4
FEWEST = 40  # frames of each author
KNOWN = 0.5  # c of the policy, below which the tcp does not follow actions closely enough to judge by
POSITION = tuple(f"tcp_{axis}" for axis in "xyz")
ROTATION = tuple(f"tcp_rot{i}" for i in range(6))
TRANSLATION = ("dx", "dy", "dz")


def motion_explained(dataset: Dataset) -> tuple[float, float] | None:
    """c of (the policy's, a person's) actions; None where they cannot be compared."""
    seen, act = dataset.interface.observation.get("proprio"), dataset.interface.action
    names, commands = list(seen.names or ()) if seen else [], list(act.names or ())
    wanted = dataset.interface.action_kind == "tcp_delta" and {*TRANSLATION} <= {*commands}
    if not wanted or not {*POSITION, *ROTATION} <= {*names}:
        return None
    place, turn = (dataset.observation["proprio"][:, [names.index(n) for n in part]] for part in (POSITION, ROTATION))
    action = dataset.action[:, [commands.index(n) for n in TRANSLATION]].astype(np.float64)
    first, second = turn[:, :3], turn[:, 3:]
    rotation = np.stack([first, second, np.cross(first, second)], -1)
    step = np.diff(place, axis=0, append=place[-1:])  # of an episode's last frame into another, which is left out
    last = np.repeat(dataset.starts + dataset.lengths - 1, dataset.lengths)
    t, helped = np.arange(dataset.frames), dataset.intervention
    found = []
    for lag in range(LAGS):
        # An author's own: neither the end of the episode nor another author lies between action and motion.
        later = np.minimum(t + lag, dataset.frames - 1)
        whole = (t + lag < last) & (helped[later] == helped)
        moved = np.einsum("nji,nj->ni", rotation, step[later])
        found.append([_cosine(action, moved, whole & (helped == person)) for person in (False, True)])
    known = [(policy, person) for policy, person in found if not (np.isnan(policy) or np.isnan(person))]
    return max(known) if known else None


def predicted_alone(dataset: Dataset) -> tuple[float, float] | None:
    """c of (the policy's, a person's) actions, if a person's is below half of the policy's; else None."""
    found = motion_explained(dataset)
    return found if found is not None and found[0] >= KNOWN and found[1] < 0.5 * found[0] else None


def _cosine(action: NDArray, moved: NDArray, rows: NDArray[np.bool_]) -> float:
    """c, or NaN of fewer than `FEWEST` frames, or where nothing moved."""
    a, b = action[rows], moved[rows]
    size = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / size if len(a) >= FEWEST and size else float("nan")
