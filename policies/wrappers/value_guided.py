"""Value guidance: critics learned elsewhere choose among the chunks of any policy, whose weights stay as they are.

    a_1 … a_N ~ π(· | s),   P(a_j) = exp(Q(s, a_j) / β) / Σ_i exp(Q(s, a_i) / β),   Q = 1/E Σ_e Q_e
    β = 0: the largest Q

V-GPS (Nakamoto et al. 2024). The critics are those of a `BestOfNPolicy`, as `robolearn finetune` exports it, and judge
the first H steps of a chunk. A policy that gives N chunks of one observation by itself (`act_samples`: what imitation
trained, LeRobot's) sees each world once. To any other each world is N worlds with one observation and N noises: it
proposes N chunks whatever it is, and whatever history it keeps. Critics of several tasks observe the sentence of the
present one, as the vector that their base was trained with; the policy need not take words.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from policies.policy import WorldNoise
from policies.storage.checkpoint import load_policy
from policies.wrappers.best_of_n import BestOfNPolicy
from policies.wrappers.prompted import is_prompted, trained_words, without_instructions
from policies.wrappers.wrapper import PolicyWrapper
from robolearn.core import ActionChunk, BadInput, Interface, Observation, Policy, check_compatible
from robolearn.core.specs import PROMPT

log = logging.getLogger(__name__)


def load_guide(path: str | Path, device: str = "cpu", beside: Mapping[str, object] = {}) -> BestOfNPolicy:
    """The critics in a run or checkpoint folder.

    Args:
      beside: flag → what is given; those are of each world by itself, and do not go with N chunks for one.

    Raises:
      BadInput: a policy without critics of chunks, or something `beside` it.
    """
    if given := next((flag for flag, value in beside.items() if value), ""):
        raise BadInput("--guide", got=f"with --{given}", expected=f"one of them: --{given} is of each world by itself")
    policy = load_policy(path, device)
    if not isinstance(policy, BestOfNPolicy):
        got, hint = f"{path}, of kind {policy.config.name}", "`robolearn finetune --algo iql --data …` makes one"
        raise BadInput("--guide", got=got, expected="a run whose critics judge chunks: kind best_of_n", hint=hint)
    return policy


def choose(values: NDArray, temperature: float, uniform: NDArray) -> NDArray[np.intp]:
    """(W, N) values → (W,) the chosen ones; `uniform` (W,) in [0, 1] decides where there is a temperature β."""
    if temperature == 0.0:
        return values.argmax(1)
    # P_j = exp(Q_j / β) / Σ_i exp(Q_i / β), drawn by its cumulative sum
    weight = np.exp((values - values.max(1, keepdims=True)) / temperature)
    below = np.cumsum(weight, 1) / weight.sum(1, keepdims=True) < uniform[:, None]
    return below[:, :-1].sum(1)


class ValueGuidedPolicy(PolicyWrapper):
    """See the module.

    Args:
      policy: ready to act, goals apart: they are of one world each.
      samples: N, at least 2.
      temperature: β, in units of the values.

    Attributes:
      decisions, departures: those so far, and those of another chunk than the first one.
    """

    def __init__(self, policy: Policy, guide: BestOfNPolicy, samples: int, temperature: float) -> None:
        if samples < 2:
            raise BadInput("--guide-samples", got=samples, expected="at least 2: one leaves nothing to choose")
        if not 0.0 <= temperature < np.inf:
            raise BadInput("--guide-temperature", got=temperature, expected="0 or more")
        super().__init__(policy)
        # An arm is asked for what either of them sees.
        seen = {**without_instructions(guide.interface).observation, **policy.interface.observation}
        self.interface = replace(policy.interface, observation=seen)
        self.guide, self.samples, self.temperature = guide, samples, temperature
        self._act_samples = getattr(policy, "act_samples", None)
        self.decisions = self.departures = 0
        self._drawn = WorldNoise((1,))
        self._warned = False
        self._prompt: dict[str, NDArray[np.float32]] = {}

    def bind(self, offered: Interface) -> None:
        """Raises `BadInput`: the world does not offer what the critics observe, or has other actions."""
        super().bind(offered)
        check_compatible(without_instructions(self.guide.interface), offered, what="--guide")

    def set_prompt(self, sentence: str) -> None:
        """Judge by the task of `sentence` from now on, where the critics take words. Raises `BadInput`: one that they
        were not trained with."""
        if is_prompted(self.guide.interface):
            self._prompt = {PROMPT: trained_words(self.guide.interface, "--guide")([sentence])}

    def reset(self, seed: int) -> None:
        super().reset(seed)
        self._drawn.reset(seed)

    def begin(self, worlds: NDArray[np.bool_]) -> None:
        super().begin(np.repeat(worlds, self._times))

    def seen(self, observation: Observation) -> Observation:
        """Each world as often as the policy shall see it."""
        return {key: np.repeat(value, self._times, axis=0) for key, value in observation.items()}

    @property
    def _times(self) -> int:
        return 1 if self._act_samples else self.samples

    def _proposed(self, observation: Observation) -> NDArray[np.float32]:
        """(W, N, Tp, Da)."""
        if self._act_samples:
            return self._act_samples(observation, self.samples)
        chunks = np.asarray(self.policy.act(self.seen(observation)))
        return chunks.reshape(-1, self.samples, *chunks.shape[1:])

    def act(self, observation: Observation) -> ActionChunk:
        """(W, Tp, Da). Raises `BadInput`: chunks shorter than those that the critics judge."""
        chunks = self._proposed(observation)
        worlds, judged = len(chunks), self.guide.execute_steps
        if chunks.shape[2] < judged:
            got, expected = f"critics of {judged} steps", f"at most the {chunks.shape[2]} that the policy predicts"
            raise BadInput("--guide", got=got, expected=expected)
        chosen = choose(self._values(observation, chunks[:, :, :judged]), self.temperature, self._uniform(worlds))
        self.decisions += worlds
        self.departures += int((chosen > 0).sum())
        if not self._warned and np.ptp(chunks, axis=1).max() == 0.0:
            log.warning("--guide: the policy has one chunk for each observation, so there is nothing to choose from")
        self._warned = True
        return chunks[np.arange(worlds), chosen]

    @torch.inference_mode()
    def _values(self, observation: Observation, chunks: NDArray[np.float32]) -> NDArray[np.float32]:
        """(W, N, H, Da) → (W, N)."""
        guide = self.guide
        told = {key: np.broadcast_to(value, (len(chunks), value.shape[1])) for key, value in self._prompt.items()}
        observation = {**observation, **told}
        seen = {
            key: torch.as_tensor(np.ascontiguousarray(observation[key], spec.dtype), device=guide.device)
            for key, spec in guide.interface.observation.items()
        }
        actions = torch.from_numpy(chunks.clip(-1.0, 1.0)).flatten(2).to(guide.device)
        # Q = 1/E Σ_e Q_e
        return guide.values(guide.encode(guide.encoded(seen)), actions).mean(0).cpu().numpy()

    def _uniform(self, worlds: int) -> NDArray[np.float64]:
        """(W,) in [0, 1], of each world by itself."""
        return torch.special.ndtr(torch.from_numpy(self._drawn.draw(worlds)[:, 0]).double()).numpy()

    def latency_ms(self, observation: Observation, calls: int = 50) -> dict[str, dict[str, float]]:
        """Of a decision for the first world alone, by the policy and with guidance; the policy has to be reset
        afterwards."""
        one = {key: value[:1] for key, value in observation.items()}
        found = {}
        for name, act in (("policy", self.policy.act), ("guided", self.act)):
            self.policy.reset(0)  # another number of worlds begins here
            spent = []
            for _ in range(calls):
                begun = time.perf_counter()
                act(one)
                spent.append(1e3 * (time.perf_counter() - begun))
            found[name] = {"p50": float(np.percentile(spent, 50)), "p99": float(np.percentile(spent, 99))}
        self.policy.reset(0)
        return found
