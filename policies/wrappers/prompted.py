"""A policy that was trained with words or with goals, with a prompt and goals set."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from policies.wrappers.goals import Goals, RunningGoals, goals_of
from policies.wrappers.wrapper import PolicyWrapper
from robolearn.core import BadInput, Interface, Observation, Policy
from robolearn.core.specs import PROMPT, is_instruction

WORDS = "words"  # of an interface's extra: sentence → vector
GOALS_HINT = "--goals DATASET has ends of demonstrations"


def is_prompted(interface: Interface) -> bool:
    """True where a policy with this interface was trained with words."""
    return PROMPT in interface.observation


def takes_instructions(interface: Interface) -> bool:
    """True where a policy with this interface takes words or a goal."""
    return any(is_instruction(key) for key in interface.observation)


def without_instructions(interface: Interface) -> Interface:
    """The interface that a world or an arm has to offer to such a policy: words and goals do not come from there."""
    return replace(
        interface, observation={k: spec for k, spec in interface.observation.items() if not is_instruction(k)}
    )


class WordedPolicy(Policy, Protocol):
    """A policy that is told the task in words; see `wants_words`."""

    def set_prompt(self, sentence: str) -> None: ...


class PromptedPolicy(PolicyWrapper):
    """`policy` with a sentence as its observation `PROMPT`, and with goals.

    A sentence that it was trained with comes with the checkpoint; any other is encoded. A goal is picked when an
    episode begins.

    Attributes:
      sentence: the prompt; empty until `set_prompt`.
      wants_words, wants_goals: the instructions that it takes.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__(policy)
        self.interface = without_instructions(policy.interface)
        self.wants_words, self.wants_goals = is_prompted(policy.interface), goals_of(policy.interface)
        self.sentence, self._vector = "", np.zeros(0, np.float32)
        self._known: dict[str, NDArray[np.float32]] = {}
        if self.wants_words:
            size = policy.interface.observation[PROMPT].size
            self._known = _vectors(policy.interface.extra.get(WORDS, {}), size)
        self._goals: RunningGoals | None = None

    def set_prompt(self, sentence: str) -> None:
        """Make `sentence` the prompt from now on. Raises `BadInput`: an empty sentence, or one that was not trained
        with, and the encoder is not installed."""
        if not sentence.strip():
            raise BadInput("words", got="nothing", expected="a sentence", available=self._known)
        self.sentence = sentence
        if sentence in self._known:
            self._vector = self._known[sentence]
            return
        from policies.networks.words import SentenceEncoder  # needs torch

        try:
            encoder = SentenceEncoder()
        except BadInput as error:
            hint = f"{error.hint} encodes others" if error.hint else ""
            raise BadInput(
                "words", got=sentence, expected="a trained sentence", available=self._known, hint=hint
            ) from None
        self._vector = encoder([sentence])[0]

    def set_goals(self, goals: Goals) -> None:
        """Pick one of the `goals` in each episode from now on."""
        self._goals = RunningGoals(goals)

    def reset(self, seed: int) -> None:
        super().reset(seed)
        if self._goals is not None:
            self._goals.reset(seed)

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        super().begin(worlds)
        if self._goals is not None:
            self._goals.begin(worlds)

    def seen(self, observation: Observation) -> Observation:
        if self.wants_words and not self.sentence:
            raise BadInput("words", got="nothing", expected="a sentence before the policy acts", available=self._known)
        if self.wants_goals and self._goals is None:
            raise BadInput("goals", got="nothing", expected="some before the policy acts", hint=GOALS_HINT)
        instructions = {} if self._goals is None else dict(self._goals.current(observation))
        if self.wants_words:
            count = len(next(iter(observation.values())))
            instructions[PROMPT] = np.broadcast_to(self._vector, (count, len(self._vector)))
        return {**observation, **instructions}

    @property
    def act_samples(self) -> Callable[[Observation, int], NDArray[np.float32]] | None:
        """Of the policy inside (`policies.policy.ChunkPolicy.act_samples`), if it has that."""
        samples = getattr(self.policy, "act_samples", None)
        return samples and (lambda observation, count: samples(self.seen(observation), count))


def wants_words(policy: Policy | None) -> TypeGuard[WordedPolicy]:
    """True for a policy that is to be told the task in words: one of ours that was trained with some, or a VLA."""
    return getattr(policy, "wants_words", False)


def set_prompt(policy: Policy, sentence: str, usual: str = "", *, what: str = "policy") -> None:
    """Prompt `policy` with the `sentence`, or with the `usual` one of the task where none is given. Raises `BadInput`:
    a sentence for a policy that was trained without words."""
    if wants_words(policy):
        policy.set_prompt(sentence or usual)
    else:
        check_prompt(sentence, what=what)


def set_goals(policy: Policy, goals: Callable[[Interface], Goals] | None, *, what: str = "policy") -> None:
    """Set the `goals` of `policy`, which are made for its interface, goals included. Raises `BadInput`: goals for a
    policy that was trained without, or none for one that was trained with some."""
    if isinstance(policy, PromptedPolicy):
        check_goals_match(policy.policy.interface, goals is not None, what=what)
        if goals is not None:
            policy.set_goals(goals(policy.policy.interface))
    elif goals is not None:
        check_goals_match(policy.interface, True, what=what)


def trained_words(interface: Interface, what: str) -> Callable[[Sequence[str]], NDArray[np.float32]]:
    """n sentences → (n, D), of those alone that a policy with this interface was trained with; for others it raises
    `BadInput`, about `what`."""
    known = _vectors(interface.extra.get(WORDS, {}), interface.observation[PROMPT].size)

    def embed(sentences: Sequence[str]) -> NDArray[np.float32]:
        for sentence in sentences:
            if sentence not in known:
                got, expected = f"the task {sentence!r}", "one that was trained with"
                raise BadInput(what, got=got, expected=expected, available=known)
        return np.stack([known[sentence] for sentence in sentences])

    return embed


def check_goals_match(interface: Interface, given: bool, *, what: str) -> None:
    """Raise `BadInput` where a policy with this interface needs goals that are not given, or the other way round."""
    wanted = goals_of(interface)
    if given and not wanted:
        hint = "`robolearn train --goal …` makes one that reaches a goal"
        raise BadInput(f"{what}: --goals", got="some", expected="none: it was trained without a goal", hint=hint)
    if wanted and not given:
        raise BadInput(f"{what}: --goals", got="nothing", expected=f"what gives {', '.join(wanted)}", hint=GOALS_HINT)


def check_prompt(sentence: str, *, what: str) -> None:
    """Raise `BadInput` for a `sentence` to a policy that was trained without words."""
    if sentence:
        hint = "`robolearn train --observe … prompt` makes one that takes words"
        raise BadInput(f"{what}: words", got=repr(sentence), expected="none: it was trained without words", hint=hint)


def _vectors(stored: Any, size: int) -> dict[str, NDArray[np.float32]]:
    if not isinstance(stored, Mapping):
        raise BadInput("interface: words", got=type(stored).__name__, expected="sentence → vector")
    found = {str(sentence): np.asarray(vector, np.float32) for sentence, vector in stored.items()}
    for sentence, vector in found.items():
        if vector.shape != (size,) or not np.isfinite(vector).all():
            raise BadInput(f"interface: words {sentence!r}", got=vector.shape, expected=f"({size},) finite numbers")
    return found
