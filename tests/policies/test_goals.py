"""Policies that are told a goal: trained in hindsight, aimed by stored demonstrations, asked for by one mechanism."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies.settings import DiffusionConfig, FlowConfig, NetworkConfig
from policies.storage.checkpoint import save_policy
from policies.storage.loading import check_goals_given, needed_by, open_policy
from policies.storage.onnx_export import export_onnx
from policies.wrappers.goals import EpisodeGoals, StoredGoals, stored_goals
from policies.wrappers.prompted import PromptedPolicy, set_goals
from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.train.imitation import ImitationConfig, ImitationTrainer

PICTURE = ArraySpec((16, 16, 3), "uint8")
INTERFACE = Interface({"proprio": ArraySpec((2,)), "objects": ArraySpec((1,))}, ArraySpec((1,)), control_hz=20.0)
SEEING = Interface({"proprio": ArraySpec((2,)), "images.front": PICTURE}, ArraySpec((1,)), control_hz=20.0)
NET = NetworkConfig(width=64, depth=2, image_features=8)
FLOW = FlowConfig(initial_noise_std=0.0, network=NET)


def write(path: Path, interface: Interface = INTERFACE, episodes: int = 12, successes: int = 99) -> Path:
    """Episodes that go left or right, which shows at their end alone: in `objects`, or in the picture."""
    rng = np.random.default_rng(0)
    with EpisodeWriter(path, interface) as writer:
        for e in range(episodes):
            side = 1.0 if e % 2 else -1.0
            for step in range(10):
                there = side if step == 9 else 0.0
                seen: dict[str, Any] = {"proprio": rng.standard_normal(2)}
                if "objects" in interface.observation:
                    seen["objects"] = np.full(1, there)
                else:
                    seen["images.front"] = np.full((16, 16, 3), 128 + 100 * there, np.uint8)
                writer.add(seen, np.full(1, 0.8 * side))
            writer.end(success=e < successes, terminated=True, task="go")
    return path


def train(dataset: Dataset, policy: Any = FLOW, steps: int = 200, **settings: Any) -> ImitationTrainer:
    trainer = ImitationTrainer.of_dataset(ImitationConfig(policy, steps=steps, batch=64, **settings), dataset)
    for i in range(trainer.iterations):
        trainer.iterate(i)
    return trainer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("goals")


@pytest.fixture(scope="module")
def dataset(folder: Path) -> Path:
    return write(folder / "set")


@pytest.fixture(scope="module")
def aimed(folder: Path, dataset: Path) -> Path:
    train(Dataset.open(dataset).aiming(("objects",), ("proprio",))).export(folder / "policy")
    return folder / "policy"


def seen(n: int = 6, seed: int = 1) -> dict[str, np.ndarray]:
    return {"proprio": np.random.default_rng(seed).standard_normal((n, 2)).astype(np.float32)}


def sides(*values: float) -> EpisodeGoals:
    """World w's first goal is value w, its later ones the other side."""
    own = np.array(values, np.float32)
    return EpisodeGoals({"goal.objects": np.stack([own, -own], 1)[:, :, None]})


def opened(path: Path, goals: Any = None, **how: Any) -> PromptedPolicy:
    policy = open_policy(path, **how)
    assert isinstance(policy, PromptedPolicy)
    if goals is not None:
        policy.set_goals(goals)
    return policy


@pytest.mark.long
def test_it_goes_where_its_goal_is_and_the_next_episode_has_its_own(aimed: Path) -> None:
    policy = opened(aimed, sides(1, -1, 1, -1, 1, -1))
    assert set(policy.interface.observation) == {"proprio"} == set(needed_by(aimed).observation)
    policy.reset(0)
    first = policy.act(seen())[..., 0]
    assert (np.sign(first) == np.array([1, -1, 1, -1, 1, -1])[:, None]).all() and np.abs(first).min() > 0.5
    np.testing.assert_array_equal(np.sign(policy.act(seen(seed=2))[:, 0, 0]), np.sign(first[:, 0]))  # it stays
    policy.begin(np.array([True, False, False, True, False, False]))
    assert np.sign(policy.act(seen())[:, 0, 0]).tolist() == [-1, -1, 1, 1, 1, -1]
    policy.reset(0)
    np.testing.assert_allclose(policy.act(seen())[..., 0], first)


def test_the_checkpoint_says_what_it_wants(aimed: Path) -> None:
    stored = json.loads((aimed / "config.json").read_text())["interface"]["observation"]
    assert list(stored) == ["proprio", "goal.objects"] and stored["goal.objects"]["shape"] == [1]


