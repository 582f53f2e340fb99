"""Episodes in memory → windows of transitions for off-policy learning.

    rows      o_0 o_1 … o_T        every frame once; T + 1 of them for an episode of T steps
    window t  (o_t, a_t … a_{t+H-1}, Σ_i γ^i r_{t+i}, o_{t+h})       i < h = the steps that were executed of it

Windows are drawn uniformly, or by the return G of their episode (Hong et al. 2023, for data of all qualities):

    p ∝ exp(ω (G − min G) / (max G − min G))          over the windows that are held

With n-step returns rewards are summed over up to h = n · H steps, whatever was done in them; the chunk stays H long.

Boundaries:

- A window lies within one episode, and what follows it is never another episode's.
- A window within one author's steps: none crosses the edge between a policy and an operator, and an n-step return is
  cut there and bootstrapped from what was seen at the edge.
- h < H where the task ended the episode inside the window. Nothing comes after it: its discount is 0, and in the place
  of actions that were never executed stand those of other windows, so that a critic cannot read the end from a padding.
- Time limits, crashes and interruptions are no end of the task: windows reach up to them with h = H, and are
  bootstrapped from what was seen last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from robolearn.core import BadInput, Interface
from robolearn.data.replay.records import PlayedEpisode

TINY = 1e-9  # returns that differ by less are one


@dataclass(frozen=True)
class ReplayBatch:
    """B windows.

    Attributes:
      observation, next_observation: feature → (B, …) as stored.
      action: (B, H, Da) executed actions in [-1, 1].
      executed: (B, H) false where the episode had ended; an action of another window stands there.
      plan: (B, Tp, Da) the actions from the window's first on, for what imitates them; without meaning where not
        `planned` (B, Tp): beyond the episode's end, or what another author did.
      reward: (B,) Σ_{i<h} γ^i r; with n-step returns h goes up to n · H.
      to_go: (B,) Σ γ^i r to the end of the episode.
      discount: (B,) γ^h, 0 where the task ended the episode within them.
      intervention: (B,) an operator commanded the window.
      merit: (B,) worth imitating: see `PlayedEpisode.merits`.
    """

    observation: dict[str, Tensor]
    action: Tensor
    executed: Tensor
    plan: Tensor
    planned: Tensor
    reward: Tensor
    to_go: Tensor
    discount: Tensor
    next_observation: dict[str, Tensor]
    intervention: Tensor
    merit: Tensor

    def __len__(self) -> int:
        return len(self.action)

    def followed_by(self, other: ReplayBatch) -> ReplayBatch:
        """The windows of both, `other`'s last."""
        joined = {}
        for name, mine in vars(self).items():
            theirs = getattr(other, name)
            joined[name] = (
                {key: torch.cat((value, theirs[key])) for key, value in mine.items()}
                if isinstance(mine, dict)
                else torch.cat((mine, theirs))
            )
        return ReplayBatch(**joined)


