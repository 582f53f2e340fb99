"""Policies that LeRobot made and saved, through our evaluation and our bridge."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.storage.loading import open_policy
from robolearn.cli.main import main
from robolearn.core import BadInput, Interface
from sim.registry import make_env

sys.path.insert(0, str(Path(__file__).parent))
from deploying import deployed
from saved_policies import OBJECTS, STATE, looks, save, theirs


@pytest.fixture(scope="module")
def world() -> Interface:
    return make_env("lift", 1, threads=1).interface


def executed(policy: Any, seen: list[dict[str, np.ndarray]]) -> np.ndarray:
    """(steps, N, Da) what a bridge would do that asks every `execute_steps` steps and shows the others if need be."""
    actions: list[np.ndarray] = []
    for t, look in enumerate(seen):
        if t % policy.execute_steps == 0:
            actions += list(np.moveaxis(policy.act(look)[:, : policy.execute_steps], 1, 0))
        elif policy.observes_every_step:
            policy.observe(look)
    return np.stack(actions[: len(seen)])


@pytest.mark.parametrize("settings", [{}, {"n_action_steps": 1, "temporal_ensemble_coeff": 0.01}])
def test_act_does_what_select_action_does(tmp_path: Path, world: Interface, settings: dict[str, Any]) -> None:
    folder = save(tmp_path / "act", "act", world, **settings)
    ours, (policy, before, after) = open_policy(f"lerobot:{folder}"), theirs(folder, "act")
    assert ours.execute_steps == settings.get("n_action_steps", 5)
    seen = looks(world, 12)
    mine = executed(ours, seen)
    for t, look in enumerate(seen):
        batch = before({STATE: torch.tensor(look["proprio"]), OBJECTS: torch.tensor(look["objects"])})
        expected = after(policy.select_action(batch)).numpy().clip(-1, 1)
        np.testing.assert_allclose(mine[t], expected, atol=1e-5, err_msg=f"step {t}")


@pytest.mark.parametrize("observe", [1, 2])
def test_diffusion_does_what_select_action_does(tmp_path: Path, world: Interface, observe: int) -> None:
    # DDIM: all its noise is in where it starts.
    folder = save(tmp_path / "diffusion", "diffusion", world, n_obs_steps=observe, noise_scheduler_type="DDIM")
    ours, (policy, before, after) = open_policy(f"lerobot:{folder}"), theirs(folder, "diffusion")
    assert ours.execute_steps == 5 and ours.observes_every_step == (observe == 2)
    seen = looks(world, 12)
    ours.reset(3)
    mine = executed(ours, seen)
    for t, look in enumerate(seen):
        batch = before({STATE: torch.tensor(look["proprio"]), OBJECTS: torch.tensor(look["objects"])})
        call = np.random.SeedSequence((3, 0, t // 5)).generate_state(1, np.uint64)
        noise = torch.randn((1, 8, world.action.size), generator=torch.Generator().manual_seed(int(call[0]) >> 1))
        expected = after(policy.select_action(batch, noise=noise)).numpy().clip(-1, 1)
        np.testing.assert_allclose(mine[t], expected, atol=1e-5, err_msg=f"step {t}")


def test_worlds_whose_episodes_begin_at_different_times_do_not_mix(tmp_path: Path, world: Interface) -> None:
    folder = save(tmp_path / "diffusion", "diffusion", world, n_obs_steps=2)
    together, alone = open_policy(f"lerobot:{folder}"), open_policy(f"lerobot:{folder}")
    seen = looks(world, 9, worlds=3)
    together.reset(1)
    alone.reset(1)
    second = np.array([False, True, False])
    for t, look in enumerate(seen):
        if t % 2:
            together.observe(look)
            alone.observe({key: value[:1] for key, value in look.items()})
            continue
        if t == 4:  # an episode starts in world 1
            together.begin(second)
        first = together.act(look)
        mine = alone.act({key: value[:1] for key, value in look.items()})
        np.testing.assert_allclose(first[0], mine[0], atol=1e-4, err_msg=f"step {t}")
    # It has forgotten what it saw before: after any other past the same look gives the same there, and only there.
    results = []
    for past in seen[:2]:
        together.reset(1)
        together.act(past)
        together.begin(second)
        results.append(together.act(seen[5]))
    np.testing.assert_allclose(results[0][1], results[1][1], atol=1e-6)
    assert np.abs(results[0][0] - results[1][0]).max() > 1e-4


@pytest.mark.parametrize(("kind", "settings"), [("act", {}), ("diffusion", {"n_obs_steps": 2, "crop_shape": (28, 28)}),
                                                ("diffusion", {"n_obs_steps": 1, "crop_shape": None})])  # fmt: skip
def test_many_samples_of_one_world_are_those_of_as_many_worlds(
    tmp_path: Path, world: Interface, kind: str, settings: dict[str, Any]
) -> None:
    folder = save(tmp_path / kind, kind, world, camera=32, **settings)
    once, often = open_policy(f"lerobot:{folder}"), open_policy(f"lerobot:{folder}")
    pictures = np.random.default_rng(3).integers(0, 256, (4, 2, 32, 32, 3), dtype=np.uint8)
    for t, look in enumerate(looks(world, 4, worlds=2)):
        look["images.front"] = pictures[t]
        many = {key: np.repeat(value, 3, 0) for key, value in look.items()}
        if t == 1:
            once.observe(look)
            often.observe(many)
            continue
        found = once.act_samples(look, 3)
        assert found.shape[:2] == (2, 3) and (np.ptp(found, axis=1).max() > 0.01) == (kind == "diffusion")
        np.testing.assert_allclose(found.reshape(6, *found.shape[2:]), often.act(many), atol=1e-4, err_msg=f"step {t}")


@pytest.mark.parametrize(("kind", "settings"), [("act", {}), ("diffusion", {"n_obs_steps": 2}),
                                                ("diffusion", {"n_obs_steps": 1})])  # fmt: skip
def test_evaluate_runs_it(
    tmp_path: Path, world: Interface, kind: str, settings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save(tmp_path / kind, kind, world, **settings)
    results = []
    for _ in range(2):
        flags = ["--task", "lift", "--episodes", "3", "--worlds", "2", "--json"]
        assert main(["evaluate", "--policy", f"lerobot:{folder}", *flags]) == 0
        results.append(json.loads(capsys.readouterr().out.splitlines()[-1]))
    assert results[0]["success"]["episodes"] == 3 and results[0]["policy"] == f"lerobot:{folder}"
    assert results[0]["return"] == results[1]["return"] and results[0]["env_steps"] == results[1]["env_steps"]


@pytest.mark.parametrize("kind", ["act", "diffusion"])
def test_evaluate_shows_it_the_camera(
    tmp_path: Path, world: Interface, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save(tmp_path / kind, kind, world, camera=64, **({"crop_shape": None} if kind == "diffusion" else {}))
    flags = ["--task", "lift", "--episodes", "1", "--worlds", "1", "--json"]
    assert main(["evaluate", "--policy", f"lerobot:{folder}", *flags]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["success"]["episodes"] == 1


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kind", "settings"), [("act", {}), ("diffusion", {"n_obs_steps": 2})])
def test_deploy_runs_it_behind_the_safety_filter(
    tmp_path: Path, world: Interface, kind: str, settings: dict[str, Any]
) -> None:
    # An untrained policy that stays near its start: with large actions it may steer the arm into itself.
    folder = save(tmp_path / kind, kind, world, scale=0.1, **settings)
    deployed(folder, tmp_path)


def test_a_feature_of_another_shape_is_one_line(
    tmp_path: Path, world: Interface, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = save(tmp_path / "act", "act", world)
    assert main(["evaluate", "--policy", f"lerobot:{folder}", "--task", "pick_place", "--episodes", "1"]) == 2
    said = capsys.readouterr().err.strip()
    assert "observation 'objects'" in said and said.count("\n") == 0
    (folder / "robolearn.json").write_text(json.dumps({"control_hz": 30.0, "embodiment": "panda"}))
    assert main(["evaluate", "--policy", f"lerobot:{folder}", "--task", "lift", "--episodes", "1"]) == 2
    assert "control rate: got 20.0 Hz, expected 30.0 Hz" in capsys.readouterr().err
    scale = {"low": [-2.0] * 7, "high": [2.0] * 7}
    (folder / "robolearn.json").write_text(json.dumps({"extra": {"action_scale": scale}}))
    scaled = open_policy(f"lerobot:{folder}").act(looks(world, 1)[0])
    (folder / "robolearn.json").unlink()
    plain = open_policy(f"lerobot:{folder}").act(looks(world, 1)[0])
    inside = np.abs(plain) < 1
    np.testing.assert_allclose(scaled[inside], plain[inside] / 2, atol=1e-5)


def test_what_is_not_lerobots_own_is_not_run(tmp_path: Path, world: Interface) -> None:
    folder = save(tmp_path / "act", "act", world)
    file = folder / "policy_preprocessor.json"
    whole = json.loads(file.read_text())
    whole["steps"].append({"class": "os.system", "config": {}})
    file.write_text(json.dumps(whole))
    with pytest.raises(BadInput, match=r"got os\.system, expected one of LeRobot's registered steps"):
        open_policy(f"lerobot:{folder}")
    file.unlink()
    with pytest.raises(BadInput, match=r"no policy_preprocessor\.json"):
        open_policy(f"lerobot:{folder}")


def test_a_damaged_weights_file_is_one_line(tmp_path: Path, world: Interface) -> None:
    folder = save(tmp_path / "act", "act", world)
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(BadInput, match="one that LeRobot does not open") as caught:
        open_policy(f"lerobot:{folder}")
    assert "\n" not in str(caught.value)