def test_goals_without_a_policy_for_them_and_the_other_way_round(aimed: Path, folder: Path, dataset: Path) -> None:
    plain = folder / "plain"
    train(Dataset.open(dataset), steps=1).export(plain)

    def given(interface: Interface) -> StoredGoals:
        return stored_goals(dataset, interface)

    none, some = (
        "--goals: got some, expected none: it was trained without a goal",
        "--goals: missing; expected what gives goal.objects",
    )
    with pytest.raises(BadInput, match=none):
        set_goals(open_policy(plain), given)
    with pytest.raises(BadInput, match=none):
        check_goals_given(plain, True, what="policy")
    with pytest.raises(BadInput, match=some):
        set_goals(open_policy(aimed), None)
    with pytest.raises(BadInput, match=some):
        check_goals_given(aimed, False, what="policy")
    with pytest.raises(BadInput, match="goals: missing; expected some before the policy acts"):
        open_policy(aimed).act(seen())
    set_goals(open_policy(plain), None)
    check_goals_given(aimed, True, what="policy")


@pytest.mark.long
def test_stored_goals_are_the_ends_of_successful_demonstrations(folder: Path, dataset: Path, aimed: Path) -> None:
    interface = opened(aimed).policy.interface
    goals = stored_goals(dataset, interface)
    assert goals.ends["goal.objects"].tolist() == [[-1.0], [1.0]] * 6
    some = stored_goals(write(folder / "some", successes=3), interface)
    assert some.ends["goal.objects"].tolist() == [[-1.0], [1.0], [-1.0]]
    with pytest.raises(BadInput, match="got no successful demonstration"):
        stored_goals(write(folder / "none", successes=0), interface)
    with pytest.raises(BadInput, match=r"goal: got no 'objects', expected objects; available: proprio"):
        stored_goals(write(folder / "seeing", SEEING), interface)
    with pytest.raises(BadInput, match="--goal-choice: got best; available: nearest, drawn"):
        stored_goals(dataset, interface, "best")


def test_the_nearest_start_lends_its_end() -> None:
    starts = {"proprio": np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 100.0]])}
    goals = StoredGoals(starts, {"goal.objects": np.array([[1.0], [2.0], [3.0]])})
    now = {"proprio": np.array([[0.1, 90.0], [0.9, 60.0], [-0.2, 20.0]]), "other": np.zeros((3, 5))}
    # In deviations: the second component counts in units of 47, the first of 0.47.
    picked = goals.pick(0, np.arange(3), np.zeros(3, np.int64), now)
    assert picked["goal.objects"].tolist() == [[3.0], [2.0], [1.0]]
    with pytest.raises(BadInput, match="nearest start: got no common feature"):
        goals.pick(0, np.arange(1), np.zeros(1, np.int64), {"other": np.zeros((1, 5))})


def test_drawn_goals_depend_on_seed_world_and_episode_alone() -> None:
    goals = StoredGoals({}, {"goal.objects": np.arange(50.0)[:, None]}, "drawn")

    def drawn(seed: int, worlds: list[int], episode: int = 0) -> list[float]:
        pick = goals.pick(seed, np.array(worlds), np.full(len(worlds), episode), {})
        return pick["goal.objects"][:, 0].tolist()

    many = drawn(1, list(range(40)))
    assert drawn(1, [7, 3]) == [many[7], many[3]] and len(set(many)) > 15
    assert drawn(2, list(range(40))) != many and drawn(1, list(range(40)), 1) != many


@pytest.mark.long
def test_any_history_and_a_frozen_encoder_have_one_goal(folder: Path) -> None:
    """A picture is the goal: its encoder is the camera's, and features that are kept are those that are computed."""
    seeing = Dataset.open(write(folder / "pictures", SEEING)).aiming(("images",), ("proprio", "images"))
    config = FlowConfig(observe=2, initial_noise_std=0.0, network=NET)
    trainer = train(seeing, config, steps=150)
    assert list(trainer.net.encoder.cameras) == ["images/front"]
    assert dict(zip(trainer.net.encoder.features, trainer.net.encoder.tokens, strict=True)) == {
        "goal.images.front": (1, 8), "images.front": (2, 8), "proprio": (2, 2)}  # fmt: skip
    save_policy(trainer.policy(), folder / "seeing-policy")
    policy = opened(folder / "seeing-policy", lambda: None)
    ends = np.stack([np.full((1, 16, 16, 3), 128 + 100 * side, np.uint8) for side in (1, -1)])
    policy.set_goals(EpisodeGoals({"goal.images.front": ends}))
    policy.reset(0)
    now = {**seen(2), "images.front": np.full((2, 16, 16, 3), 128, np.uint8)}
    for _ in range(3):  # as the history fills
        assert np.sign(policy.act(now)[:, 0, 0]).tolist() == [1, -1]


