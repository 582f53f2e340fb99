"""The four seams between rooms: `Env`, `Policy`, `Teleoperator`, `RewardModel`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robolearn.core.specs import Interface, check_compatible
from robolearn.core.types import ActionChunk, Observation, Score, Window

StepResult = tuple[Observation, NDArray[np.float32], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]
"""(observation, reward, terminated, truncated, infos), each over N worlds, as in Gymnasium."""


@runtime_checkable
class Env(Protocol):
    """N worlds side by side: a `gymnasium.vector.VectorEnv` in SAME_STEP autoreset mode.

    A world that ends is reset within the same step. The returned observation is then the first of the new
    episode, and the last one of the old episode is in ``infos["final_obs"]`` (feature → (N, …)), valid where
    ``infos["_final_obs"]`` (N,) is true. ``infos["success"]`` (N,) is whether the step solved the task; it is
    missing where the task defines no success, and episodes are judged by their return.

    `reset(seed=s)` restarts all worlds. The j-th episode of world w depends on (s, start id of w, j) alone, with
    everything that is drawn for it (start, friction, mass, delay), so two policies that are compared with one seed
    meet the same episodes, whatever their lengths. The start id of world w is w, or ``start_ids[w]`` with
    ``reset(options={"start_ids": (N,) ints})``: worlds with equal ids meet equal episodes, the j-th of one being the
    j-th of the other, also in the resets within steps. ``"episodes"`` (N,) beside the ids begins world w with the
    ``episodes[w]``-th of its sequence. `reset()` goes on with the next episode of each world; ids without a seed begin
    their sequences of the present seed anew.
    """

    num_envs: int
    interface: Interface
    task: str  # the name for --task
    prompt: str  # the task in words
    max_episode_steps: int  # control steps before the clock ends an episode; 0 where that is not known
    reports_success: bool  # whether ``infos["success"]`` is there; may become true at the first sight of a flag
    continuing: bool  # no episode ends but by the clock, so a time limit means nothing to the task
    steps_together: bool  # every world moves in every step, as in a batch on a GPU; `active` is not supported

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, dict]: ...

    def step(self, actions: NDArray[np.float32], active: NDArray[np.bool_] | None = None) -> StepResult:
        """One control step; `actions` (N, Da) in [-1, 1].

        Worlds outside `active` (N,) rest and repeat their last observation.
        """
        ...

    def snapshot(self) -> dict[str, NDArray] | None:
        """Everything `restore` needs to continue bit for bit, or None where a world's state cannot be read."""
        ...

    def restore(self, snapshot: dict[str, NDArray]) -> Observation:
        """Continue from `snapshot`; returns the current observation."""
        ...

    def frame(self, world: int = 0) -> NDArray[np.uint8] | None:
        """An HWC picture of one world for videos, or None where it cannot be drawn."""
        ...

    def close(self, **kwargs: Any) -> None: ...


@runtime_checkable
class ChunkEnv(Env, Protocol):
    """An `Env` with a fast path for whole chunks; `robolearn.rollout` does without it, only slower."""

    def step_chunk(self, chunks: NDArray[np.float32], active: NDArray[np.bool_] | None = None) -> StepResult:
        """Execute `chunks` (N, Ta, Da), one action after the other, as that many calls of `step` would.

        A world whose episode ends inside the chunk is reset and rests until the others have finished theirs:
        what is left of its chunk is never applied to the next episode. Worlds outside `active` rest
        throughout and repeat their last observation. `reward` is the sum over the executed steps;
        ``infos["step_rewards"]`` (N, Ta) has each, 0 where a world rested, and ``infos["steps"]`` (N,) int counts
        the executed ones.
        """
        ...


@runtime_checkable
class Policy(Protocol):
    """Observation → action chunk, slow. (A controller tracks set-points, fast.)

    Before the first chunk: `bind`, then `reset`. A class that inherits from this one gets the defaults of a policy
    without memory.
    """

    interface: Interface  # what the policy sees and commands
    execute_steps: int  # Ta, how many actions of a chunk are executed before the policy is asked again
    observes_every_step: bool = False  # whether `observe` is to be called at the steps at which `act` is not

    def bind(self, offered: Interface) -> None:
        """Take what the policy's own files leave open (another maker's may lack a control rate) from the world."""

    def reset(self, seed: int) -> None:
        """Start the policy's own randomness anew and forget all history."""

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """Forget the history of the worlds (N,) that are true: a new episode starts there."""

    def observe(self, observation: Observation) -> None:
        """Remember the observation of a step at which `act` is not called."""

    def act(self, observation: Observation) -> ActionChunk:
        """(N, Tp, Da) actions in [-1, 1] for the N worlds of `observation`."""
        ...


UNJUDGED = (
    "the policy keeps no statistics of the joints that it has seen: a joint that is a whole turn on is not noticed"
)


def familiarity(policy: Policy, observation: Observation) -> tuple[str, str]:
    """(why `policy` must not act, what it has not seen), as `policies.normalize.unfamiliar`; `UNJUDGED` of a policy
    that has no such judgement."""
    ask = getattr(policy, "unfamiliar", None)
    return ask(observation) if ask else ("", UNJUDGED)


def warm(policy: Policy) -> None:
    """Let `policy` compute what it decided last once more, where it can without a trace: the next decision, which is
    due soon, finds in the processor's caches what it computes with. After a pause it takes three to five times as long.
    """
    if compute := getattr(policy, "warm", None):
        compute()


@runtime_checkable
class Teleoperator(Protocol):
    """A device, or a script in its place, that commands one action at a time."""

    def reset(self, worlds: NDArray[np.bool_]) -> None:
        """Begin a new episode in the worlds (N,) that are true."""
        ...

    def command(self, observation: Observation) -> NDArray[np.float32]:
        """(N, Da) actions in [-1, 1]."""
        ...


@runtime_checkable
class RewardModel(Protocol):
    """Scores what was done. May take its time: rewards are filled in before they are learned from."""

    def score(self, windows: Sequence[Window], prompts: Sequence[str]) -> list[Score]:
        """The scores of B windows, each of T steps, reset to end.

        The same steps must get the same score, whatever stands beside them: it is stored, and read when a run is
        resumed. `prompts`: the task of each window in words; may be empty.

        Raises:
          RewardWithheld: no score of these windows can be used.
        """
        ...


def bind_policy(policy: Policy, offered: Interface, *, what: str) -> None:
    """Prepare `policy` for a world that offers `offered`, or raise `BadInput` as `check_compatible` does."""
    policy.bind(offered)
    check_compatible(policy.interface, offered, what=what)
