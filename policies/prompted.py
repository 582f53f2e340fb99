"""A policy that was trained with words, told what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robolearn.core import ActionChunk, BadInput, Interface, Observation, Policy
from robolearn.core.specs import PROMPT

WORDS = "words"  # of an interface's extra: sentence → vector


def is_prompted(interface: Interface) -> bool:
    """Whether a policy with this interface was trained with words."""
    return PROMPT in interface.observation


def without_words(interface: Interface) -> Interface:
    """What a world or an arm has to offer to such a policy: everything but the words, which are told to it."""
    return replace(interface, observation={k: spec for k, spec in interface.observation.items() if k != PROMPT})


class PromptedPolicy:
    """`policy` with a sentence as its observation `PROMPT`; implements `robolearn.core.Policy`.

    A sentence that it was trained with comes with the checkpoint; any other is encoded.

    Attributes:
      sentence: what it was told; empty until `tell`.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.interface = without_words(policy.interface)
        self.execute_steps, self.observes_every_step = policy.execute_steps, policy.observes_every_step
        self.sentence, self._vector = "", np.zeros(0, np.float32)
        size = policy.interface.observation[PROMPT].size
        self._known = _vectors(policy.interface.extra.get(WORDS, {}), size)

    def tell(self, sentence: str) -> None:
        """Do what `sentence` says from now on.

        Raises:
          BadInput: nothing is said, or a sentence that was not trained and the encoder is not installed.
        """
        if not sentence.strip():
            raise BadInput("words", got="nothing", expected="a sentence", available=self._known)
        self.sentence = sentence
        if sentence in self._known:
            self._vector = self._known[sentence]
            return
        from policies.words import SentenceEncoder  # and torch: what a policy needs is known without

        try:
            encoder = SentenceEncoder()
        except BadInput as error:
            hint = f"{error.hint} encodes others" if error.hint else ""
            raise BadInput(
                "words", got=sentence, expected="a trained sentence", available=self._known, hint=hint
            ) from None
        self._vector = encoder([sentence])[0]

    def bind(self, offered: Interface) -> None:
        """See `Policy.bind`."""
        self.policy.bind(offered)

    def reset(self, seed: int) -> None:
        """See `Policy.reset`."""
        self.policy.reset(seed)

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        """See `Policy.begin`."""
        self.policy.begin(worlds)

    def observe(self, observation: Observation) -> None:
        """See `Policy.observe`."""
        self.policy.observe(self._told(observation))

    def act(self, observation: Observation) -> ActionChunk:
        """See `Policy.act`."""
        return self.policy.act(self._told(observation))

    def _told(self, observation: Observation) -> Observation:
        if not self.sentence:
            raise BadInput("words", got="nothing", expected="a sentence before the policy acts", available=self._known)
        count = len(next(iter(observation.values())))
        return {**observation, PROMPT: np.broadcast_to(self._vector, (count, len(self._vector)))}


def tell(policy: Policy, sentence: str, usual: str = "", *, what: str = "policy") -> None:
    """Tell `policy` the `sentence`, or the `usual` one of the task where none is given.

    Raises:
      BadInput: a sentence for a policy that was trained without words.
    """
    if isinstance(policy, PromptedPolicy):
        policy.tell(sentence or usual)
    else:
        refuse_words(sentence, what=what)


def refuse_words(sentence: str, *, what: str) -> None:
    """Raise `BadInput` where something is said to a policy that was trained without words."""
    if sentence:
        hint = "`robolearn train --observe … prompt` makes one that listens"
        raise BadInput(f"{what}: words", got=repr(sentence), expected="none: it was trained without words", hint=hint)


def _vectors(stored: Any, size: int) -> dict[str, NDArray[np.float32]]:
    if not isinstance(stored, Mapping):
        raise BadInput("interface: words", got=type(stored).__name__, expected="sentence → vector")
    found = {str(sentence): np.asarray(vector, np.float32) for sentence, vector in stored.items()}
    for sentence, vector in found.items():
        if vector.shape != (size,) or not np.isfinite(vector).all():
            raise BadInput(f"interface: words {sentence!r}", got=vector.shape, expected=f"({size},) finite numbers")
    return found