def test_batches_in_pieces_have_the_goals_of_the_whole(dataset: Path) -> None:
    data = Dataset.open(dataset).aiming(("objects",), ("proprio",))
    whole, pieces = (
        train(data, steps=6, accumulate=count, hindsight="later", steps_per_iteration=2) for count in (1, 3)
    )
    for name, weight in whole.net.state_dict().items():
        np.testing.assert_allclose(weight.numpy(), pieces.net.state_dict()[name].numpy(), atol=2e-5)


def test_a_run_goes_on_after_a_kill_with_the_same_goals(dataset: Path) -> None:
    data = Dataset.open(dataset).aiming(("objects",), ("proprio",))
    config = ImitationConfig(FLOW, steps=8, batch=50, hindsight="later", steps_per_iteration=2)
    through, cut, later = (ImitationTrainer.of_dataset(config, data) for _ in range(3))
    for i in range(4):
        through.iterate(i)
    for i in range(2):
        cut.iterate(i)
    later.load_state(*cut.state())
    for i in range(2, 4):
        later.iterate(i)
    for name, weight in through.net.state_dict().items():
        np.testing.assert_array_equal(weight.numpy(), later.net.state_dict()[name].numpy())


@pytest.mark.long
@pytest.mark.parametrize("guidance", [1.0, 2.5])
@pytest.mark.parametrize("kind", [FLOW, DiffusionConfig(network=NET, steps=3)], ids=["flow", "diffusion"])
def test_onnx_acts_as_torch_does_with_goals_and_guidance(
    tmp_path: Path, dataset: Path, kind: Any, guidance: float
) -> None:
    trained = train(Dataset.open(dataset).aiming(("objects",), ("proprio",)), kind, steps=30)
    policy = trained.policy().sampling(guidance=guidance)
    save_policy(policy, tmp_path / "policy")
    (tmp_path / "policy.onnx").write_bytes(export_onnx(policy).content)
    goals = sides(1, -1, 1)
    found = []
    for how in (
        {"path": tmp_path / "policy"},
        {"path": tmp_path / "policy", "backend": "onnx"},
        {"path": tmp_path / "policy.onnx"},
    ):
        told = opened(**how, goals=goals)
        told.reset(3)
        found.append(told.act(seen(3)))
    np.testing.assert_allclose(found[1], found[0], atol=1e-4)
    np.testing.assert_allclose(found[2], found[0], atol=1e-4)
    assert np.abs(found[0][0] - found[0][1]).max() > 0.01
    with pytest.raises(BadInput, match=r"--guidance: got 3\.0, expected none: its sampler is as it was stored"):
        open_policy(tmp_path / "policy.onnx", sampling={"guidance": 3.0})


def test_the_sampler_is_chosen_when_it_is_opened(aimed: Path, folder: Path, dataset: Path) -> None:
    two = opened(aimed, sampling={"steps": 2, "guidance": 3.0}).policy
    assert (two.net.config.steps, two.net.config.guidance) == (2, 3.0)  # type: ignore[attr-defined]
    assert opened(aimed, sampling={"steps": None, "guidance": None}).policy.net.config == FLOW  # type: ignore[attr-defined]
    with pytest.raises(BadInput, match="K, Tp, Ta, To: got"):
        open_policy(aimed, sampling={"steps": 0})
    ten = train(Dataset.open(dataset), DiffusionConfig(network=NET, steps=10, eta=1.0), steps=1)
    ten.export(folder / "ddpm")
    three = open_policy(folder / "ddpm", sampling={"steps": 3})
    assert three.noise.shape == (4, 4, 1) and three.act({**seen(), "objects": np.zeros((6, 1))}).shape == (6, 4, 1)  # type: ignore[attr-defined]
    from policies.settings import RegressionConfig

    train(Dataset.open(dataset), RegressionConfig(network=NET), steps=1).export(folder / "regression")
    with pytest.raises(BadInput, match="--denoise-steps: got 3 for one of kind regression; available: flow, diffusion"):
        open_policy(folder / "regression", sampling={"steps": 3})
