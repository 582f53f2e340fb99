"""The end of an episode that nobody counts, as launch files start one: by time, by the operator's verdict, or once a
reward model calls it done.

A reward model judges the observations that the policy acts on, one each decision, and has to call several in a row
done. Each arming begins an episode, with a clock of its own.
"""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from robolearn.core import BadInput, Observation

SUCCESS, FAILURE, TIMEOUT = "success", "failure", "timeout"


class EpisodeJudge(Protocol):
    """Verdicts on an episode while it runs; `robolearn.rewards.online.OnlineDone` gives them."""

    @property
    def solved(self) -> bool:
        """True once the running episode is done."""
        ...

    @property
    def settled(self) -> bool:
        """True where the newest frame has its verdict."""
        ...

    @property
    def fault(self) -> str:
        """Why frames of the running episode have none, in words; empty where all have."""
        ...

    def begin(self, task: str, observation: Any) -> None:
        """Begin an episode with its first frame."""
        ...

    def add(self, action: NDArray, observation: Any) -> None:
        """The next frame, and the action that led to it."""
        ...

    def close(self) -> None:
        """Give no more verdicts."""
        ...


class EpisodeEnd:
    """See the module.

    Args:
      seconds: longest episode [s]; 0: no limit.
      judge: of the reward model, or None.
      words: the task, for the reward model.
      judge_ends: false: the reward model ends no episode, see `verdict`.
      by_key: the operator may end it, see `judged`.

    Raises:
      BadInput: a limit below 0.
    """

    def __init__(
        self,
        seconds: float,
        judge: EpisodeJudge | None = None,
        words: str = "",
        *,
        judge_ends: bool = True,
        by_key: bool = False,
    ) -> None:
        if not seconds >= 0:
            raise BadInput("seconds", got=seconds, expected="0 (no limit) or more")
        self._seconds, self._judge, self._words = seconds, judge, words
        self._judge_ends = judge is not None and judge_ends
        self._begun: float | None = None
        self._by_key, self._said = by_key, ""
        self._first = True
        self._action: NDArray | None = None

    @property
    def is_asked_for(self) -> bool:
        """True where anything ends an episode."""
        return self._seconds > 0 or self._judge_ends or self._by_key

    @property
    def is_judged(self) -> bool:
        """True where a reward model judges each episode and ends none."""
        return self._judge is not None and not self._judge_ends

    def arm(self, armed: bool, now: float) -> None:
        """The arm was armed, which begins an episode, or disarmed, at `now` [s]."""
        self._begun, self._said = (now if armed else None), ""
        self._first = self._first or armed  # the verdict on an episode outlives it

    def add(self, observation: Observation, action: NDArray) -> None:
        """An observation (1, …), and the action (Da,) that is taken first from there."""
        if self._judge is None:
            return
        frame = {name: value[0] for name, value in observation.items()}
        if self._first or self._action is None:
            self._judge.begin(self._words, frame)
        else:
            self._judge.add(self._action, frame)
        self._first, self._action = False, action

    def add_last(self, observation: Observation) -> None:
        """The observation (1, …) that an episode ends with, from which nothing is done any more."""
        if not self._first and self._action is not None:
            self.add(observation, self._action)

    def verdict(self) -> dict[str, Any]:
        """Of the reward model on the newest episode: ``done``, it was called so; ``settled``, its newest frame has been
        judged; ``fault``, why frames were not, else empty."""
        if self._judge is None or self._first:
            return {"done": False, "settled": True, "fault": "the policy decided nothing"}
        return {"done": self._judge.solved, "settled": self._judge.settled, "fault": self._judge.fault}

    def judged(self, success: bool) -> str:
        """The operator ends the episode with this verdict; the first one counts. The reason where there is none to end,
        else empty."""
        if self._begun is None:
            return "no episode runs: the arm is not armed"
        if self._said:
            return f"the episode has ended already: {self._said}"
        self._said = SUCCESS if success else FAILURE
        return ""

    def outcome(self, now: float) -> str:
        """The outcome of the episode that ends at `now` [s]; empty while it goes on, or none does."""
        if self._begun is None:
            return ""
        if self._said:
            return self._said
        if self._judge is not None and self._judge_ends and not self._first and self._judge.solved:
            return SUCCESS
        return TIMEOUT if self._seconds and now - self._begun >= self._seconds else ""

    def close(self) -> None:
        """End the thread of the reward model."""
        if self._judge is not None:
            self._judge.close()
