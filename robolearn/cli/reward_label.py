"""``robolearn reward label``: a page that asks of single frames whether the task is done, the least certain first."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from robolearn.cli.reward import FORMER, opened, reward_model
from robolearn.core import BadInput
from robolearn.runs.command import Command, at_least, check_port

if TYPE_CHECKING:
    from robolearn.core import Episode
    from robolearn.rewards.labels import Labels


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
    frames: int = 50
    """Frames to ask at most; those with a label are not asked again."""
    port: int = 0
    """Port of the page on this machine alone; 0 for any."""
    device: str = "auto"
    """Device of the model: auto, cpu, cuda or cuda:<i>."""

    def run(self) -> dict[str, Any]:
        from robolearn.rewards.label_page import FRAMES, LabelPage, PageQuestion
        from robolearn.rewards.labels import LABELS_PATH, least_certain, read_labels, write_labels
        from robolearn.rewards.metrics import probability, score_or_withhold, window_of
        from robolearn.runs import Progress
        from robolearn.runs.loopback import show_address

        at_least(1, frames=self.frames)
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
