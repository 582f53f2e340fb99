"""``robolearn reward label`` and ``prefer``: a page that asks whether the task is done in a frame, those first of which
the model is least certain, or which of two clips does it better."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from robolearn.cli.reward import FORMER, opened, reward_model
from robolearn.core import BadInput
from robolearn.core.switches import Count, Seed, Within
from robolearn.runs import Progress
from robolearn.runs.command import Command, check_port

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from robolearn.core import Episode
    from robolearn.data import Dataset
    from robolearn.rewards.labels import EpisodeClip, Labels, Preference


@dataclass(frozen=True, kw_only=True)
class RewardLabel(Command):
    """Label frames of a data set as done or not done on a page in the browser, those first of which the model is least
    certain. Labels lie beside the set (meta/robolearn_labels.json); reward train --kind classifier learns from them.

    Example: robolearn reward label --data data/failed --reward runs/classifier
    """

    former = FORMER

    data: str
    """A LeRobotDataset v3.0 folder."""
    reward: str
    """A reward model, as of reward score, whose doubt chooses the frames."""
    frames: Count = 50
    """Frames to ask at most; those with a label are not asked again."""
    port: int = 0
    """Port of the page on this machine alone; 0 for any."""
    device: str = "auto"
    """Device of the model: auto, cpu, cuda or cuda:<i>."""

    def run(self) -> dict[str, Any]:
        from robolearn.rewards.label_page import FRAMES, LabelPage, PageQuestion
        from robolearn.rewards.labels import LABELS_PATH, least_certain, read_labels, write_labels
        from robolearn.rewards.metrics import probability, score_or_withhold, window_of
        from robolearn.runs.loopback import show_address

        check_port(self.port)
        dataset = opened(self.data)
        if not dataset.readers:
            raise BadInput(f"data set {self.data}", got="no camera", expected="pictures to look at")
        labels = read_labels(dataset)
        model = reward_model(self.reward, [dataset], self.device)
        odds, counts = [], []
        with Progress("scoring", total=dataset.episodes, unit="episodes", quiet=self.json) as progress:
            for e in range(dataset.episodes):
                episode = dataset.episode(e)
                (score,) = score_or_withhold(model, [window_of(episode)], [episode.task])
                odds.append(probability(score))
                counts.append(len(episode) + bool(episode.final))
                progress(e + 1)
        asked = least_certain(odds, counts, labels, self.frames)
        if not asked:
            raise BadInput(f"data set {self.data}", got="a label for every frame", expected="one that has none")

        def question(e: int, t: int) -> PageQuestion:
            episode, cameras = dataset.episode(e), tuple(dataset.readers)
            where = f"episode {e}, frame {t}"
            return PageQuestion(episode.task, where, cameras, lambda i: png(episode, cameras[i], t))

        def kept(answers: Mapping[int, bool]) -> Labels:
            return labels | {asked[number]: done for number, done in answers.items()}

        questions = [question(e, t) for e, t in asked]
        page = LabelPage(FRAMES, questions, lambda answers: write_labels(dataset, kept(answers)))
        asyncio.run(page.serve(self.port, show_address))
        done = sum(page.answers.values())
        return {
            "dataset": self.data,
            "asked": len(asked),
            "labels": {"done": done, "not_done": len(page.answers) - done, "in_all": len(kept(page.answers))},
            "written": str(dataset.path / LABELS_PATH) if page.answers else None,
        }

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        count = result["labels"]
        console.print(f"labels      {count['done']} done, {count['not_done']} not done; {count['in_all']} in all")
        console.print(f"next        robolearn reward train --kind classifier --data {self.data} … --out runs/… : a "
                      "classifier that learns from them")  # fmt: skip


def png(episode: Episode, camera: str, frame: int) -> bytes:
    """The picture of `camera` at `frame`; the one after the last step is the final observation's."""
    import cv2

    picture = episode.final[camera] if frame == len(episode) else episode.observation[camera][frame]
    done, data = cv2.imencode(".png", picture[..., ::-1])
    assert done
    return data.tobytes()


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
    pairs: Count = 50
    """Pairs to ask at most; two episodes that were compared are not compared again."""
    clip: Annotated[int, Within(0)] = 40
    """Steps of a clip, at most; 0, or with --by-outcome: episodes are whole."""
    by_outcome: bool = False
    """Write the preferences that the stored outcomes say, without a page."""
    seed: Seed = 0
    """Of the pairs that are drawn."""
    port: int = 0
    """Port of the page on this machine alone; 0 for any."""

    def run(self) -> dict[str, Any]:
        from robolearn.data import Dataset
        from robolearn.rewards.labels import (
            Preference,
            better_by_outcome,
            draw_pairs,
            read_preferences,
            write_preferences,
        )

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
        return self._result(len(drawn), new, known)

    def _asked(
        self, dataset: Dataset, drawn: list[tuple[EpisodeClip, EpisodeClip]], known: list[Preference]
    ) -> list[Preference]:
        """The preferences of whoever looks at the page, each written at once."""
        from robolearn.rewards.label_page import PAIRS, LabelPage, PageQuestion
        from robolearn.rewards.labels import Preference, write_preferences
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

    def _result(self, asked: int, new: list[Preference], known: list[Preference]) -> dict[str, Any]:
        from robolearn.rewards.labels import PREFERENCES_PATH

        count = Counter(preference.better for preference in new)
        said = {better: count[better] for better in ("left", "right", "same")}
        decided = sum(preference.better != "same" for preference in (*known, *new))
        return {
            "dataset": self.data,
            "asked": asked,
            "preferences": {**said, "in_all": len(known) + len(new), "decided": decided},
            "written": f"{self.data}/{PREFERENCES_PATH}" if new else None,
        }

    def show(self, result: Mapping[str, Any], console: Any) -> None:
        count = result["preferences"]
        console.print(f"preferences {count['left']} left, {count['right']} right, {count['same']} same; "
                      f"{count['in_all']} in all")  # fmt: skip
        if count["decided"]:
            console.print(f"next        robolearn reward train --kind preference --data {self.data} --out runs/… : a "
                          "reward that learns from them")  # fmt: skip
        else:
            console.print("next        nothing can be learned where no clip is better than another: more pairs, or a "
                          "set with other outcomes")  # fmt: skip


def strip(dataset: Dataset, clip: EpisodeClip, every: int) -> bytes:
    """The frames of `clip` that are shown, of `every` steps one, below each other, cameras side by side: a JPEG."""
    import cv2

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
