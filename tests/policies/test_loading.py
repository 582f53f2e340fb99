"""What `--policy` means, and what is refused before LeRobot is asked; with LeRobot itself: tests/lerobot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from policies.storage import lerobot_files
from policies.storage.checkpoint import load_policy
from policies.storage.loading import open_policy
from robolearn.core import BadInput


def write(folder: Path, **config: Any) -> Path:
    """A folder that looks like a policy of LeRobot's."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"type": "act", "input_features": {}, **config}))
    (folder / "model.safetensors").write_bytes(b"")
    steps = [{"registry_name": "device_processor", "config": {}}]
    for name in ("policy_preprocessor.json", "policy_postprocessor.json"):
        (folder / name).write_text(json.dumps({"name": "x", "steps": steps}))
    return folder


def refused(name: str) -> str:
    with pytest.raises(BadInput) as caught:
        open_policy(name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_without_lerobot_the_command_to_install_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "run/checkpoints/last/pretrained_model")
    monkeypatch.setattr(lerobot_files, "find_spec", lambda name: None)
    assert "[lerobot]'" in refused(f"lerobot:{folder}")
    assert str(folder) in refused(f"lerobot:{tmp_path / 'run'}"), "the folder of a training will do"


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    assert "no such folder" in refused("lerobot:lerobot/act_aloha")
    assert "no such folder" in refused(str(tmp_path / "run"))
    assert "an empty folder, expected config.json and model.safetensors" in refused(f"lerobot:{tmp_path}")
    said = refused(f"lerobot:{write(tmp_path / 'a', type='tdmpc')}")
    assert "got tdmpc; available: act, diffusion, smolvla, pi0, pi05" in said


def test_what_pi0_needs_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"lerobot"}
    monkeypatch.setattr(lerobot_files, "find_spec", lambda name: name if name in here else None)
    for kind in ("pi0", "pi05"):
        said = refused(f"lerobot:{write(tmp_path / kind, type=kind)}")
        assert (
            "got a LeRobot before 0.5" in said and "expected LeRobot 0.6, with Python 3.12" in said and "[pi]'" in said
        )
    here.add("lerobot.policies.pi_gemma")
    relative = write(tmp_path / "relative", type="pi0", use_relative_actions=True)
    assert "use_relative_actions: got true, expected false" in refused(f"lerobot:{relative}")


def test_steps_that_are_not_lerobots_own_are_not_imported(tmp_path: Path) -> None:
    folder = write(tmp_path / "policy")
    file = folder / "policy_postprocessor.json"
    file.write_text(json.dumps({"steps": [{"class": "os.system"}]}))
    assert "step: got os.system" in refused(f"lerobot:{folder}")
    file.write_text(json.dumps({"steps": [{"registry_name": "a", "state_file": "../b.safetensors"}]}))
    assert "a: got no ../b.safetensors" in refused(f"lerobot:{folder}")
    file.unlink()
    assert "no policy_postprocessor.json" in refused(f"lerobot:{folder}")


def test_a_policy_in_degrees_is_refused_unless_its_scale_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path / "policy")
    steps = [{"registry_name": "unnormalizer_processor", "state_file": "post.safetensors"}]
    (folder / "policy_postprocessor.json").write_text(json.dumps({"steps": steps}))
    low, high = torch.tensor([-116.0, 0.0]), torch.tensor([93.0, 100.0])
    save_file({"action.min": low, "action.max": high, "action.mean": low.clone()}, folder / "post.safetensors")
    monkeypatch.setattr(lerobot_files, "find_spec", lambda name: None)  # what follows is LeRobot's
    assert "actions: got -116 … 100, and robolearn.json has no scale" in refused(f"lerobot:{folder}")
    scale = {"low": low.tolist(), "high": high.tolist()}
    (folder / "robolearn.json").write_text(json.dumps({"extra": {"action_scale": scale}}))
    assert "no LeRobot in this environment" in refused(f"lerobot:{folder}")
    (folder / "robolearn.json").unlink()
    save_file({"action.min": low / 116, "action.max": high / 116}, folder / "post.safetensors")
    assert "no LeRobot in this environment" in refused(f"lerobot:{folder}")


def test_a_word_in_robolearn_json_that_means_nothing(tmp_path: Path) -> None:
    folder = write(tmp_path / "policy")
    (folder / "robolearn.json").write_text(json.dumps({"control_rate": 20}))
    assert "got control_rate; available: control_hz" in refused(f"lerobot:{folder}")


def test_a_policy_of_lerobots_without_its_prefix_is_explained(tmp_path: Path) -> None:
    folder = write(tmp_path / "policy")
    assert f"lerobot:{folder}" in refused(str(folder))
    with pytest.raises(BadInput, match="one of LeRobot's, expected one that robolearn trained"):
        load_policy(f"lerobot:{folder}")
