"""Episodes of a data set as they were recorded: with their own rewards, ends and successes, for learning offline.

    reward        next.reward; of a set without rewards 1 at the end of each success
    terminated    next.terminated; of a set without it, or without rewards, the end of each success
    intervention  is_intervention: nobody is taken for a demonstrator whom the set does not call one; of demonstrations
                  every step

A time limit is bootstrapped from the final observation where the set stores it. Where it does not, the last step of an
episode that did not terminate leads nowhere, and no window reaches over it.

A set may hold what a policy predicted where a person steered. Its actions beside the motion that followed name it:

    Δ_t = R_tᵀ (p_{t+ℓ+1} − p_{t+ℓ})                       measured motion of the tcp, in its frame, ℓ steps later
    c   = Σ_t a_t · Δ_t / √(Σ_t |a_t|² Σ_t |Δ_t|²)         of the frames of one author, a_t the translation

Actions that were executed point where the tcp then went. ℓ, of 0 to `LAGS` − 1, is where c is largest in the frames of
the policy, whose actions were executed; in those of a person c of actions that were overridden is far below. Nothing is
known of sets without both authors, or whose actions are no displacements.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput
from robolearn.data.reading.reader import Dataset
from robolearn.data.replay.records import PlayedEpisode

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


log = logging.getLogger(__name__)


def recorded(sets: Sequence[Dataset], *, scored: bool = False) -> Iterator[PlayedEpisode]:
    """All episodes of `sets`. `scored`: a reward model will give them their rewards and successes. Raises `BadInput`:
    at once, for a set that has neither rewards nor successes."""
    if not scored:
        hint = "`robolearn reward train` makes a model of rewards for --reward"
        _check_labelled(sets, "--data", "one of them: failures are learned from, too", hint)
    _say_predicted(sets, "--data")
    solved, episodes = sum(int(found.success.sum()) for found in sets), sum(found.episodes for found in sets)
    cut = sum(not over and not found.has_final(i) for found in sets for i, over in enumerate(ends_of(found)))
    if not (scored or solved or any(found.reward.any() for found in sets)):
        raise BadInput("--data", got=f"{episodes} episodes without reward or success", expected="at least one with it")
    log.info("%d episodes as they were recorded, %d of them successes", episodes, solved)
    if cut and not scored:
        log.info(
            "the last step of %d episodes is left out: got no final observation, expected that or the end of the task; "
            "`robolearn collect` and `robolearn record` store it", cut,
        )  # fmt: skip
    return (_played(found, i) for found in sets for i in range(found.episodes))


def demonstrated(sets: Sequence[Dataset], flag: str, *, scored: bool = False) -> Iterator[tuple[int, PlayedEpisode]]:
    """The demonstrations of `sets`, each with its number in its set: as `recorded` has them, but every step is one of a
    demonstrator's. Episodes that a set calls failures are left out.

    Args:
      flag: that the sets were given by, for messages.
      scored: as in `recorded`.

    Raises:
      BadInput: at once, for a set that has neither rewards nor successes, or where all episodes failed.
    """
    if not scored:
        hint = "`robolearn dataset import SET --outcome success --out OTHER` calls all of its episodes successes"
        _check_labelled(sets, flag, "one of them: failures are no demonstrations", hint)
    _say_predicted(sets, flag)
    shown = [(found, i) for found in sets for i in range(found.episodes) if found.success[i] or not found.outcomes]
    episodes = sum(found.episodes for found in sets)
    if episodes and not shown:
        hint = "`robolearn finetune --updates N` learns from failures, too"
        raise BadInput(flag, got=f"{episodes} episodes, all failures", expected="demonstrations", hint=hint)
    if failed := episodes - len(shown):
        log.warning("%s: %d of %d episodes are left out: failures are no demonstrations", flag, failed, episodes)
    return ((i, _as_demonstration(_played(found, i))) for found, i in shown)


def _as_demonstration(episode: PlayedEpisode) -> PlayedEpisode:
    return replace(episode, intervention=np.ones(len(episode), np.bool_))


def _check_labelled(sets: Sequence[Dataset], flag: str, expected: str, hint: str) -> None:
    """Raise `BadInput` for a set that has neither rewards nor successes."""
    for found in sets:
        if not (found.reward.any() or found.outcomes):
            got = "neither rewards (next.reward) nor successes (next.success)"
            raise BadInput(f"{flag} {found.path}", got=got, expected=expected, hint=hint)


def _say_predicted(sets: Sequence[Dataset], flag: str) -> None:
    """Name the sets whose actions were not executed where a person acted."""
    for found in sets:
        if explained := predicted_alone(found):
            log.warning(
                "%s %s: got actions that explain the arm's motion where the policy acted (cosine %.2f) and not where a "
                "person did (%.2f), expected what was executed: `robolearn dataset import FILES --map EXECUTED=action "
                "--out OTHER` takes it from the array that has it",
                flag, found.path, *explained,
            )  # fmt: skip


def ends_of(dataset: Dataset) -> np.ndarray:
    """(E,) the task ended the episode: nothing comes after it."""
    stated = "next.terminated" in dataset.features and dataset.reward.any()
    return dataset.terminated if stated or not dataset.outcomes else dataset.terminated | dataset.success


def _played(dataset: Dataset, index: int) -> PlayedEpisode:
    episode = dataset.episode(index)
    reward = episode.reward
    if not dataset.reward.any():
        reward = np.zeros(len(episode), np.float32)
        reward[-1] = episode.success
    helped = np.zeros(len(episode), np.bool_) if episode.intervention is None else episode.intervention
    ends = bool(ends_of(dataset)[index]), episode.success, episode.task
    return PlayedEpisode(episode.seen, episode.action, reward, helped, *ends)
