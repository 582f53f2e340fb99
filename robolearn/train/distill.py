"""Distillation to cameras: a privileged policy labels the states that the visuomotor policy visits.

Rounds of DAgger (`robolearn.rollout.agents`): the worlds run with β_r = β^r of the decisions by the teacher, who labels
every decision, and the student imitates all rounds so far. The first round is the teacher's alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from torch import Tensor

from policies.policy import ChunkPolicy
from robolearn.core import BadInput, Env, Interface, bind_policy
from robolearn.data.lerobot.statistics import describe_many
from robolearn.data.windows import TrainingBatch
from robolearn.io.atomic import write_bytes
from robolearn.rollout import Decisions, Engine
from robolearn.rollout.agents import LABEL, DaggerAgent
from robolearn.train.imitation import ImitationTrainer
from robolearn.train.settings import DistillConfig


class LabelledWindows:
    """Grows by `add`, up to `capacity` decisions. `horizon`: Tp, actions of a label. `capacity`: decisions."""

    def __init__(self, interface: Interface, horizon: int, capacity: int) -> None:
        self._observation = {
            key: torch.zeros((capacity, *spec.shape), dtype=torch.uint8 if spec.dtype == "uint8" else torch.float32)
            for key, spec in interface.observation.items()
        }
        self._action = torch.zeros((capacity, horizon, interface.action.size))
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def capacity(self) -> int:
        """Windows that there can be."""
        return len(self._action)

    def add(self, observation: Mapping[str, NDArray], label: NDArray[np.float32]) -> None:
        """B more: feature → (B, …), and (B, Tp, Da)."""
        rows = slice(self._length, self._length + len(label))
        if rows.stop > len(self._action):
            raise BadInput("labelled decisions", got=rows.stop, expected=f"at most {len(self._action)}")
        for key, array in self._observation.items():
            array[rows] = torch.from_numpy(np.ascontiguousarray(observation[key]))
        self._action[rows] = torch.from_numpy(np.ascontiguousarray(label, np.float32))
        self._length = rows.stop

    def order(self, seed: int, epoch: int) -> Tensor:
        """All windows there are by now, in an order that is the same for the same arguments."""
        permutation = np.random.default_rng([seed, epoch, self._length]).permutation(self._length)
        return torch.from_numpy(permutation)

    def newest(self, index: Tensor) -> Tensor:
        """(B, 1) the windows `index` themselves: one step is observed."""
        return index[:, None]

    def gather(self, index: Tensor, *, pictures: bool = True) -> TrainingBatch:
        """The windows `index` (B,), on request without their pictures."""
        observation = {
            key: array.index_select(0, index)[:, None]
            for key, array in self._observation.items()
            if pictures or array.dtype != torch.uint8
        }
        action = self._action.index_select(0, index)
        no_pad = torch.zeros(action.shape[:2], dtype=torch.bool)
        return TrainingBatch(observation, no_pad[:, :1], action, no_pad)

    def vectors(self) -> dict[str, NDArray]:
        """Feature → (len, …) of those that are no pictures."""
        found = {key: array for key, array in self._observation.items() if array.dtype != torch.uint8}
        return {key: array[: self._length].numpy() for key, array in found.items()}

    def save(self, file: Path, first: int) -> None:
        """Write the windows from the `first` on into `file`, at once or not at all."""
        arrays = {f"observation.{key}": array for key, array in self._observation.items()} | {"action": self._action}
        write_bytes(file, save({key: array[first : self._length].numpy() for key, array in arrays.items()}))

    def load(self, file: Path) -> None:
        """Add what `save` wrote into `file`. Raises `BadInput`: it is missing, damaged or of another student."""
        try:
            arrays = load(file.read_bytes())
            self.add({key: arrays[f"observation.{key}"] for key in self._observation}, arrays["action"])
        except (OSError, SafetensorError, KeyError, RuntimeError) as error:
            raise BadInput(
                f"rollouts {file}", got=f"{type(error).__name__}: {error}", expected="a round of this run"
            ) from error


class Distiller:
    """A trainer for `robolearn.runs.run_loop`.

    What the worlds showed lies in `folder`, a file a round, so that a run that was killed goes on with the same frames;
    what a round shows depends on the seed and the weights at its beginning alone.

    Args:
      config: rounds, their length, β, and the imitation.
      env: N worlds that offer what teacher and student see.
      teacher: its chunks are the labels.
      folder: of this run's rounds.

    Raises:
      BadInput: a teacher that does not fit the worlds, features that they do not have, chunks that are too short.
    """

    def __init__(
        self, config: DistillConfig, env: Env, teacher: ChunkPolicy, observe: tuple[str, ...], folder: Path,
        device: str | torch.device = "cpu",
    ) -> None:  # fmt: skip
        imitation, policy = config.imitation, config.imitation.policy
        bind_policy(teacher, env.interface, what="teacher and world")
        if policy.observe > 1:
            raise BadInput("observed steps To", got=policy.observe, expected="1: labels are of single moments")
        reach = int(teacher.net.config.horizon)
        if policy.horizon > reach or policy.execute > reach:
            raise BadInput("--horizon", got=policy.horizon, expected=f"at most the teacher's {reach}")
        self.config, self.env, self.teacher, self.folder = config, env, teacher, folder
        self.interface = env.interface.seeing(observe, what=f"task {env.task}")
        self.windows = LabelledWindows(self.interface, policy.horizon, config.rounds * self.frames_per_round)
        self.outcomes: dict[int, dict[str, float]] = {}
        self._round(0, None)
        vectors = self.windows.vectors()
        statistics: dict[str, Any] = dict(describe_many(vectors)) if vectors else {}
        centre, half = (t.cpu().numpy() for t in (teacher.normalizer.action_centre, teacher.normalizer.action_half))
        statistics["action"] = {"min": centre - half, "max": centre + half}
        self.trainer = ImitationTrainer(
            imitation, self.windows, self.interface, statistics, device=device, capacity=self.windows.capacity
        )

    @property
    def frames_per_round(self) -> int:
        """Decisions of all worlds in a round."""
        return self.config.decisions * self.env.num_envs

    @property
    def iterations(self) -> int:
        return self.trainer.iterations

    def iterate(self, i: int) -> dict[str, float]:
        """Iteration `i`; the first of a round lets the worlds run before."""
        r = min(i * self.config.rounds // self.iterations, self.config.rounds - 1)
        while len(self.windows) < (r + 1) * self.frames_per_round:
            self._round(len(self.windows) // self.frames_per_round, self.trainer.policy())
            self.trainer.forget_order()
        return self.trainer.iterate(i) | {"round": float(r)} | self.outcomes.get(r, {})

    def _round(self, r: int, student: ChunkPolicy | None) -> None:
        """Let the worlds run round `r`, or read it if it was run before this one was resumed."""
        file, first = self.folder / f"round-{r:03d}.safetensors", len(self.windows)
        if student is None and file.exists():
            self.windows.load(file)
            return
        beta = self.config.beta**r if student is not None else 1.0
        seed = int(np.random.SeedSequence([self.config.imitation.seed, r, 0xDA66]).generate_state(1)[0])
        execute = self.config.imitation.policy.execute
        agent = DaggerAgent(self.teacher, student, tuple(self.interface.observation), beta, execute, seed)
        engine = Engine(self.env)
        engine.reset(seed)
        self.teacher.reset(seed)
        if student is not None:
            student.reset(seed)
        ended = solved = 0
        horizon = self.config.imitation.policy.horizon
        for turn in engine.turns(agent, Decisions(self.config.decisions)):
            rows, aux = turn.worlds, turn.decision.aux
            self.windows.add({k: v[rows] for k, v in aux.items() if k != LABEL}, aux[LABEL][rows][:, :horizon])
            ended += int((rows & turn.ended).sum())
            solved += int((rows & turn.ended & turn.solved).sum())
        self.outcomes[r] = {"beta": beta, "episodes": float(ended), "success": solved / ended if ended else 0.0}
        self.folder.mkdir(parents=True, exist_ok=True)
        self.windows.save(file, first)

    def policy(self) -> ChunkPolicy:
        """The student with averaged weights."""
        return self.trainer.policy()

    def export(self, path: Path) -> None:
        """Write the student as a checkpoint folder."""
        self.trainer.export(path)

    def state(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Weights, optimiser, counters, and how many rounds have been run; their frames are in the folder."""
        tensors, meta = self.trainer.state()
        return tensors, meta | {"rounds": len(self.windows) // self.frames_per_round}

    def load_state(self, tensors: dict[str, Tensor], meta: dict[str, Any]) -> None:
        """Go on as if what `state` returned had just been reached."""
        for r in range(len(self.windows) // self.frames_per_round, int(meta["rounds"])):
            self.windows.load(self.folder / f"round-{r:03d}.safetensors")
        self.trainer.load_state(tensors, meta)
        self.trainer.forget_order()
