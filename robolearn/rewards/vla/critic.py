"""The base of every vision-language critic: how a model is loaded, asked and read, and when a score is withheld.

A number that is not finite, or an answer that is none, withholds the score (`RewardWithheld`): a zero is an opinion.
"""

from __future__ import annotations

import copy
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from robolearn.core import BadInput, Interface, RewardWithheld, Score, Window
from robolearn.io.hashes import sha256
from robolearn.io.json_files import plain, read_json
from robolearn.rewards.reference import show_reference
from robolearn.rewards.vla.answers import GeneratedAnswer
from robolearn.rewards.vla.frames import FrameScores, SampledFrames, sampled, score_of
from robolearn.rewards.vla.loading import content_hash, load_model, load_processor, model_folder
from robolearn.rewards.vla.settings import VlmReward

MOST = 10  # tokens whose probability is looked at
UNSAID = ("model", "batch", "reference")  # settings that name no answer, or do by what they lead to
MARKS = re.compile(r"(<image>|<video>)")  # where pictures stand in a text


@dataclass(frozen=True, eq=False)
class Question:
    """A row of a batch.

    Attributes:
      text: the user's words, with <image> or <video> where pictures stand.
      pictures: of its images in order, or the frames of its video.
      system: words before the user's.
      shared: the first so many pictures, and the words before them, are those of the questions beside it, too: where
        rows are asked one by one the model reads them once. Each picture has as many tokens as the others.
    """

    text: str
    pictures: Any
    system: str = ""
    shared: int = 0


