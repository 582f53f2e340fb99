"""Edits of a data set: each takes a set and gives the `EpisodeSource` of a new one; nothing is changed in place.

drop, keep, split, merge, rename_task     episodes stay whole: their videos are taken over as they are
crop, subsample                           episodes lose frames
act                                       other actions, predicted from what is observed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import BadInput, Episode, Interface, check_compatible
from robolearn.core.specs import ACTION_SCALE, PREDICTED_ACTIONS
from robolearn.data.convert.options import Account
from robolearn.data.convert.source import EpisodeDraft, EpisodeSource, source_of
from robolearn.data.lerobot.features import image_keys
from robolearn.data.lerobot.statistics import BOUNDS
from robolearn.data.reading.reader import Dataset

ACTIONS = ("auto", "first", "last", "mean", "sum")


def keep(dataset: Dataset, episodes: Sequence[int]) -> EpisodeSource:
    """Only `episodes`, in that order."""
    if not len(episodes):
        raise BadInput(f"data set {dataset.path}", got="no episode left", expected="at least one")
    return source_of(dataset, episodes)


def drop(dataset: Dataset, episodes: Sequence[int]) -> EpisodeSource:
    """All but `episodes`."""
    gone = set(dataset.check_episodes(episodes))
    return keep(dataset, [index for index in range(dataset.episodes) if index not in gone])


def split(dataset: Dataset, fractions: Sequence[float], seed: int | None) -> list[list[int]]:
    """The episodes of each part, in order; the parts have about `fractions` of the episodes and one at least.

    Args:
      fractions: positive; they are made to add up to 1.
      seed: episodes are dealt at random; None: the first ones go to the first part.
    """
    share = np.asarray(fractions, np.float64)
    if not len(share) or not np.isfinite(share).all() or share.min() <= 0:
        raise BadInput("--fractions", got=list(fractions), expected="positive numbers")
    if len(share) > dataset.episodes:
        raise BadInput(f"data set {dataset.path}", got=f"{dataset.episodes} episodes", expected=f"{len(share)} parts")
    ends = np.round(np.cumsum(share) / share.sum() * dataset.episodes).astype(int)
    # Every part gets an episode: ends move apart where rounding made them meet.
    for i in range(len(ends)):
        ends[i] = max(ends[i], i + 1, ends[i - 1] + 1 if i else 1)
    for i in reversed(range(len(ends))):
        ends[i] = min(ends[i], dataset.episodes - (len(ends) - 1 - i))
    order = np.arange(dataset.episodes)
    if seed is not None:
        order = np.random.default_rng(seed).permutation(dataset.episodes)
    return [sorted(int(e) for e in part) for part in np.split(order, ends[:-1])]


def merge(datasets: Sequence[Dataset]) -> EpisodeSource:
    """All episodes of `datasets`, one set after the other. Raises `BadInput`: two of them have different interfaces;
    the first difference is named. Or one records which episodes succeeded and another does not."""
    sources = [source_of(dataset) for dataset in datasets]
    first = sources[0]
    for dataset, source in zip(datasets[1:], sources[1:], strict=True):
        check_same(first.interface, source.interface, f"data set {dataset.path}")
        if source.outcomes != first.outcomes:
            said = ["no word on which episodes succeeded", "one that says which episodes succeeded"]
            hint = "robolearn dataset import --outcome writes a set that says it"
            got, expected = said[source.outcomes], f"the like of {datasets[0].path}"
            raise BadInput(f"data set {dataset.path}", got=got, expected=expected, hint=hint)
    stamps = tuple(name for name in first.stamps if all(name in source.stamps for source in sources))
    account = Account(left_out=list(dict.fromkeys(line for source in sources for line in source.account.left_out)))
    account.left_out += [
        f"the timestamps {name!r}: not every set has them"
        for name in dict.fromkeys(name for source in sources for name in source.stamps)
        if name not in stamps
    ]
    texts = tuple(name for name in first.texts if all(name in source.texts for source in sources))
    others = dict.fromkeys(name for source in sources for name in source.texts if name not in texts)
    account.left_out += [f"{name} (string): not every set has it" for name in others]
    if image_keys(first.interface):
        account.changed.append(BOUNDS)
    units = [source.interface.extra.get(ACTION_SCALE) for source in sources]
    if any(unit != units[0] for unit in units):
        account.changed.append(f"the units in which exports write actions: those of {datasets[0].path}")
    drafts, count = (draft for source in sources for draft in source.drafts), sum(source.count for source in sources)
    failures = any(source.failures for source in sources)
    return EpisodeSource(first.interface, drafts, count, stamps, account, first.outcomes, failures, texts=texts)


def rename_task(dataset: Dataset, old: str | None, new: str) -> EpisodeSource:
    """Episodes and single frames of task `old` (None: of every task) get the task `new`."""
    if not new.strip():
        raise BadInput("--to", got=repr(new), expected="the task in words")
    if old is not None and old not in dataset.tasks:
        raise BadInput("--task", got=old, available=dataset.tasks)

    def renamed(draft: EpisodeDraft) -> EpisodeDraft:
        episode = draft.episode
        words = tuple(new if old is None or task == old else task for task in episode.frame_tasks or (episode.task,))
        return _with(draft, task=words[0], frame_tasks=words if len(set(words)) > 1 else ())

    return _mapped(source_of(dataset), renamed)


def crop(dataset: Dataset, start: int, end: int, episodes: Sequence[int] | None = None) -> EpisodeSource:
    """Without the first `start` and the last `end` steps of `episodes` (default all).

    An episode whose end is cut keeps its outcome: the flags move to its new last step.
    """
    if start < 0 or end < 0 or start + end == 0:
        raise BadInput("crop", got=f"--start {start} --end {end}", expected="a step at least")
    chosen = set(range(dataset.episodes) if episodes is None else dataset.check_episodes(episodes))
    for index in sorted(chosen):
        if dataset.lengths[index] <= start + end:
            expected = f"more than the {start + end} that are cut"
            raise BadInput(f"episode {index}", got=f"{dataset.lengths[index]} steps", expected=expected)

    def cropped(index: int, draft: EpisodeDraft) -> EpisodeDraft:
        if index not in chosen:
            return draft
        short = rows(draft, slice(start, len(draft) - end))
        return _with(short, final={}) if end else short

    source = source_of(dataset)
    if end and any(dataset.has_final(index) for index in chosen):
        source.account.left_out.append("the observations after the last actions go with the ends that are cut")
    return replace(source, drafts=(cropped(i, draft) for i, draft in enumerate(source.drafts)))


def subsample(dataset: Dataset, every: int, action: str = "auto") -> EpisodeSource:
    """Every `every`-th frame, at a rate that is lower by as much.

    The action of a frame stands for all the steps until the next one:

        first, last   the one of the first or last of these steps (a target that is reached at the end: last)
        mean          held for all of them, it moves as far as they did
        sum           of small motions, where the sum stays in [-1, 1]
        auto          tcp_delta: mean, but the gripper's last; joint_position: last; otherwise first

    Rewards add up; an intervention in any of the steps counts.
    """
    if every < 2:
        raise BadInput("--every", got=every, expected="at least 2")
    if action not in ACTIONS:
        raise BadInput("--action", got=action, available=ACTIONS)
    source = source_of(dataset)
    interface = replace(
        source.interface,
        control_hz=source.interface.control_hz / every,
        extra={**source.interface.extra, "subsampled": every * int(source.interface.extra.get("subsampled", 1))},
    )
    rule = _rule(action, interface)

    def thinned(draft: EpisodeDraft) -> EpisodeDraft:
        episode = draft.episode
        starts = np.arange(0, len(episode), every)
        actions = rule(episode.action, starts)
        if np.abs(actions).max() > 1.0 + 1e-6:
            frame = int(np.abs(actions).max(axis=1).argmax())
            got = f"{np.abs(actions).max():.3g} at frame {frame * every}"
            raise BadInput("sum of actions", got=got, expected="in [-1, 1]", hint="Use --action mean")
        short = rows(draft, slice(None, None, every))
        intervention = episode.intervention
        return _with(
            short,
            action=np.clip(actions, -1, 1).astype(np.float32),
            reward=np.add.reduceat(episode.reward, starts).astype(np.float32),
            intervention=None if intervention is None else np.logical_or.reduceat(intervention, starts),
        )

    return replace(_mapped(source, thinned), interface=interface)


def act(
    dataset: Dataset, like: Interface, actions: Callable[[int], NDArray[np.float32]], mark: Mapping[str, Any]
) -> EpisodeSource:
    """Other actions in the place of what `dataset` has, or has not: predicted ones, of what `like` calls an action.

    Args:
      actions: episode → (T, Da).
      mark: what the interface of the new set says of them, under `PREDICTED_ACTIONS`.
    """
    source = source_of(dataset)
    extra = _without_scale(source.interface)
    extra |= {key: like.extra[key] for key in (ACTION_SCALE,) if key in like.extra} | {PREDICTED_ACTIONS: dict(mark)}
    acting = {"action": like.action, "action_kind": like.action_kind, "extra": extra}
    source.account.changed.append("actions: all are predicted, none was executed")
    drafts = (_with(draft, action=actions(e)) for e, draft in enumerate(source.drafts))
    return replace(source, interface=replace(source.interface, **acting), drafts=drafts)


def rows(draft: EpisodeDraft, chosen: slice) -> EpisodeDraft:
    """`draft` with only the frames `chosen`."""
    e = draft.episode
    short = replace(
        e,
        observation={key: values[chosen] for key, values in e.observation.items()},
        action=e.action[chosen],
        reward=e.reward[chosen],
        intervention=None if e.intervention is None else e.intervention[chosen],
        stamps={name: values[chosen] for name, values in e.stamps.items()},
        texts={name: values[chosen] for name, values in e.texts.items()},
    )
    if e.frame_tasks:
        left = e.frame_tasks[chosen]
        short = replace(short, task=left[0], frame_tasks=left if len(set(left)) > 1 else ())
    return replace(draft, episode=short, images={key: images[chosen] for key, images in draft.images.items()})


def _rule(action: str, interface: Interface) -> Callable[[NDArray, NDArray], NDArray]:
    """(actions (T, Da), first frames of the groups) → (groups, Da)."""

    def first(a: NDArray, starts: NDArray) -> NDArray:
        return a[starts]

    def last(a: NDArray, starts: NDArray) -> NDArray:
        return a[np.append(starts[1:], len(a)) - 1]

    def total(a: NDArray, starts: NDArray) -> NDArray:
        return np.add.reduceat(a.astype(np.float64), starts, axis=0)

    def mean(a: NDArray, starts: NDArray) -> NDArray:
        return total(a, starts) / np.diff(np.append(starts, len(a)))[:, None]

    def motion(a: NDArray, starts: NDArray) -> NDArray:
        moved = mean(a, starts)
        absolute = [i for i, name in enumerate(interface.action.names) if name.endswith("gripper")]
        moved[:, absolute] = last(a, starts)[:, absolute]
        return moved

    if action == "auto":
        return {"tcp_delta": motion, "joint_position": last}.get(interface.action_kind, first)
    return {"first": first, "last": last, "mean": mean, "sum": total}[action]


def _mapped(source: EpisodeSource, change: Callable[[EpisodeDraft], EpisodeDraft]) -> EpisodeSource:
    return replace(source, drafts=(change(draft) for draft in source.drafts))


def _with(draft: EpisodeDraft, **changes: object) -> EpisodeDraft:
    episode: Episode = replace(draft.episode, **changes)  # type: ignore[arg-type]
    return replace(draft, episode=episode)


def check_same(a: Interface, b: Interface, what: str) -> None:
    """Raise `BadInput` unless the set `what` with interface `b` is as the first one, with `a`."""
    # Arm and actions, as training judges them; the scale among them, of which the rest is the unit of exports.
    check_compatible(replace(a, observation={}), b, what=what, subject="the first set")
    one, other = (replace(face, extra=_without_scale(face)).to_json() for face in (a, b))
    for key in one:
        features = {key: (one[key], other[key])}
        if key == "observation":
            features = {name: (one[key].get(name), other[key].get(name)) for name in [*one[key], *other[key]]}
        for name, (mine, theirs) in features.items():
            if mine != theirs:
                got, expected = theirs, mine
                if key in ("observation", "action"):
                    got, expected = _said(theirs, mine) or "nothing", _said(mine, theirs) or "none"
                raise BadInput(f"{what}: {name}", got=got, expected=expected)


def _without_scale(interface: Interface) -> dict[str, Any]:
    return {key: value for key, value in interface.extra.items() if key != ACTION_SCALE}


def _said(spec: dict | None, beside: dict | None) -> str:
    """A feature in words, empty for none; of long lists of components only those that the one `beside` it has not."""
    if spec is None:
        return ""
    own = [name for name in spec["names"] if name not in (beside or spec)["names"]]
    named = f" with {', '.join(own[:3])}{f' and {len(own) - 3} more' * (len(own) > 3)}" if own else ""
    return f"{tuple(spec['shape'])} {spec['dtype']}{' privileged' * spec.get('privileged', False)}{named}"
