"""A SmolVLA that LeRobot made and saved, taught by an operator: one sentence at both ends, its weights untouched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from policies.kinds.gaussian import NoiseSteeredPolicy
from policies.storage.checkpoint import load_policy
from robolearn.cli.main import main
from robolearn.core import Interface
from robolearn.data import Dataset
from robolearn.hil.processes import free_address
from robolearn.io.hashes import sha256
from sim.registry import make_env

sys.path.insert(0, str(Path(__file__).parent))
from learning import content, result
from saved_policies import theirs
from saved_smolvla import save_smolvla, save_vlm

ONE: dict[str, Any] = {"cameras": ("front",), "picture": (48, 48)}  # as our worlds draw
TOKEN = "of these tests alone"
RUN = "import sys; from robolearn.cli.main import main; sys.exit(main())"


@pytest.fixture(scope="module")
def world() -> Interface:
    return make_env("lift", 1, threads=1).interface


@pytest.fixture(scope="module")
def vlm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_vlm(tmp_path_factory.mktemp("vlm") / "tiny")


def digests(folder: Path) -> dict[str, str]:
    """Name → digest of each of its tensors, as LeRobot itself opens it."""
    return {name: sha256(value.float().numpy()) for name, value in theirs(folder, "smolvla")[0].state_dict().items()}


def test_a_person_in_the_loop_beside_it(
    tmp_path: Path, world: Interface, vlm: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Actor and learner are processes of their own, and each is told the task in words."""
    folder, out = save_smolvla(tmp_path / "p", world, vlm, **ONE), tmp_path / "run"
    before, tensors_before, sentence = content(folder), digests(folder), "raise the cube"
    words = ["hil", "run", "--algo", "dsrl", "--policy", f"lerobot:{folder}", "--task", "lift", "--out", out,
             "--operator", "scripted", "--width", 16, "--batch", 16, "--warmup", 20, "--utd", 0.2]  # fmt: skip
    found = result(capsys, *words, "--words", sentence, "--env-steps", 60)
    assert found["finished"] and found["updates"] > 0
    policy = load_policy(out)
    assert isinstance(policy, NoiseSteeredPolicy) and policy.proposer.config.words == sentence
    assert json.loads((out / "config.json").read_text())["words"] == sentence
    assert not any("vlm" in name or "expert" in name for name in load_file(out / "policy/model.safetensors"))
    # It goes on, exactly where it was.
    more = result(capsys, *words, "--words", sentence, "--env-steps", found["env_steps"] + 60, "--resume")
    assert more["env_steps"] > found["env_steps"] and more["updates"] > found["updates"]
    assert content(folder) == before and digests(folder) == tensors_before

    def refused(*more: object, code: int = 2) -> str:
        capsys.readouterr()
        assert main([str(word) for word in (*words, "--env-steps", 500, "--resume", *more)]) == code
        said = capsys.readouterr().err.strip().splitlines()
        return next(line for line in said if "error" in line)

    # By default it is the world's sentence, which is another one; so is another base.
    assert 'configuration \'words\': got "lift the cube", expected "raise the cube"' in refused()
    other = save_smolvla(tmp_path / "other", world, vlm, **ONE, num_steps=2)
    words[words.index(f"lerobot:{folder}")] = f"lerobot:{other}"
    assert "configuration 'sha256'" in refused("--words", sentence)


@pytest.mark.timeout(300)
def test_an_actor_of_another_task_is_refused_by_its_learner(
    tmp_path: Path, world: Interface, vlm: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder, out = save_smolvla(tmp_path / "p", world, vlm, **ONE), tmp_path / "run"
    other = save_smolvla(tmp_path / "other", world, vlm, **ONE, num_steps=2)
    data, program = tmp_path / "data", [sys.executable, "-c", RUN]
    assert main(["collect", "--task", "lift", "--episodes", "1", "--quality", "expert", "--cameras", "front",
                 "--image-size", "48", "--out", str(data)]) == 0  # fmt: skip
    sentence = Dataset.open(data).tasks[0]
    address = free_address()
    flags = ["hil", "learner", "--algo", "dsrl", "--width", "16", "--policy", f"lerobot:{folder}", "--out", str(out),
             "--demos", str(data), "--listen", address, "--token", TOKEN]  # fmt: skip
    learner = subprocess.Popen([*program, *flags], env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        for base, said, expected in (
            (folder, "put it down", f"another task in words: got put it down, expected {sentence}"),
            (other, sentence, "another policy folder: got "),
        ):
            capfd.readouterr()
            code = main(["hil", "actor", "--policy", f"lerobot:{base}", "--task", "lift", "--out", str(tmp_path / "a"),
                         "--learner", address, "--token", TOKEN, "--words", said])  # fmt: skip
            errors = [line for line in capfd.readouterr().err.splitlines() if "error" in line]
            assert code == 2 and len(errors) == 1 and expected in errors[0]
    finally:
        learner.terminate()
        learner.wait(60)
    assert json.loads((out / "config.json").read_text())["words"] == sentence
