"""Settings of the vision-language critics: ``--reward FAMILY:MODEL`` with options after commas. No import of torch.

MODEL is a folder that transformers has saved, or a repository of the hub, ``owner/name`` with an optional
``@revision``. ``robometer:models/robometer-4b,camera=front,frames=8`` sets two fields of `RobometerReward`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from pkgutil import resolve_name
from typing import ClassVar, Literal, Self

from robolearn.core import BadInput, Interface, RewardModel
from robolearn.rewards.config import RewardConfig, options_of

Dtype = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class VlmReward(RewardConfig):
    """A vision-language model as a critic; a family is a subclass with its defaults.

    Attributes:
      model: folder or hub repository of the weights.
      camera: the one that is looked at; may be empty where there is only one.
      frames: most frames of an episode that are looked at, evenly spaced, the first and the last included.
      done: probability, or progress, from which the task is called done.
      batch: rows of a forward pass. With 1 a score does not depend on what stands beside it by a single bit; with more
        it does by rounding.
      dtype: of the weights; ``auto`` is the one that they are stored in.
      prompts: a JSON file whose texts take the place of the family's own, by their names.
    """

    sees_images = needs_prompt = True
    page: ClassVar[str]  # module:Class of the critic, imported when it is built

    model: str
    camera: str = ""
    frames: int = 8
    done: float = 0.5
    batch: int = 1
    dtype: Dtype = "auto"
    prompts: Path | None = None

    def __post_init__(self) -> None:
        counts = {field.name: getattr(self, field.name) for field in fields(self) if field.type == "int"}
        if low := [key for key, value in counts.items() if value < 1 + (key == "frames")]:
            raise BadInput(f"{self.name}: {low[0]}", got=counts[low[0]], expected="at least 1; frames: 2")
        if not 0.0 < self.done <= 1.0:
            raise BadInput(f"{self.name}: done", got=self.done, expected="more than 0, at most 1")

    @classmethod
    def of(cls, text: str) -> Self | None:
        return options_of(cls, text, "model")

    def build(self, interface: Interface, device: str = "cpu") -> RewardModel:
        return resolve_name(self.page)(self, interface, device)


@dataclass(frozen=True)
class RobometerReward(VlmReward):
    """Robometer: progress and success read by heads at a token after each frame.

    Attributes:
      processor: folder or repository of tokenizer and processors, where the weights come without.
    """

    name = "robometer"
    usage = "robometer:<model>"
    page = "robolearn.rewards.vla.robometer:Robometer"

    processor: str = ""


@dataclass(frozen=True)
class TopReward(VlmReward):
    """TOPReward: the probability that the model says True after what it has seen so far.

    Attributes:
      prefixes: beginnings of the episode, evenly spaced, each asked about on its own.
      fps: frames a second that the model is given to believe.
    """

    name = "topreward"
    usage = "topreward:<model>"
    page = "robolearn.rewards.vla.topreward:TopRewardCritic"

    frames: int = 16
    prefixes: int = 15
    fps: float = 2.0


@dataclass(frozen=True)
class RoboReward(VlmReward):
    """RoboReward: a rating from 1 to 5 of where each beginning of the episode ended.

    Attributes:
      prefixes: beginnings of the episode, evenly spaced, each rated on its own; 1 is the whole episode alone.
      tokens: most tokens of an answer.
    """

    name = "roboreward"
    usage = "roboreward:<model>"
    page = "robolearn.rewards.vla.roboreward:RoboRewardCritic"

    frames: int = 16
    prefixes: int = 4
    done: float = 1.0
    tokens: int = 32


@dataclass(frozen=True)
class VlacReward(VlmReward):
    """VLAC: the signed change between neighbouring frames, accumulated, and a second question for done.

    Attributes:
      reference: DATA:EPISODE, an episode that solved the task and is shown beside (`robolearn.rewards.reference`).
      tokens: most tokens of an answer.
    """

    name = "vlac"
    usage = "vlac:<model>"
    page = "robolearn.rewards.vla.vlac:VlacCritic"

    reference: str = ""
    tokens: int = 8


@dataclass(frozen=True)
class GvlReward(VlmReward):
    """GVL: percentages of shuffled frames by any model that chats about pictures.

    Attributes:
      reference: DATA:EPISODE, an episode that solved the task and is shown before (`robolearn.rewards.reference`).
      tokens: most tokens of an answer.
    """

    name = "gvl"
    usage = "gvl:<model>"
    page = "robolearn.rewards.vla.gvl:GvlCritic"

    reference: str = ""
    done: float = 0.95
    tokens: int = 512


VLM_REWARDS: tuple[type[VlmReward], ...] = (RobometerReward, TopReward, RoboReward, VlacReward, GvlReward)
