"""Value guidance: probabilities worked out by hand, and policies of numpy alone that critics choose among."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hardware.node_parameters import PolicyParameters
from policies.kinds.gaussian import GaussianConfig, GaussianPolicy
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import FlowConfig, NetworkConfig
from policies.storage.checkpoint import save_policy
from policies.wrappers.best_of_n import BestOfNConfig, BestOfNPolicy
from policies.wrappers.prompted import PromptedPolicy
from policies.wrappers.value_guided import ValueGuidedPolicy, choose, load_guide
from robolearn.core import ArraySpec, BadInput, Interface, bind_policy
from robolearn.deploy.nodes import load

INTERFACE = Interface({"proprio": ArraySpec((2,))}, ArraySpec((1,)), 20.0)
WIDE = Interface({"proprio": ArraySpec((2,)), "objects": ArraySpec((1,))}, ArraySpec((1,)), 20.0)
THREE = np.array([[0.0, math.log(2.0), math.log(3.0)]])  # probabilities of 1/6, 2/6 and 3/6


@pytest.mark.parametrize("beta", [0.2, 1.0])
def test_chunks_are_drawn_with_the_probabilities_of_their_values(beta: float) -> None:
    uniform = np.array([0.0, 0.16, 0.17, 0.49, 0.51, 1.0])
    np.testing.assert_array_equal(choose(np.repeat(beta * THREE, 6, 0), beta, uniform), [0, 0, 1, 1, 2, 2])


def test_without_a_temperature_the_largest_value_is_taken() -> None:
    np.testing.assert_array_equal(choose(np.array([[1.0, 3.0, 2.0], [5.0, 0.0, 1.0]]), 0.0, np.ones(2)), [1, 0])


class Counting:
    """Chunks of (row / 100, world's number / 10, 9); keeps what it was shown."""

    observes_every_step, execute_steps, interface = True, 2, INTERFACE

    def __init__(self, steps: int = 3) -> None:
        self.steps = steps
        self.begun: list[Any] = []
        self.observed: list[Any] = []

    def bind(self, offered: Interface) -> None: ...

    def reset(self, seed: int) -> None: ...

    def begin(self, worlds: np.ndarray) -> None:
        self.begun.append(worlds.tolist())

    def observe(self, observation: Any) -> None:
        self.observed.append(observation["proprio"][:, 0].tolist())

    def act(self, observation: Any) -> np.ndarray:
        world, row = observation["proprio"][:, 0], np.arange(len(observation["proprio"]))
        return np.stack([0.01 * row, 0.1 * world, 0 * row + 9], 1)[:, : self.steps, None].astype(np.float32)


def guide(values: Any = None, interface: Interface = INTERFACE) -> BestOfNPolicy:
    torch.manual_seed(0)
    net = FlowConfig(horizon=2, execute=2, network=NetworkConfig(width=16, depth=1)).build(interface)
    made = BestOfNPolicy(ChunkPolicy(net, Normalizer(interface), interface), BestOfNConfig(width=16, depth=1))
    if values is not None:
        made.values = values  # type: ignore[method-assign]
    return made.eval()


def seen(*worlds: float) -> dict[str, np.ndarray]:
    return {
        "proprio": np.array([[w, 0.0] for w in worlds], np.float32),
        "objects": np.ones((len(worlds), 1), np.float32),
    }


def test_each_world_has_its_own_chunks_and_the_best_of_them_is_executed() -> None:
    """Rows 0 1 2 | 3 4 5 are the chunks of worlds 4 and 7; the critics want a large first action in world 4 and a
    small one in world 7, and do not see the step that is beyond what they judge."""

    def values(features: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        assert actions.shape == (2, 3, 2)
        torch.testing.assert_close(actions[:, :, 1], torch.tensor([[0.4] * 3, [0.7] * 3]))
        sign = torch.where(features[:, :1] == 4.0, 1.0, -1.0)
        return torch.stack([sign * actions[:, :, 0], 3.0 * sign * actions[:, :, 0]])

    inner = Counting()
    policy = ValueGuidedPolicy(inner, guide(values), 3, 0.0)
    policy.reset(0)
    policy.begin(np.array([True, False]))
    policy.observe(seen(4, 7))
    chunk = policy.act(seen(4, 7))
    np.testing.assert_allclose(chunk[:, :, 0], [[0.02, 0.4, 9.0], [0.03, 0.7, 9.0]], atol=1e-6)
    assert inner.begun == [[True] * 3 + [False] * 3] and inner.observed == [[4.0] * 3 + [7.0] * 3]
    assert (policy.decisions, policy.departures) == (2, 1)


def test_a_policy_that_gives_many_chunks_of_one_observation_sees_each_world_once() -> None:
    class Many(Counting):
        def act_samples(self, observation: Any, count: int) -> np.ndarray:
            rows = {key: np.repeat(value, count, 0) for key, value in observation.items()}
            return self.act(rows).reshape(len(observation["proprio"]), count, self.steps, 1)

    inner = Many()
    policy = ValueGuidedPolicy(inner, guide(lambda features, actions: actions[None, :, :, 0]), 3, 0.0)
    policy.reset(0)
    policy.begin(np.array([True, False]))
    policy.observe(seen(4, 7))
    np.testing.assert_allclose(policy.act(seen(4, 7))[:, :, 0], [[0.02, 0.4, 9.0], [0.05, 0.7, 9.0]], atol=1e-6)
    assert inner.begun == [[True, False]] and inner.observed == [[4.0, 7.0]]


@pytest.mark.parametrize("observe", [1, 2])
def test_samples_of_a_network_are_those_of_worlds_that_see_the_same(observe: int) -> None:
    """And its encoder sees each world once."""
    torch.manual_seed(0)
    config = FlowConfig(horizon=2, execute=2, observe=observe, network=NetworkConfig(width=16, depth=1))
    base = ChunkPolicy(config.build(INTERFACE), Normalizer(INTERFACE), INTERFACE).eval()
    encode, rows = base.net.encode, []
    base.net.encode = lambda normal: rows.append(len(normal["proprio"])) or encode(normal)  # type: ignore[method-assign]
    looks = [seen(1, 2, 3), seen(4, 5, 6), seen(7, 8, 9)]
    base.reset(3)
    samples = []
    for i, look in enumerate(looks):
        base.begin(np.array([False, i == 2, False]))
        samples.append(base.act_samples(look, 4))
    assert rows == [3, 3, 3]
    base.reset(3)
    for i, look in enumerate(looks):
        base.begin(np.repeat([False, i == 2, False], 4))
        apart = base.act({key: np.repeat(value, 4, 0) for key, value in look.items()})
        np.testing.assert_allclose(samples[i], apart.reshape(3, 4, 2, 1), atol=1e-6)
    assert np.ptp(samples[0], axis=1).min() > 0

    # A backend has one noise for each observation.
    def backend(found: dict[str, np.ndarray], noise: np.ndarray) -> np.ndarray:
        seen = {key: torch.from_numpy(value) for key, value in found.items()}
        return base.decide(seen, torch.from_numpy(noise)).detach().numpy()

    base.backend = backend
    base.reset(3)
    np.testing.assert_allclose(base.act_samples(looks[0], 4), samples[0], atol=1e-6)


def test_a_policy_of_words_is_shown_each_world_once() -> None:
    told = replace(INTERFACE, observation={**INTERFACE.observation, "prompt": ArraySpec((2,))},
                   extra={"words": {"lift it": [1.0, 0.0]}})  # fmt: skip
    torch.manual_seed(0)
    net = FlowConfig(horizon=2, execute=2, network=NetworkConfig(width=16, depth=1)).build(told)
    inner = ChunkPolicy(net, Normalizer(told), told).eval()
    prompted = PromptedPolicy(inner)
    prompted.set_prompt("lift it")
    inner.act = None  # type: ignore[assignment]
    policy = ValueGuidedPolicy(prompted, guide(lambda features, actions: actions[None, :, :, 0]), 5, 0.0)
    policy.reset(2)
    chunk = policy.act(seen(4, 7))
    inner.reset(2)
    every = inner.act_samples({**seen(4, 7), "prompt": np.array([[1.0, 0.0]] * 2, np.float32)}, 5)
    np.testing.assert_array_equal(chunk[:, 0, 0], every[:, :, 0, 0].max(1))
    assert PromptedPolicy(Counting()).act_samples is None


def test_draws_depend_on_seed_world_and_call_alone() -> None:
    def values(features: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return torch.tensor(THREE, dtype=torch.float32).expand(2, len(actions), 3)

    def rows(worlds: int, seed: int) -> np.ndarray:
        policy = ValueGuidedPolicy(Counting(), guide(values), 3, 1.0)
        policy.reset(seed)
        acted = [policy.act(seen(*range(worlds)))[:, 0, 0] for _ in range(200)]
        return (np.array(acted) * 100).round().astype(int) % 3

    many = rows(5, 3)
    np.testing.assert_array_equal(rows(2, 3), many[:, :2])
    assert (rows(5, 4) != many).any() and (many[:, 0] != many[:, 1]).any()
    shares = np.bincount(many.ravel(), minlength=3) / many.size
    np.testing.assert_allclose(shares, [1 / 6, 2 / 6, 3 / 6], atol=0.05)


def test_real_critics_take_the_chunk_that_they_say_is_best(tmp_path: Path) -> None:
    """Against each critic's value of each chunk, one at a time; and as it is loaded."""
    critics = guide()
    for parameter in critics.critics.parameters():
        torch.nn.init.normal_(parameter)
    critics = load_guide(save_policy(critics, tmp_path / "guide"))
    policy = ValueGuidedPolicy(Counting(), critics, 4, 0.0)
    chunk = policy.act(seen(1, 2, 3))
    for w in range(3):
        proposed = np.array([[0.01 * (4 * w + j), 0.1 * (w + 1)] for j in range(4)], np.float32)
        x = np.concatenate([np.tile([w + 1.0, 0.0], (4, 1)), proposed], 1).astype(np.float32)
        worth = critics.critics(torch.from_numpy(x)).mean(0)[:, 0]
        np.testing.assert_allclose(chunk[w, :2, 0], proposed[int(worth.argmax())], atol=1e-6)


def test_latency_is_of_one_world() -> None:
    policy = ValueGuidedPolicy(Counting(), guide(), 3, 0.0)
    found = policy.latency_ms(seen(1, 2), calls=3)
    assert found.keys() == {"policy", "guided"} and all(0 < v["p50"] <= v["p99"] for v in found.values())


def test_one_chunk_is_no_choice_and_is_said(caplog: pytest.LogCaptureFixture) -> None:
    class Same(Counting):
        def act(self, observation: Any) -> np.ndarray:
            return np.ones((len(observation["proprio"]), 2, 1), np.float32)

    policy = ValueGuidedPolicy(Same(), guide(), 3, 0.0)
    for _ in range(2):
        policy.act(seen(1, 2))
    assert caplog.text.count("nothing to choose from") == 1


def test_what_cannot_guide_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--guide-samples"):
        ValueGuidedPolicy(Counting(), guide(), 1, 0.0)
    with pytest.raises(BadInput, match="--guide-temperature"):
        ValueGuidedPolicy(Counting(), guide(), 2, -1.0)
    with pytest.raises(BadInput, match="critics of 2 steps"):
        ValueGuidedPolicy(Counting(1), guide(), 2, 0.0).act(seen(1))
    with pytest.raises(BadInput, match=r"--guide.*objects"):
        bind_policy(ValueGuidedPolicy(Counting(), guide(interface=WIDE), 2, 0.0), INTERFACE, what="test")
    actor = GaussianPolicy(Normalizer(INTERFACE), INTERFACE, GaussianConfig(execute=2, width=8))
    with pytest.raises(BadInput, match=r"--guide.*gaussian.*best_of_n"):
        load_guide(save_policy(actor, tmp_path / "actor"))
    with pytest.raises(BadInput, match="--guide: got with --goals, expected one of them"):
        load_guide(tmp_path, beside={"shuffle": (), "goals": "data/set"})


def test_an_arm_is_asked_for_what_policy_and_critics_see() -> None:
    policy = ValueGuidedPolicy(Counting(), guide(interface=WIDE), 3, 0.0)
    assert policy.interface.observation == WIDE.observation and policy.interface.action == INTERFACE.action
    assert ValueGuidedPolicy(Counting(), guide(), 3, 0.0).interface == INTERFACE


def test_a_node_acts_as_the_critics_choose(tmp_path: Path) -> None:
    """By the parameters of a deployment, beside the same policy and critics put together here."""
    critics = guide(interface=WIDE)
    for parameter in critics.critics.parameters():
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(1))
    runs = save_policy(critics.proposer, tmp_path / "alone"), save_policy(critics, tmp_path / "guide")
    chunks = []
    for given in ({"guide": str(runs[1]), "guide_samples": 4}, {}):
        policy = load(PolicyParameters(policy=str(runs[0]), device="cpu", **given))
        policy.reset(0)
        chunks.append(np.stack([policy.act(seen(0.1 * i)) for i in range(20)]))
    here = ValueGuidedPolicy(critics.proposer, critics, 4, 0.0)
    here.reset(0)
    np.testing.assert_array_equal(chunks[0], [here.act(seen(0.1 * i)) for i in range(20)])
    assert np.abs(chunks[0] - chunks[1]).max() > 0.1


def test_critics_of_several_tasks_judge_by_the_sentence_of_the_present_one() -> None:
    """The policy takes no words; its critics' values are the first action, times the first component of the vector."""
    words = {"lift it": [1.0, 0.0, 0.0], "put it down": [-1.0, 0.0, 0.0]}
    told = replace(INTERFACE, observation={**INTERFACE.observation, "prompt": ArraySpec((3,))}, extra={"words": words})
    critics = guide(lambda features, actions: (features[:, :1] * actions[:, :, 0])[None], told)
    policy = ValueGuidedPolicy(Counting(), critics, 3, 0.0)
    bind_policy(policy, INTERFACE, what="a world without words")
    assert "prompt" not in policy.interface.observation
    policy.reset(0)
    for sentence, chosen in (("lift it", [0.02, 0.05]), ("put it down", [0.0, 0.03])):
        policy.set_prompt(sentence)
        np.testing.assert_allclose(policy.act(seen(4, 7))[:, 0, 0], chosen, atol=1e-6)
    with pytest.raises(BadInput, match="--guide: got the task 'insert it', expected one that was trained with"):
        policy.set_prompt("insert it")
    without = ValueGuidedPolicy(Counting(), guide(), 3, 0.0)
    without.set_prompt("insert it")  # critics without words judge whatever the task is
