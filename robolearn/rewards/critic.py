"""The progress critic as a `RewardModel`: an ensemble read by its worst member, its files, and how they are read.

    s_t = mean over the task's stored starts of c(start → t)    how far a frame is, whatever came before it
    v_t = s_0 + (1 − s_0) c(0 → t)                              c ≥ 0: s_0 is where the episode began
    v_t = min(s_0, s_t)                                         c < 0: it lost what it had
    progress_t = min over members of v_t
    done_t = min over members of the probabilities by pictures and, where the arm's state has it, by the hand

A checkpoint is a folder with ``config.json`` (settings, cameras, the sentences of training) and ``model.safetensors``
(encoder, members, the sentences' vectors). Sentences that training has not seen need the extra ``words``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn
from torch.nn import functional as F

from policies.storage.checkpoint import write_checkpoint
from policies.storage.config_file import CONFIG, WEIGHTS
from robolearn.core import BadInput, Interface, Score, Window
from robolearn.core.errors import first_line
from robolearn.io.json_files import read_json
from robolearn.io.paths import no_such_folder
from robolearn.io.tensors import tensors_in
from robolearn.rewards.classifier import SuccessClassifier
from robolearn.rewards.first_frames import FirstFrames
from robolearn.rewards.networks import CHANNELS, DONE, STRIDE, WORDS, PictureModel, ProgressNet, sizes_of
from robolearn.rewards.preference import PreferenceReward
from robolearn.rewards.reference import Reference
from robolearn.rewards.settings import HAND, STATE, CriticConfig
from robolearn.rewards.shaping import score_of_frames

FORMAT, VERSION = "robolearn.critic", 1
STARTS = 4  # first frames of successes of each task that are kept


class ProgressCritic(PictureModel):
    """See the module.

    Attributes:
      config: of its training.
      sentences: those of training, its `tasks` first; `vectors` (S, 384) are theirs.
      state: names of the arm's own state in training, where the hand is asked; else empty.
      threshold: probability from which the task is called done.
      privileged: it reads nothing that a real arm has not.
    """

    format = FORMAT
    sees_images, needs_prompt, is_privileged = True, True, False
    frame_by_frame = True  # what it says of a frame depends on that one and on the first
    vectors: Tensor
    starts: Tensor

    def __init__(
        self,
        config: CriticConfig,
        cameras: Mapping[str, tuple[int, int]],
        sentences: Sequence[str],
        vectors: Tensor | None = None,
        state: Sequence[str] = (),
        *,
        tasks: int = 1,
    ) -> None:
        super().__init__(config.picture, cameras)
        self.config, self.sentences, self.state, self.tasks = config, tuple(sentences), tuple(state), tasks
        self._columns = [self.state.index(name) for name in HAND] if state else []
        self.members = nn.ModuleList(
            ProgressNet(config, len(self.cameras), hand=bool(state)) for _ in range(config.members)
        )
        empty = torch.zeros(len(self.sentences), WORDS)
        self.register_buffer("vectors", empty if vectors is None else vectors.float())
        cells = config.picture // STRIDE
        self.register_buffer("starts", torch.zeros(tasks * STARTS, len(self.cameras), CHANNELS, cells, cells).half())
        self.threshold = DONE
        self.firsts: FirstFrames | None = None  # where training kept episodes apart
        self._embed: Any = None
        self._known: dict[str, Tensor] = {}
        self._newest: tuple[Window, Tensor] | None = None  # the window that was encoded last

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> ProgressCritic:
        """The critic that a checkpoint's config.json describes, without its weights."""
        settings = TypeAdapter(CriticConfig).validate_python(stored["settings"])
        sentences = [str(sentence) for sentence in stored["sentences"]]
        state = [str(name) for name in stored.get("state", ())]
        # Critics without the number of their tasks have starts of one for all of them.
        critic = cls(settings, sizes_of(stored), sentences, state=state, tasks=int(stored.get("tasks", 1)))
        critic.threshold = float(stored.get("threshold", DONE))
        if not 0.0 < critic.threshold <= 1.0:
            raise ValueError(f"threshold {critic.threshold}")
        if stored.get("first_frames"):
            critic.firsts = FirstFrames(critic.starts.shape[1:])
        return critic

    def facts(self) -> dict[str, Any]:
        """For config.json."""
        return {
            "sentences": list(self.sentences),
            "state": list(self.state),
            "tasks": self.tasks,
            "threshold": self.threshold,
            "first_frames": self.firsts is not None,
        }

    @property
    def reads(self) -> tuple[str, ...]:
        return (*self.cameras, STATE) if self.state else self.cameras

    def check(self, interface: Interface) -> None:
        super().check(interface)
        spec = interface.observation.get(STATE)
        names = () if spec is None else spec.names or ()
        if self.state and names != self.state:
            got = ", ".join(names) or "no names"
            raise BadInput(f"critic: {STATE}", got=got, expected=", ".join(self.state) + ", as in its training")

    def hand(self, observation: Mapping[str, NDArray]) -> Tensor | None:
        """(T, 4) [m] of T observations, or None where it is not asked; raises `BadInput` where the state is another."""
        if not self.state:
            return None
        state = observation.get(STATE)
        if state is None or state.shape[1:] != (len(self.state),):
            got = "no such feature" if state is None else f"{state.shape[1:]}"
            raise BadInput(f"critic: {STATE}", got=got, expected=f"({len(self.state)},), as in its training",
                           available=observation)  # fmt: skip
        return torch.from_numpy(np.asarray(state[:, self._columns], np.float32))

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        """See `robolearn.core.RewardModel`; the reward is shaped by the progress. Raises `BadInput`: a task without
        words, a window without one of the cameras, or with pictures of another size."""
        words = self.words(prompts)
        return [self._score(window, words[i]) for i, window in enumerate(windows)]

    def words(self, prompts: Sequence[str]) -> Tensor:
        """(B, 384) of sentences. Raises `BadInput`: an empty one, or one that training has not seen and the extra
        ``words`` is not installed."""
        if any(not prompt.strip() for prompt in prompts):
            raise BadInput("critic: the task in words", got="nothing", expected="a sentence", available=self.sentences)
        if not self._known:
            self._known = dict(zip(self.sentences, self.vectors.cpu(), strict=True))
        fresh = [prompt for prompt in dict.fromkeys(prompts) if prompt not in self._known]
        if fresh:
            if self._embed is None:
                from policies.networks.words import SentenceEncoder

                self._embed = SentenceEncoder()
            self._known |= dict(zip(fresh, torch.from_numpy(self._embed(fresh)), strict=True))
        device = self.vectors.device
        return torch.stack([self._known[prompt] for prompt in prompts]).to(device) if prompts else self.vectors[:0]

    def starts_of(self, words: Tensor) -> Tensor:
        """(4, C, 112, m, m) maps of the stored starts of the task whose sentence is nearest to `words` (1, 384)."""
        nearest = int(F.cosine_similarity(self.vectors[: self.tasks], words).argmax())
        return self.starts[STARTS * nearest : STARTS * (nearest + 1)]

    def strange(self, windows: Sequence[Window]) -> list[str]:
        """Sentences on cameras by which `windows` begin otherwise than the episodes of training; none of older critics.
        Raises `BadInput` as `score` does."""
        if self.firsts is None:
            return []
        firsts = [np.stack(frames) for frames in zip(*([f[0] for f in self.seen(w)] for w in windows), strict=True)]
        return self.firsts.far(self.encoder.encode(firsts), self.cameras)

    def show(self, reference: Reference) -> None:
        """Put the first frame of `reference` in the place of the stored starts of the task that its words are nearest
        to. Raises `BadInput` as `score` does."""
        first = [frames[:1] for frames in self.seen(reference.window)]
        starts = self.starts_of(self.words([reference.task]))
        starts.copy_(self.encoder.encode(first).expand_as(starts))

    @torch.no_grad()
    def judged(
        self, maps: Tensor, words: Tensor, hand: Tensor | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Progress and probability of done (T,) of frames whose maps are (T, C, 112, m, m), and hands (T, 4)."""
        progress, done, firsts = [], [], self.starts_of(words)
        for member in self.members:
            assert isinstance(member, ProgressNet)
            seen = torch.cat([member.frames(part.to(words.device)) for part in maps.split(256)])
            said = words.expand(len(seen), -1)
            c, odds = member.compare(seen[:1].expand_as(seen), seen, said)
            starts = [member.compare(start.expand_as(seen), seen, said)[0] for start in member.frames(firsts)]
            s = torch.stack(starts).mean(0).clamp(0.0, 1.0)
            value = torch.where(c >= 0, s[0] + (1.0 - s[0]) * c, torch.minimum(s[0], s))
            progress.append(value.clamp(0.0, 1.0))
            if member.hand is not None and hand is not None:
                odds = torch.minimum(odds, member.hand(hand.to(words.device), said))
            done.append(torch.sigmoid(odds))
        worst = (torch.stack(values).amin(0).cpu().numpy().astype(np.float32) for values in (progress, done))
        return next(worst), next(worst)

    def _score(self, window: Window, words: Tensor) -> Score:
        frames = self.seen(window)
        self.eval()
        if self._newest is None or self._newest[0] is not window:  # with other words it is the same to the encoder
            self._newest = window, self.encoder.encode(frames)
        progress, probability = self.judged(self._newest[1], words[None], self.hand(window.observation))
        return score_of_frames(progress, probability, len(window), self.threshold)


Trained = ProgressCritic | SuccessClassifier | PreferenceReward
"""A reward model of ``robolearn reward train``."""


def save_critic(critic: Trained, folder: str | Path) -> Path:
    """Write a checkpoint into `folder`, which is made if need be, and return its path. Raises `NonFinite`: a weight is
    NaN or infinite; nothing is written then."""
    config = {
        "format": critic.format,
        "version": VERSION,
        "settings": asdict(critic.config),
        "pictures": {camera: list(size) for camera, size in critic.pictures.items()},
        **critic.facts(),
    }
    return write_checkpoint(critic, config, folder, "critic")


def critic_folder(path: str | Path) -> Path:
    """The checkpoint folder that `path` means: itself, or the ``policy/`` of a run of ``robolearn reward train``.
    Raises `BadInput`: there is none."""
    path = Path(path)
    if not path.is_dir():
        raise BadInput(f"critic {path}: {no_such_folder(path)}", hint="robolearn reward train makes one")
    for folder in (path / "policy", path):
        if (folder / CONFIG).is_file() and (folder / WEIGHTS).is_file():
            return folder
    found = sorted(entry.name for entry in path.iterdir())[:8]
    raise BadInput(f"critic {path}", got=", ".join(found) or "an empty folder", expected=f"{CONFIG} and {WEIGHTS}")


def load_critic(path: str | Path, device: str | torch.device = "cpu") -> Trained:
    """The critic in a folder; see `critic_folder`. Raises `BadInput`: no such folder, a file that is missing, damaged
    or of something else; the message names it."""
    folder = critic_folder(path)
    what = f"critic {folder / CONFIG}"
    config = read_json(folder / CONFIG, what=what)
    kinds = {kind.format: kind for kind in get_args(Trained)}
    kind = kinds.get(str(config.get("format")))
    if kind is None or config.get("version") != VERSION:
        got = f"{config.get('format', 'no format')}, version {config.get('version')}"
        raise BadInput(what, got=got, expected=f"{' or '.join(kinds)}, version {VERSION}")
    try:
        critic = kind.of(config)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ValidationError) as error:
        raise BadInput(what, got=str(error).splitlines()[0], expected="what reward train wrote") from None
    what, expected = f"critic {folder / WEIGHTS}", "the weights of its config.json"
    tensors = tensors_in(folder / WEIGHTS, what=what, expected=expected)
    try:
        critic.load_state_dict(tensors)
    except RuntimeError as error:
        raise BadInput(what, got=f"a damaged file ({first_line(error)})", expected=expected) from None
    if not all(torch.isfinite(value).all() for value in tensors.values()):
        raise BadInput(what, got="NaN or infinity", expected="finite weights")
    return critic.to(device).eval()