class ReplayBuffer:
    """The newest episodes, up to `capacity` rows.

    Args:
      interface: of the world.
      chunk: H, actions in a window.
      capacity: rows (frames) in memory; whole episodes are forgotten, the oldest first.
      n_step: chunks that a return is summed over.
      plan: Tp, at least H; by default H.
      device: of the batches; rows stay in the CPU's memory.

    Attributes:
      episodes, steps: added so far.
    """

    def __init__(
        self,
        interface: Interface,
        chunk: int,
        capacity: int,
        *,
        n_step: int = 1,
        plan: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        if chunk < 1 or capacity <= chunk:
            raise BadInput("replay: chunk, capacity", got=(chunk, capacity), expected="1 ≤ chunk < capacity")
        if n_step < 1:
            raise BadInput("replay: n-step", got=n_step, expected="at least 1")
        self._interface, self._chunk, self._capacity = interface, chunk, capacity
        self._n_step, self._plan = n_step, max(plan, chunk)
        self._device = torch.device(device)
        self._rows: dict[str, Tensor] = {}  # grow to the capacity by doubling
        self._held = 0  # rows that there is memory for
        self._first, self._next = 0, 0  # the oldest row that is kept and the next one, counted from the beginning
        # The windows, oldest first.
        self.windows = {name: torch.zeros(0, dtype=kind) for name, kind in _COLUMNS.items()}
        self.episodes = self.steps = 0

    def __len__(self) -> int:
        """Number of windows."""
        return len(self.windows["start"])

    @property
    def frames(self) -> int:
        """Rows that were added so far, those that are forgotten included."""
        return self._next

    @property
    def bytes(self) -> int:
        """Memory of the rows [bytes]."""
        return sum(rows.numel() * rows.element_size() for rows in self._rows.values())

    def add(self, episode: PlayedEpisode, *, only_interventions: bool = False) -> None:
        """Add an episode's windows, or those of an operator alone. Raises `BadInput`: an episode longer than the
        capacity, or of another shape than the interface's."""
        seen = self._seen(episode)
        count = len(next(iter(seen.values())))
        if count > self._capacity:
            raise BadInput("replay: episode", got=f"{count} frames", expected=f"at most {self._capacity}")
        self._store(seen, episode, count)
        begin = self._next
        self._next += count
        starts, lengths, reach, ends, author = windows_of(episode, self._chunk, count, self._n_step)
        keep = episode.intervention[starts] if only_interventions else np.ones(len(starts), np.bool_)
        author_is, merits = episode.intervention[starts], episode.merits[starts]
        returned = np.full(len(starts), episode.reward.sum(), np.float32)
        columns = (begin + starts, lengths, reach, author, ends, author_is, merits, len(episode) - starts, returned)
        self._first = max(self._first, self._next - self._capacity)
        for (name, column), more in zip(self.windows.items(), columns, strict=True):
            self.windows[name] = torch.cat((column, torch.from_numpy(np.ascontiguousarray(more[keep]))))
        gone = int(torch.searchsorted(self.windows["start"], self._first))
        self.windows = {name: column[gone:] for name, column in self.windows.items()}
        self.episodes += 1
        self.steps += len(episode)

    def sample(self, count: int, gamma: float, generator: torch.Generator, sharpness: float = 0.0) -> ReplayBatch:
        """`count` windows, drawn with replacement; γ is of one control step, `sharpness` is ω. Raises `BadInput`: there
        are none."""
        if not len(self):
            raise BadInput("replay", got="no windows", expected="at least one")
        if not sharpness:
            return self.gather(torch.randint(len(self), (count,), generator=generator), gamma, generator)
        returned = self.windows["returned"]
        above = returned - returned.min()
        # p ∝ exp(ω (G − min G) / (max G − min G))
        weight = (sharpness * above / above.max().clamp_min(TINY)).exp()
        return self.gather(torch.multinomial(weight, count, replacement=True, generator=generator), gamma, generator)

    def gather(self, index: Tensor, gamma: float, generator: torch.Generator) -> ReplayBatch:
        """The windows `index` (B,)."""
        w = {name: column[index] for name, column in self.windows.items()}
        start, length, reach = w["start"], w["length"], w["reach"]
        offset = torch.arange(self._chunk)
        executed = offset < length[:, None]
        rows = (start[:, None] + torch.minimum(offset, length[:, None] - 1)) % max(self._held, 1)
        action = self._rows["action"][rows]
        others = action[torch.randperm(len(index), generator=generator)]
        action = torch.where(executed[..., None], action, others)
        further = torch.arange(self._plan)
        planned = further < w["author"][:, None]
        ahead = (start[:, None] + torch.where(planned, further, 0)) % max(self._held, 1)
        # R = Σ_{i<h} γ^i r_i
        step = torch.arange(self._chunk * self._n_step)
        summed = step < reach[:, None]
        along = (start[:, None] + torch.minimum(step, reach[:, None] - 1)) % max(self._held, 1)
        reward = (self._rows["reward"][along] * summed * gamma**step).sum(1)
        # G = Σ γ^i r_i to the end of the episode
        to_end = torch.arange(int(w["left"].max()))
        rewards = self._rows["reward"][(start[:, None] + to_end) % max(self._held, 1)]
        to_go = (rewards * (to_end < w["left"][:, None]) * gamma**to_end).sum(1)
        discount = torch.where(w["ends"], 0.0, gamma ** reach.float())
        now, after = start % self._held, (start + reach) % self._held
        after = torch.where(w["ends"], now, after)  # what follows the end is never looked at
        rest = {"action": action, "executed": executed, "plan": self._rows["action"][ahead], "planned": planned}
        rest |= {
            "reward": reward,
            "to_go": to_go,
            "discount": discount,
            "intervention": w["intervention"],
            "merit": w["merit"],
        }
        rest = {name: value.to(self._device) for name, value in rest.items()}
        return ReplayBatch(observation=self._observations(now), next_observation=self._observations(after), **rest)

    def state(self) -> tuple[dict[str, Tensor], dict[str, int]]:
        """All rows and windows: tensors, and counters."""
        held = min(self._next, self._held)
        tensors = {f"rows/{key}": rows[:held] for key, rows in self._rows.items()}
        tensors |= {f"windows/{key}": column for key, column in self.windows.items()}
        counters = {"held": self._held, "first": self._first, "next": self._next}
        return tensors, counters | {"episodes": self.episodes, "steps": self.steps}

    def load_state(self, tensors: Mapping[str, Tensor], meta: Mapping[str, int]) -> None:
        """The inverse of `state`."""
        self._held, self._first, self._next = meta["held"], meta["first"], meta["next"]
        self.episodes, self.steps = meta["episodes"], meta["steps"]
        for key, value in tensors.items():
            what, _, name = key.partition("/")
            if what == "windows":
                self.windows[name] = value.clone()
            else:
                self._rows[name] = value.new_zeros(self._held, *value.shape[1:])
                self._rows[name][: len(value)] = value
        for name, kind in _COLUMNS.items():
            if f"windows/{name}" not in tensors:  # a state of before there was such a column
                self.windows[name] = torch.zeros(len(self), dtype=kind)

    def _observations(self, rows: Tensor) -> dict[str, Tensor]:
        return {key: self._rows[_FEATURE + key][rows].to(self._device) for key in self._interface.observation}

    def _seen(self, episode: PlayedEpisode) -> dict[str, Tensor]:
        seen = {}
        for key, spec in self._interface.observation.items():
            value = episode.observation.get(key)
            if value is None or value.shape[1:] != tuple(spec.shape) or len(value) - len(episode) not in (0, 1):
                got = None if value is None else value.shape
                raise BadInput(f"replay: {key}", got=got, expected=(f"{len(episode)} (+ 1)", *spec.shape))
            seen[key] = torch.from_numpy(np.ascontiguousarray(value, np.uint8 if spec.dtype == "uint8" else np.float32))
        return seen

    def _store(self, seen: Mapping[str, Tensor], episode: PlayedEpisode, count: int) -> None:
        action, reward = torch.zeros(count, *episode.action.shape[1:]), torch.zeros(count)
        action[: len(episode)] = torch.from_numpy(episode.action)
        reward[: len(episode)] = torch.from_numpy(episode.reward)
        rows = {_FEATURE + key: value for key, value in seen.items()} | {"action": action, "reward": reward}
        self._grow(rows, count)
        place = torch.arange(self._next, self._next + count) % self._held
        for key, value in rows.items():
            self._rows[key][place] = value

    def _grow(self, rows: Mapping[str, Tensor], count: int) -> None:
        """Make memory for the rows to come; positions stay as they are until the capacity is reached."""
        needed = min(self._next + count, self._capacity)
        if needed <= self._held:
            return
        held = min(max(needed, 2 * self._held, 1024), self._capacity)
        for key, value in rows.items():
            old = self._rows.get(key)
            new = torch.zeros(held, *value.shape[1:], dtype=value.dtype)
            if old is not None:
                new[: len(old)] = old
            self._rows[key] = new
        self._held = held


_FEATURE = "observation/"
_COLUMNS = dict.fromkeys(("start", "length", "reach", "author"), torch.int64)
_COLUMNS |= dict.fromkeys(("ends", "intervention", "merit"), torch.bool)
_COLUMNS |= {"left": torch.int64, "returned": torch.float32}


def windows_of(
    episode: PlayedEpisode, chunk: int, rows: int, n_step: int = 1
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(starts, executed steps of the chunk, steps of the return, whether the task ended in them, steps that their
    author goes on for) of the windows of an episode with so many rows."""
    steps = len(episode)
    start = np.arange(steps)
    length = np.minimum(chunk, steps - start)
    # What follows must have been seen; before the end of the task a window is whole.
    valid = (episode.terminated & (start + length == steps)) | ((length == chunk) & (start + length < rows))
    # The same author throughout: an edge, or the end, comes after the window.
    turns = np.flatnonzero(np.diff(episode.intervention)) + 1
    edge = np.append(turns, steps)[np.searchsorted(turns, start, side="right")]
    valid &= start + length <= edge
    # h = min(n H, steps until the author changes or the episode is over, steps until what was seen last)
    last = steps if episode.terminated else rows - 1
    reach = np.minimum(np.minimum(start + chunk * n_step, edge), last) - start
    ends = episode.terminated & (start + reach == steps)
    return start[valid], length[valid], reach[valid], ends[valid], (edge - start)[valid]
