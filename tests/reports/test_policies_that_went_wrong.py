"""Policies that jumped where two chunks meet, that learned nothing, or that were not the ones that had been trained."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "hardware"))

from recording_rig import CONTRACT, Hand, Paper, RecordingRig
from safety_rig import BASE, HOME, Rig

from hardware.execution.chunk_buffer import ActionChunkBuffer, ChunkRefused
from hardware.recording.episodes import Phase
from hardware.safety import SafetyState
from hardware.teleop.chunk_player import ChunkPlayer
from hardware.teleop.device import EpisodeEvent
from hardware.teleop.supervised import Supervised
from policies.kinds.flow import FlowConfig
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import NetworkConfig
from policies.storage.checkpoint import load_policy, save_policy
from robolearn.core import BadInput, Interface
from robolearn.data import Dataset
from robolearn.rl.actors import DenoisingActor, NoiseConfig
from robolearn.rl.returns import gae, standardise
from sim.registry import make_env

Run = Callable[..., tuple[int, Any]]
DT = 0.05


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def given(buffer: ActionChunkBuffer, clock: Clock, actions: np.ndarray, age: float) -> None:
    """A chunk (T, Da) whose observation was taken `age` [s] ago."""
    buffer.accept(clock.now - age, clock.now, buffer.names, actions, DT * np.arange(len(actions)))


def test_lerobot_4223_a_slow_first_inference_is_no_jump_and_makes_the_next_no_later() -> None:
    """0.7 s to warm up, 0.1 s from then on; a chunk of 30 joint positions that go ahead at 0.4 rad/s."""
    clock, rig = Clock(), Rig().arm()
    buffer = ActionChunkBuffer(("j1",), DT, clock=clock)
    way = 0.4 * DT * np.arange(60)[:, None]
    given(buffer, clock, way[:30], age=0.7)
    executed = []
    for k in range(120):
        if k == 40:  # 0.2 s on
            given(buffer, clock, way[16:46], age=0.1)
        step = buffer.step()
        assert step is not None
        executed.append(step.action[0])
        rig.tick(rig.goal(HOME + step.action[0] * BASE))
        clock.now += rig.period
    moments = np.floor(0.7 / DT + np.arange(120) * rig.period / DT + 1e-6)
    np.testing.assert_allclose(executed, 0.4 * DT * moments, atol=1e-6)
    assert rig.filter.state is SafetyState.ARMED and rig.measured[0] == pytest.approx(executed[-1], abs=0.02)
    assert (rig.worst()[1:] <= 1 + 1e-6).all(), "from standstill the arm is led there within its limits"


@pytest.mark.parametrize("freeze", [0, 2, 10])
def test_lerobot_4454_where_two_chunks_meet_nothing_is_drawn_to_the_mean(freeze: int) -> None:
    """Both say 0.95, and the first has fewer actions left than are blended: none is filled up with 0."""
    clock = Clock()
    buffer = ActionChunkBuffer(("dx",), DT, freeze=freeze, clock=clock)
    executed = []
    given(buffer, clock, np.full((6, 1), 0.95), age=0.0)
    for k in range(20):
        if k == 4:
            given(buffer, clock, np.full((16, 1), 0.95), age=3 * DT)
        step = buffer.step()
        executed += [] if step is None else [step.action[0]]
        clock.now += DT
    assert len(executed) >= 15
    np.testing.assert_allclose(executed, 0.95)


def test_lerobot_4122_actions_in_another_order_of_joints_are_refused() -> None:
    clock = Clock()
    buffer = ActionChunkBuffer(CONTRACT.joints, DT, clock=clock)
    actions = np.zeros((4, len(CONTRACT.joints)))
    with pytest.raises(ChunkRefused, match="expected panda_joint1, panda_joint2"):
        buffer.accept(clock.now, clock.now, CONTRACT.joints[::-1], actions, DT * np.arange(4))
    assert not buffer.running


@pytest.mark.long
def test_lerobot_4700_displacements_have_the_statistics_of_displacements(run: Run, tmp_path: Path) -> None:
    frames, path = 30, tmp_path / "demos.hdf5"
    with h5py.File(path, "w") as file:
        file.create_group("data").attrs["env_args"] = '{"env_kwargs": {"robots": ["Panda"], "control_freq": 20}}'
        demo = file["data"].create_group("demo_0")
        t = np.arange(frames)
        demo["obs/joint_states"] = HOME + 0.2 * np.sin(0.1 * t)[:, None] * BASE
        width = np.where(t < 15, 0.04, 0.01)
        demo["obs/gripper_states"] = np.stack([width, -width], 1)
        demo["obs/agentview_rgb"] = np.full((frames, 64, 64, 3), 90, np.uint8)
        grip = np.where(t < 14, -1.0, 1.0)[:, None]
        demo["actions"] = np.hstack([np.tile([0.3, 0.0, 0.4, 3.1, 0.0, 0.0], (frames, 1)), grip])  # absolute poses
        demo["rewards"] = demo["dones"] = t == frames - 1
    words = ("--robot", "sim", "--map", "obs/agentview_rgb=images.front", "--out", tmp_path / "in")
    code, said = run("dataset", "import", path, *words)
    assert code == 0, said
    stats = json.loads((tmp_path / "in/meta/stats.json").read_text())["action"]
    actions = Dataset.open(tmp_path / "in").action
    assert np.abs(actions).max() <= 1.0
    np.testing.assert_allclose(stats["min"], actions.min(axis=0), atol=1e-6)
    np.testing.assert_allclose(stats["max"], actions.max(axis=0), atol=1e-6)
    np.testing.assert_allclose(stats["mean"], actions.mean(axis=0), atol=1e-6)


class Player:
    """A policy that moves the tool along −x."""

    stopped = ""

    def begin(self) -> None: ...

    def action(self, observation: Any) -> np.ndarray | None:
        return moved(-0.3)

    def later(self) -> None: ...

    asked = ChunkPlayer.asked

    def close(self) -> None: ...


def moved(dx: float) -> np.ndarray:
    names = CONTRACT.interface.action.names
    return np.array([dx if name == "dx" else 0.0 for name in names], np.float32)


def corrected(corrections: tuple[int, ...]) -> tuple[Paper, RecordingRig]:
    """An episode of a policy that a person corrects for so many steps each."""

    def wrap(hand: Hand) -> Supervised:
        hand.engaged = False
        return Supervised(hand, Player(), CONTRACT.interface, hand.clock)  # type: ignore[arg-type]

    rig = RecordingRig(wrap=wrap)
    rig.until(lambda: rig.phase is Phase.WAITING)
    rig.record()
    rig.steps(10)
    for steps in corrections:
        rig.hand.action, rig.hand.engaged = moved(0.2), True
        rig.steps(steps)
        rig.hand.engaged = False
        rig.steps(10)
    rig.press(EpisodeEvent.SUCCESS)
    rig.until(lambda: rig.phase is Phase.READY)
    rig.settled()
    return rig.paper, rig


@pytest.mark.long
def test_lerobot_4626_an_attempt_with_two_corrections_is_one_episode_with_its_outcome() -> None:
    paper, _ = corrected((10, 6))
    ((facts, rows),) = paper.episodes
    edges = np.flatnonzero(np.diff(np.array(paper.interventions, int)))
    assert facts["success"] and facts["terminated"] and len(edges) == 4
    assert len(rows) == pytest.approx(10 + 10 + 10 + 6 + 10, abs=4), "from its beginning to its verdict"


@pytest.mark.long
def test_lerobot_3985_a_correction_is_recorded_from_its_first_step_and_takes_over_without_a_jump() -> None:
    paper, rig = corrected((20,))  # one second
    assert sum(paper.interventions) == pytest.approx(20, abs=1)
    assert rig.monitor.summary()["violations"] == 0, rig.monitor.summary()


PENDULUM = "gym:gymnasium:Pendulum-v1"


def world(task: str = "lift") -> Interface:
    env = make_env(task, 1)
    try:
        return env.interface
    finally:
        env.close()


def untrained(interface: Interface, **network: Any) -> ChunkPolicy:
    torch.manual_seed(0)
    config = FlowConfig(network=NetworkConfig(width=16, depth=2, **network), horizon=4, execute=4)
    return ChunkPolicy(config.build(interface), Normalizer(interface), interface)


@pytest.mark.long
def test_serl_66_a_learner_whose_folder_is_taken_says_so_before_it_listens(run: Run, tmp_path: Path) -> None:
    policy = save_policy(untrained(world()), tmp_path / "base")
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "checkpoint").write_text("of a run before")
    code, said = run("hil", "learner", "--policy", policy, "--out", taken)
    assert code == 2 and "a folder that is not empty" in said and "another --out starts afresh" in said
    assert [path.name for path in taken.iterdir()] == ["checkpoint"]


@pytest.mark.long
def test_dppo_29_the_policy_that_is_evaluated_is_the_one_that_was_fine_tuned(run: Run, tmp_path: Path) -> None:
    task = ("--task", PENDULUM)
    base, out = save_policy(untrained(world(PENDULUM)), tmp_path / "base"), tmp_path / "rl"
    words = ("--worlds", 4, "--decisions", 4, "--minibatch", 8, "--env-steps", 640, "--critic-warmup", 1)
    code, said = run(
        "finetune", "--policy", base, *task, *words, "--sigma-max", 0.1, "--eval-episodes", 2, "--out", out
    )
    assert code == 0, said
    found = {}
    for path in (base, out):
        shown = ("--episodes", 2, "--seed", said["evaluation"]["seed"])
        found[path] = run("evaluate", "--policy", path, *task, *shown)[1]["return"]["mean"]
    assert found[out] == said["evaluation"]["return"]["mean"] != found[base]


def test_dppo_56_where_no_episode_is_rewarded_a_critic_s_error_moves_no_policy() -> None:
    generator = torch.Generator().manual_seed(0)
    nothing, over = torch.zeros(50, 8), torch.zeros(50, 8, dtype=torch.bool)
    value = 1e-4 * torch.randn(50, 8, generator=generator)  # has converged to the 0 that there is
    advantage, _ = gae(nothing, value, value.roll(-1, 0), over, over, gamma=0.99, lam=0.95)
    assert standardise(advantage).abs().max() < 0.1, "blown up to a deviation of 1 it would be a random walk"


def test_dppo_58_weights_of_another_network_than_the_config_s_are_refused(tmp_path: Path) -> None:
    folder = save_policy(untrained(world()), tmp_path / "policy")
    config = json.loads((folder / "config.json").read_text())
    config["settings"]["network"]["width"] = 32
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match=r"model.safetensors: .*got .*16.*, expected .*32"):
        load_policy(folder)


@pytest.mark.parametrize("noised", ["last", "all"])
def test_reinflow_5_the_first_ratio_is_one(noised: Any) -> None:
    """Chains of a rollout are weighed again in minibatches, in another order, before anything was learned."""
    interface = world()
    actor = DenoisingActor(untrained(interface).net, NoiseConfig(sigma_min=0.05, sigma_max=0.2, steps=noised))
    generator = torch.Generator().manual_seed(0)
    seen = {key: torch.randn(12, *spec.shape, generator=generator) for key, spec in interface.observation.items()}
    with torch.no_grad():
        chain = actor.sample(seen, generator)
        old = actor.evaluate(seen, chain).joint()
        for part in torch.randperm(12, generator=generator).split(5):
            new = actor.evaluate({key: value[part] for key, value in seen.items()}, chain[part]).joint()
            torch.testing.assert_close((new - old[part]).exp(), torch.ones_like(new), rtol=0, atol=1e-4)
