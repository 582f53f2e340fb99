"""Distillation to cameras: who acts, what is stored, what is learned, and a run that goes on where it was stopped."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.normalize import Normalizer
from policies.policy import ChunkPolicy
from policies.settings import FlowConfig, NetworkConfig
from robolearn.core import ArraySpec, BadInput, Interface
from robolearn.eval import evaluate
from robolearn.rollout.agents import LABEL, DaggerAgent
from robolearn.train.distill import Distiller, LabelledWindows
from robolearn.train.settings import DistillConfig, ImitationConfig

OBSERVATION = {
    "proprio": ArraySpec((1,)),
    "objects": ArraySpec((1,)),
    "images.front": ArraySpec((16, 16, 3), "uint8"),
}
INTERFACE = Interface(OBSERVATION, ArraySpec((1,)), control_hz=10.0)
NET = NetworkConfig(width=32, depth=2, image_features=8)
REACH, TOLERANCE, LIMIT = 0.3, 0.15, 6
SIGHT = ("proprio", "images.front")


class Line:
    """A point on a line that must come to 0. Where it is stands in `objects`, and as a bright column in the picture."""

    reports_success, continuing, steps_together, max_episode_steps = True, False, False, LIMIT
    task, prompt, interface = "line", "come to 0", INTERFACE

    def __init__(self, num_envs: int, shuffled: bool = False) -> None:
        self.num_envs, self.shuffled = num_envs, shuffled
        self.position, self.elapsed = np.zeros(num_envs), np.zeros(num_envs, int)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict, dict]:
        self.rng = np.random.default_rng(seed)
        self._begin(np.ones(self.num_envs, bool))
        return self._see(), {"success": np.zeros(self.num_envs, bool)}

    def _begin(self, which: np.ndarray) -> None:
        self.position[which] = (self.rng.choice([-1, 1], which.sum())) * self.rng.uniform(0.4, 0.95, which.sum())
        self.elapsed[which] = 0

    def _see(self) -> dict[str, np.ndarray]:
        pictures = np.zeros((self.num_envs, 16, 16, 3), np.uint8)
        pictures[np.arange(self.num_envs), :, np.clip((self.position + 1) * 8, 0, 15).astype(int)] = 255
        if self.shuffled:
            pictures = pictures[self.rng.permutation(self.num_envs)]
        return {
            "proprio": np.zeros((self.num_envs, 1), np.float32),
            "objects": self.position[:, None].astype(np.float32),
            "images.front": pictures,
        }

    def step(self, actions: np.ndarray, active: np.ndarray | None = None) -> tuple:
        going = np.ones(self.num_envs, bool) if active is None else active
        self.position[going] += REACH * np.clip(actions[going, 0], -1, 1)
        self.elapsed[going] += 1
        success = going & (np.abs(self.position) < TOLERANCE)
        truncated = going & ~success & (self.elapsed >= LIMIT)
        final = self._see()
        self._begin(success | truncated)
        infos = {"success": success, "final_obs": final, "_final_obs": success | truncated}
        return self._see(), success.astype(np.float32), success.copy(), truncated, infos

    def snapshot(self) -> None:
        return None

    def close(self, **kwargs: Any) -> None:
        pass


def knowing() -> ChunkPolicy:
    """A teacher that reads `objects`: it goes straight to 0."""
    torch.manual_seed(0)
    config = FlowConfig(horizon=2, execute=1, network=NET)
    teacher = ChunkPolicy(config.build(INTERFACE), Normalizer(INTERFACE), INTERFACE)
    teacher.act = lambda observation: np.repeat(  # type: ignore[method-assign]
        np.clip(-observation["objects"][:, None] / REACH, -1, 1), 2, axis=1
    ).astype(np.float32)
    return teacher


def settings(steps: int = 300, **more: Any) -> DistillConfig:
    student = FlowConfig(horizon=1, execute=1, initial_noise_std=0.0, network=NET)
    imitation = ImitationConfig(student, steps=steps, steps_per_iteration=25, batch=32, warmup=5, lr=3e-3, ema=0.98)
    return DistillConfig(imitation, **{"rounds": 3, "decisions": 12, **more})


def distilled(folder: Path, config: DistillConfig, env: Line | None = None) -> Distiller:
    made = Distiller(config, env or Line(8), knowing(), SIGHT, folder)
    for i in range(made.iterations):
        made.iterate(i)
    return made


@pytest.mark.long
def test_the_student_reaches_by_sight_what_the_teacher_knows(tmp_path: Path) -> None:
    student = distilled(tmp_path, settings()).policy()
    assert student.interface.privileged == () and set(student.interface.observation) == set(SIGHT)
    assert evaluate(Line(50), student, 100, 5).success.rate >= 0.9
    untaught = Distiller(settings(), Line(8), knowing(), SIGHT, tmp_path / "untaught").policy()
    assert evaluate(Line(50), untaught, 100, 5).success.rate <= 0.4
    assert evaluate(Line(50, shuffled=True), student, 100, 5).success.rate <= 0.6  # it looks at the picture


def test_the_teacher_labels_what_it_sees_where_the_student_went() -> None:
    """β = 0: the student's actions are executed, and the labels are still the teacher's, of the same moment."""

    class Stubborn:
        interface, execute_steps, observes_every_step = INTERFACE, 1, False

        def begin(self, worlds: np.ndarray) -> None: ...

        def act(self, observation: dict[str, np.ndarray]) -> np.ndarray:
            return np.full((len(observation["objects"]), 1, 1), 0.5, np.float32)

    seen = Line(4).reset(seed=1)[0]
    for beta, executed in ((0.0, 0.5), (1.0, None)):
        agent = DaggerAgent(knowing(), Stubborn(), SIGHT, beta, 1, seed=0)  # type: ignore[arg-type]
        decision = agent.decide(seen, np.ones(4, bool))
        label = np.clip(-seen["objects"] / REACH, -1, 1)
        np.testing.assert_allclose(decision.aux[LABEL][:, 0], label, rtol=1e-6)
        np.testing.assert_allclose(decision.chunk[:, 0], label if executed is None else np.full((4, 1), executed))
        assert set(decision.aux) == {LABEL, *SIGHT}
    mixed = DaggerAgent(knowing(), Stubborn(), SIGHT, 0.3, 1, seed=0)  # type: ignore[arg-type]
    own = [(mixed.decide(seen, np.ones(4, bool)).chunk == 0.5).mean() for _ in range(200)]
    assert 0.65 < np.mean(own) < 0.75


@pytest.mark.long
def test_beta_falls_from_round_to_round_and_each_round_adds_its_frames(tmp_path: Path) -> None:
    made = distilled(tmp_path, settings(steps=75))
    assert [made.outcomes[r]["beta"] for r in range(3)] == [1.0, 0.5, 0.25]
    assert len(made.windows) == 3 * 12 * 8
    assert sorted(file.name for file in tmp_path.iterdir()) == [f"round-00{r}.safetensors" for r in range(3)]
    assert made.outcomes[0]["success"] == 1.0


def test_new_frames_are_learned_from_at_once(tmp_path: Path) -> None:
    """Also where a round has fewer gradient steps than an epoch."""
    config = settings(rounds=2)
    config = replace(config, imitation=replace(config.imitation, steps=2, steps_per_iteration=1))
    made = distilled(tmp_path, config)
    assert len(made.windows) == len(made.trainer._order) == 2 * 12 * 8


@pytest.mark.long
def test_a_run_that_was_stopped_ends_with_the_same_bits(tmp_path: Path) -> None:
    config = settings(steps=150)
    whole = distilled(tmp_path / "whole", config)
    begun = Distiller(config, Line(8), knowing(), SIGHT, tmp_path / "part")
    for i in range(3):
        begun.iterate(i)
    tensors, meta = copy.deepcopy(begun.state())
    begun.iterate(3)  # lost: a round that was run after the state was saved
    again = Distiller(config, Line(8), knowing(), SIGHT, tmp_path / "part")
    again.load_state(tensors, meta)
    for i in range(3, again.iterations):
        again.iterate(i)
    assert len(again.windows) == len(whole.windows)
    for key, value in whole.policy().state_dict().items():
        assert torch.equal(value, again.policy().state_dict()[key]), key


def test_a_damaged_round_is_named(tmp_path: Path) -> None:
    Distiller(settings(), Line(8), knowing(), SIGHT, tmp_path)
    file = tmp_path / "round-000.safetensors"
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(BadInput, match=r"rollouts .*round-000.safetensors: got .*expected a round of this run"):
        Distiller(settings(), Line(8), knowing(), SIGHT, tmp_path)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"observation of task line: got no 'images.wrist'"):
        Distiller(settings(), Line(8), knowing(), ("images.wrist",), tmp_path)
    long = settings()
    long = DistillConfig(ImitationConfig(FlowConfig(horizon=4, execute=4, network=NET)), rounds=1)
    with pytest.raises(BadInput, match=r"--horizon: got 4, expected at most the teacher's 2"):
        Distiller(long, Line(8), knowing(), SIGHT, tmp_path)
    with pytest.raises(BadInput, match=r"--rounds: got 99, expected at most 12: --steps"):
        settings(rounds=99)
    with pytest.raises(BadInput, match=r"labelled decisions: got 4, expected at most 3"):
        LabelledWindows(INTERFACE, 1, 3).add(Line(4).reset(seed=0)[0], np.zeros((4, 1, 1), np.float32))
