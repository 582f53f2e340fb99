"""``robolearn reward prefer``: pairs of clips of which one does the task better, as a person or the outcomes say."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from robolearn.core import BadInput
from robolearn.runs.command import Command, at_least, check_port, check_seed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from robolearn.data import Dataset
    from robolearn.rewards.preferences import EpisodeClip, Preference

MOST_FRAMES = 60  # of a film on the page; of longer clips only some
EDGE = 240  # height of a picture on the page


@dataclass(frozen=True, kw_only=True)
class RewardPrefer(Command):
    """Compare clips of a data set on a page in the browser, two side by side: left, right, or same. Preferences lie
    beside the set (meta/robolearn_preferences.json); train --preferences learns a policy from them, without a reward.

    --by-outcome asks nobody: whole episodes are compared, a success is better than a failure, of two successes the
    shorter one, of two failures the one with the larger sum of rewards.

    Example: robolearn reward prefer --data data/tries --pairs 50
    """

    data: str
    """A LeRobotDataset v3.0 folder."""
    pairs: int = 50
    """Pairs to ask at most; two episodes that were compared are not compared again."""
    clip: int = 40
    """Steps of a clip, at most; with --by-outcome episodes are whole."""
    by_outcome: bool = False
    """Write the preferences that the stored outcomes say, without a page."""
    seed: int = 0
    """Of the pairs that are drawn."""
    port: int = 0
    """Port of the page on this machine alone; 0 for any."""

    def run(self) -> dict[str, Any]:
        from robolearn.data import Dataset
        from robolearn.rewards.preferences import (
            Preference,
            better_by_outcome,
            draw_pairs,
            read_preferences,
            write_preferences,
        )

        at_least(1, pairs=self.pairs, clip=self.clip)
        check_seed(self.seed)
        check_port(self.port)
        dataset = Dataset.open(self.data)
        if self.by_outcome and not dataset.outcomes:
            raise BadInput(f"data set {self.data}", got="no word on which episodes succeeded", expected="it")
        if not (self.by_outcome or dataset.readers):
            hint = "--by-outcome needs none"
            raise BadInput(f"data set {self.data}", got="no camera", expected="pictures to look at", hint=hint)
        known = read_preferences(dataset)
        drawn = draw_pairs(dataset, self.pairs, 0 if self.by_outcome else self.clip, self.seed, known)
        if not drawn:
            raise BadInput(f"data set {self.data}", got="a preference for every pair", expected="one that has none")
        if self.by_outcome:
            new = [Preference(left, right, better_by_outcome(dataset, left, right)) for left, right in drawn]
            write_preferences(dataset, [*known, *new])
        else:
            new = self._asked(dataset, drawn, known)
        return self._result(len(drawn), new, len(known))

    def _asked(
        self, dataset: Dataset, drawn: list[tuple[EpisodeClip, EpisodeClip]], known: list[Preference]
    ) -> list[Preference]:
        """The preferences of whoever looks at the page, each written at once."""
        from robolearn.rewards.label_page import PAIRS, LabelPage, PageQuestion
        from robolearn.rewards.preferences import Preference, write_preferences
        from robolearn.runs.loopback import show_address

        def kept(answers: Mapping[int, Any]) -> list[Preference]:
            return [Preference(*drawn[number], better) for number, better in sorted(answers.items())]

        def question(pair: tuple[EpisodeClip, EpisodeClip]) -> PageQuestion:
            task = dataset.tasks[int(dataset.task_index[dataset.starts[pair[0].episode]])]
            where = " and ".join(f"episode {clip.episode}, steps {clip.begin} to {clip.end - 1}" for clip in pair)
            every = -(-max(len(clip) for clip in pair) // MOST_FRAMES)
            counts = tuple(len(range(0, len(clip), every)) for clip in pair)
            hz = dataset.interface.control_hz / every
            return PageQuestion(task, where, ("left", "right"), lambda i: strip(dataset, pair[i], every), counts, hz)

        questions = [question(pair) for pair in drawn]
        page = LabelPage(PAIRS, questions, lambda given: write_preferences(dataset, [*known, *kept(given)]))
        asyncio.run(page.serve(self.port, show_address))
        return kept(page.answers)

    def _result(self, asked: int, new: list[Preference], before: int) -> dict[str, Any]:
        from robolearn.rewards.preferences import PREFERENCES_PATH

        count = Counter(preference.better for preference in new)
        said = {better: count[better] for better in ("left", "right", "same")}
        return {
            "dataset": self.data,
            "asked": asked,
            "preferences": {**said, "in_all": before + len(new)},
            "written": f"{self.data}/{PREFERENCES_PATH}" if new else None,
        }

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        count = result["preferences"]
        console.print(f"preferences {count['left']} left, {count['right']} right, {count['same']} same; "
                      f"{count['in_all']} in all")  # fmt: skip
        console.print(f"next        robolearn train --data {self.data} --from runs/… --preferences --out runs/… : a "
                      "policy that learns from them")  # fmt: skip


def strip(dataset: Dataset, clip: EpisodeClip, every: int) -> bytes:
    """The frames of `clip` that are shown, of `every` steps one, below each other, cameras side by side: a JPEG."""
    import cv2
    import numpy as np

    episode = dataset.episode(clip.episode)

    def small(frame: NDArray) -> NDArray:
        height, width = frame.shape[:2]
        edge = min(height, EDGE)
        picture = frame if edge == height else cv2.resize(frame, (max(width * edge // height, 1), edge))
        return np.pad(picture, ((0, tall - edge), (0, 0), (0, 0)))

    cameras = [episode.observation[camera][clip.begin : clip.end : every] for camera in dataset.readers]
    tall = max(min(frames.shape[1], EDGE) for frames in cameras)
    rows = [np.hstack([small(frame) for frame in frames]) for frames in zip(*cameras, strict=True)]
    done, data = cv2.imencode(".jpg", np.vstack(rows)[..., ::-1])
    assert done
    return data.tobytes()