class VisionLanguageCritic(ABC):
    """A `RewardModel` on a model of transformers; a family implements `read`. Raises `BadInput`: no such camera, or
    several and none named; and what loading raises.
    """

    sees_images, needs_prompt, is_privileged = True, True, False
    defaults: dict[str, str]  # the family's own texts
    kinds: Mapping[str, str] | None = None  # model_type → class in transformers; None: whatever chats about pictures
    shown: SampledFrames | None = None  # of a reference
    options: Mapping[str, Any] = {}  # of the processor, where an answer is generated
    numbered = False  # the template counts the pictures, where it can
    _beginning: tuple[torch.Tensor, torch.Tensor, Any] | None = None  # tokens, pictures, keys and values

    def __init__(self, config: VlmReward, interface: Interface, device: str = "cpu") -> None:
        self.config, self.device, self.what = config, device, f"{config.name}:"
        self.camera = self._camera(interface)
        self.reads = (self.camera,)
        self.texts = self._texts()
        self.folder = model_folder(config.model, self.what)
        self.processor = self._load_processor()
        if self.processor.tokenizer.pad_token is None:
            self.processor.tokenizer.pad_token = self.processor.tokenizer.eos_token
        # Qwen3-VL's processor frames every picture of a video, its template the whole video: one of them is enough.
        self._video = str(getattr(self.processor, "video_token", ""))
        frame = [str(getattr(self.processor, f"vision_{side}_token", "")) for side in ("start", "end")]
        self._framed_video = f"{frame[0]}{self._video}{frame[1]}"
        self.model: Any = self._load_model()
        if reference := getattr(config, "reference", ""):
            show_reference(self, reference, f"{self.what} reference")

    @abstractmethod
    def read(self, clips: Sequence[SampledFrames], tasks: Sequence[str]) -> list[FrameScores]:
        """Readings of each clip. Raises `RewardWithheld`: an answer is none."""

    def _load_model(self) -> Any:
        return load_model(self.folder, self.what, self.kinds, device=self.device, dtype=self.config.dtype)

    def _load_processor(self) -> Any:
        return load_processor(self.folder, self.what)

    def check(self, interface: Interface) -> None:
        """Raise `BadInput` where `interface` lacks the camera."""
        if self.camera not in interface.observation:
            raise BadInput(f"{self.what} camera", got=self.camera, available=_cameras(interface))

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        """See `robolearn.core.RewardModel`.

        Raises:
          BadInput: a task without words, or with marks of the model's own; a window without the camera.
          RewardWithheld: an answer is none, or a number is not finite.
        """
        clips = [self._clip(window) for window in windows]
        for prompt in prompts:
            self._check_task(prompt)
        with torch.inference_mode():
            readings = self.read(clips, prompts)
        for reading in readings:
            for name, values in (("progress", reading.progress), ("probability of done", reading.done)):
                if not np.isfinite(values).all():
                    at = reading.at[np.flatnonzero(~np.isfinite(values))[0]]
                    raise RewardWithheld(f"{self.config.name}: {name} at frame {at} is not finite")
        return [
            score_of(clip, reading, len(window), self.config.done)
            for clip, reading, window in zip(clips, readings, windows, strict=True)
        ]

    def identity(self) -> str:
        """A hash of the model's files, its settings and its words."""
        settings = {key: value for key, value in plain(asdict(self.config)).items() if key not in UNSAID}
        shown = () if self.shown is None else (np.ascontiguousarray(self.shown.pictures),)
        return sha256(json.dumps([self.config.name, self.camera, settings, self.texts], sort_keys=True),
                      content_hash(*self._folders()), *shown)  # fmt: skip

    def _folders(self) -> tuple[Path, ...]:
        return (self.folder,)

    def say(self, text: str, **words: object) -> str:
        """The text of that name, with words in the place of names in braces; other braces stay."""
        return re.sub(r"\{(\w+)\}", lambda found: str(words.get(found[1], found[0])), self.texts[text])

    def batches(self, questions: Sequence[Question]) -> Iterator[Sequence[Question]]:
        """Groups of at most `batch` rows."""
        for begin in range(0, len(questions), self.config.batch):
            yield questions[begin : begin + self.config.batch]

    def of_beginnings(
        self,
        clips: Sequence[SampledFrames],
        tasks: Sequence[str],
        text: str,
        read: Callable[[Sequence[Question]], Sequence[Any]],
    ) -> Iterator[tuple[SampledFrames, NDArray[np.int64], list[Any]]]:
        """For each clip the lengths (k,) of its `prefixes` beginnings, and what `read` makes of each of them. `text`:
        the name of the text that a beginning is shown with."""
        most = self.config.prefixes  # type: ignore[attr-defined]
        counts = [np.unique(np.linspace(1, len(clip), min(most, len(clip))).round().astype(np.int64)) for clip in clips]
        if most == 1:
            counts = [np.array([len(clip)]) for clip in clips]
        answers = iter(read([
            Question(self.say(text, task=task), clip.pictures[:count])
            for clip, task, lengths in zip(clips, tasks, counts, strict=True)
            for count in lengths
        ]))  # fmt: skip
        for clip, lengths in zip(clips, counts, strict=True):
            yield clip, lengths, [next(answers) for _ in lengths]

    def ask(self, questions: Sequence[Question]) -> list[GeneratedAnswer]:
        """The most probable answer to each question, token by token, of at most `tokens` tokens."""
        from transformers import GenerationConfig

        words, stop = self.processor.tokenizer, self.model.generation_config.eos_token_id
        stops = {words.eos_token_id, *(stop if isinstance(stop, list) else [stop])} - {None}
        most = self.config.tokens  # type: ignore[attr-defined]
        self.model.generation_config = GenerationConfig(
            do_sample=False, max_new_tokens=most, eos_token_id=sorted(stops), pad_token_id=words.pad_token_id,
            output_logits=True, return_dict_in_generate=True,
        )  # fmt: skip
        found = []
        for rows in self.batches(questions):
            inputs = self.encode(rows, side="left", asked=True, **self.options)
            if len(rows) == self.config.batch == 1 and rows[0].shared:
                inputs |= self._after_beginning(rows[0], inputs)
            made = self.model.generate(**inputs)
            logits = torch.stack(made.logits, 1).float()  # (rows, tokens, vocabulary)
            if not torch.isfinite(logits).all():
                raise RewardWithheld(f"{self.config.name}: logits of the answer are not finite")
            likely = logits.softmax(-1).topk(MOST)
            for ids, p, others in zip(made.sequences[:, -len(made.logits) :].tolist(), *likely, strict=True):
                count = next((i for i, token in enumerate(ids) if token in stops), len(ids))
                tokens = [
                    [(words.decode([other]), float(q)) for q, other in zip(p[i], others[i].tolist(), strict=True)]
                    for i in range(count)
                ]
                found.append(GeneratedAnswer(words.decode(ids[:count]), tokens))
        return found

    def _after_beginning(self, question: Question, inputs: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        """The pictures after those that are shared, and the keys and values of all tokens before them."""
        places = torch.nonzero(inputs["input_ids"][0] == self.model.config.image_token_id)[:, 0]
        end = int(places[question.shared * (len(places) // len(question.pictures))])
        tokens, pictures = inputs["input_ids"][:, :end], inputs["pixel_values"][: question.shared]
        known = self._beginning
        if known is None or not (torch.equal(known[0], tokens) and torch.equal(known[1], pictures)):
            read = self.model.model(input_ids=tokens, pixel_values=pictures, use_cache=True)
            known = self._beginning = tokens, pictures, read.cache
        kept = copy.deepcopy(known[2])  # what is generated is added to it
        return {"pixel_values": inputs["pixel_values"][question.shared :], "cache": kept}

    def encode(
        self, questions: Sequence[Question], *, side: str, asked: bool = False, fps: float = 1.0, **options: Any
    ) -> dict[str, Any]:
        """Tensors for the model.

        Args:
          side: where short rows are padded, ``left`` or ``right``.
          asked: add the beginning of the assistant's turn.
          fps: frames a second of the videos that the model is given to believe.
          options: for the processor.
        """
        images, videos = [], []
        for question in questions:
            if "<video>" in question.text:
                frames = np.asarray(question.pictures)
                videos.append(frames if len(frames) > 1 else np.repeat(frames, 2, axis=0))  # one picture is no video
            else:
                images += [Image.fromarray(np.asarray(picture)) for picture in question.pictures]
        if videos:
            facts = [{"total_num_frames": len(v), "fps": fps, "frames_indices": [*range(len(v))]} for v in videos]
            options |= {"videos": videos, "video_metadata": facts, "do_sample_frames": False}
        made = self.processor(
            text=[self._row(question, asked) for question in questions], images=images or None,
            padding=True, padding_side=side, return_tensors="pt", **options,
        )  # fmt: skip
        return {key: value.to(self.device) for key, value in made.items() if isinstance(value, torch.Tensor)}

    def _row(self, question: Question, asked: bool) -> str:
        parts = [part for part in MARKS.split(question.text) if part]
        content = [{"type": part[1:-1]} if MARKS.fullmatch(part) else {"type": "text", "text": part} for part in parts]
        turns: list[dict[str, Any]] = [{"role": "user", "content": content}]
        if question.system:
            turns.insert(0, {"role": "system", "content": [{"type": "text", "text": question.system}]})
        numbers = {"add_vision_id": True} if self.numbered and "add_vision_id" in self.processor.chat_template else {}
        text = self.processor.apply_chat_template(turns, tokenize=False, add_generation_prompt=asked, **numbers)
        return self._finish(text.replace(self._framed_video, self._video))

    def _finish(self, text: str) -> str:
        """The text that is read, of one from the template of the chat."""
        return text

    def _clip(self, window: Window) -> SampledFrames:
        pictures = window.observation.get(self.camera)
        if pictures is None:
            raise BadInput(f"{self.what} camera", got=f"an episode without {self.camera}", available=window.observation)
        return sampled(pictures, self.config.frames)

    def _check_task(self, task: str) -> None:
        if not task.strip():
            raise BadInput(f"{self.what} the task in words", got="nothing", expected="a sentence")
        marks = [mark for mark in (*self.processor.tokenizer.all_special_tokens, "<image>", "<video>") if mark in task]
        if marks:
            raise BadInput(f"{self.what} the task in words", got=f"the mark {marks[0]}", expected="words alone")

    def _camera(self, interface: Interface) -> str:
        cameras = _cameras(interface)
        wanted = self.config.camera and f"images.{self.config.camera.removeprefix('images.')}"
        if not (wanted in cameras if wanted else len(cameras) == 1):
            got = wanted or (f"{len(cameras)} of them, and none named" if cameras else "nothing")
            raise BadInput(f"{self.what} camera", got=got, expected="one: option camera=", available=cameras)
        return wanted or cameras[0]

    def _texts(self) -> dict[str, str]:
        path = self.config.prompts
        given = read_json(path, what=f"{self.what} prompts") if path else {}
        for name, text in given.items():
            if name not in self.defaults:
                raise BadInput(f"{self.what} prompts {path}", got=name, available=self.defaults)
            for mark in re.findall(r"<image>|<video>|\{\w+\}", self.defaults[name]):
                if not isinstance(text, str) or text.count(mark) != self.defaults[name].count(mark):
                    raise BadInput(f"{self.what} prompts {path}: {name}", got=repr(text)[:80],
                                   expected=f"{mark} as often as the family's own text has it")  # fmt: skip
        return self.defaults | given


def _cameras(interface: Interface) -> list[str]:
    return [key for key, spec in interface.observation.items() if len(spec.shape) == 3 and spec.shape[2] == 3]
