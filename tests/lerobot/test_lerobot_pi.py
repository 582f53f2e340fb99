"""π0 and π0.5 that LeRobot made and saved, as policies and as bases: LeRobot 0.6, `make test-lerobot-pi`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file

from policies.kinds.gaussian import NoiseSteeredPolicy
from policies.storage.checkpoint import load_policy
from policies.storage.lerobot_base import open_base
from policies.storage.loading import open_policy
from policies.wrappers.prompted import set_prompt
from robolearn.core import BadInput, Interface
from sim.registry import make_env

sys.path.insert(0, str(Path(__file__).parent))
from deploying import deployed
from learning import content, result
from saved_pi import save_pi, save_tokenizer, tiny
from saved_policies import theirs
from worded_looks import batch_of, looks

ONE: dict[str, Any] = {"cameras": ("front",), "picture": (48, 48)}  # as our worlds draw
KINDS = pytest.mark.parametrize("kind", ["pi0", "pi05"])


@pytest.fixture(scope="module")
def world() -> Interface:
    return make_env("lift", 1, threads=1).interface


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tokenizer(tmp_path_factory.mktemp("words") / "tiny")


@pytest.fixture(autouse=True)
def small(tokenizer: Path) -> Iterator[None]:
    """Tiny networks, and for LeRobot the tokenizer that there is in the place of the one that it would fetch."""
    real = transformers.AutoTokenizer.from_pretrained
    fetched = "google/paligemma-3b-pt-224"

    def found(name: str, *args: Any, **named: Any) -> Any:
        return real(str(tokenizer) if name == fetched else name, *args, **named)

    with tiny(), patch.object(transformers.AutoTokenizer, "from_pretrained", found):
        yield


def chosen_by_lerobot(
    folder: Path, kind: str, seen: dict[str, np.ndarray], noise: torch.Tensor, sentence: str = "lift the cube"
) -> np.ndarray:
    """(N, 8, Da) of LeRobot's own way from an observation and noise to actions."""
    policy, before, after = theirs(folder, kind)
    chunk = policy.predict_action_chunk(before(batch_of(seen, sentence)), noise=noise)
    return after(chunk.flatten(0, 1)).view(chunk.shape).numpy().clip(-1, 1)


def tensors(seen: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    return {key: torch.tensor(value) for key, value in seen.items()}


@KINDS
@pytest.mark.parametrize("settings", [{}, {"empty_cameras": 1, "cameras": ("wrist",)}, {"dtype": "bfloat16"}])
def test_noise_becomes_the_chunk_of_lerobot_s_own(
    tmp_path: Path, world: Interface, tokenizer: Path, kind: str, settings: dict[str, Any]
) -> None:
    folder = save_pi(tmp_path / "p", kind, world, tokenizer, **settings)
    base = open_base(str(folder), words=lambda: "lift the cube")
    seen = looks(world, 1, worlds=3, cameras=settings.get("cameras", ("front", "wrist")))[0]
    assert base.net.noise_shape == (8, world.action.size + 2)
    noise = torch.randn(3, *base.net.noise_shape)

    def mine(x0: torch.Tensor, **changed: np.ndarray) -> np.ndarray:
        normal = base.normalizer.observation(tensors(seen | changed))
        return base.normalizer.action_back(base.net.sample(base.net.encode(normal), x0)).numpy()

    found = mine(noise)
    np.testing.assert_allclose(found, chosen_by_lerobot(folder, kind, seen, noise), atol=1e-5)
    assert np.mean(np.abs(found) < 1) > 0.3, "not all of it is cut"
    # The state counts from call to call, in the words of one as in the network of the other; noise and words do.
    other = {"proprio": seen["proprio"][::-1].copy()}
    np.testing.assert_allclose(mine(noise, **other), chosen_by_lerobot(folder, kind, seen | other, noise), atol=1e-5)
    assert np.abs(mine(noise, **other) - found).max() > 1e-3
    assert np.abs(mine(torch.zeros_like(noise)) - found).max() > 1e-3
    assert np.abs(chosen_by_lerobot(folder, kind, seen, noise, "put it down") - found).max() > 1e-4


@KINDS
def test_as_a_policy_it_does_what_lerobot_does(tmp_path: Path, world: Interface, tokenizer: Path, kind: str) -> None:
    folder = save_pi(tmp_path / "p", kind, world, tokenizer)
    policy = open_policy(f"lerobot:{folder}")
    set_prompt(policy, "", "lift the cube")
    for call, look in enumerate(looks(world, 3)):
        state = np.random.SeedSequence((0, 0, call)).generate_state(1, np.uint64)
        drawn = torch.Generator().manual_seed(int(state[0]) >> 1)
        noise = torch.randn(8, world.action.size + 2, generator=drawn)[None]
        np.testing.assert_allclose(policy.act(look), chosen_by_lerobot(folder, kind, look, noise), atol=1e-5)
    found = policy.act_samples(look, 3)
    assert found.shape == (1, 3, 8, world.action.size) and np.ptp(found, axis=1).max() > 0.01


@KINDS
@pytest.mark.timeout(600)
def test_the_whole_way_as_a_base_leaves_its_weights(
    tmp_path: Path, world: Interface, tokenizer: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """DSRL, critics that choose among proposals, critics learned offline, and value guidance."""
    folder = save_pi(tmp_path / "p", kind, world, tokenizer, **ONE)
    before, name, data = content(folder), f"lerobot:{folder}", tmp_path / "data"
    shared = ["--policy", name, "--task", "lift", "--width", 16, "--batch", 16]
    online = ["--worlds", 2, "--env-steps", 160, "--utd", 0.05]
    result(capsys, "finetune", "--algo", "dsrl", *shared, *online, "--out", tmp_path / "steered")
    policy = load_policy(tmp_path / "steered")
    assert isinstance(policy, NoiseSteeredPolicy)
    stored = load_file(tmp_path / "steered/policy/model.safetensors")
    assert not any("gemma" in key or "expert" in key for key in stored)
    # x_0 = M tanh μ(s) of the actor as it is stored, through LeRobot's own sampler.
    seen = looks(world, 1, worlds=2, **ONE)[0]
    noise = 1.5 * torch.tanh(policy.actor.net(policy.encode(tensors(seen)))[:, : policy.latent]).detach().view(2, 8, -1)
    np.testing.assert_allclose(policy.act(seen), chosen_by_lerobot(folder, kind, seen, noise)[:, :5], atol=1e-5)
    result(capsys, "finetune", "--algo", "proposals", *shared, *online, "--out", tmp_path / "chosen",
           "--trust-after", 0, "--no-imitate-own")  # fmt: skip
    result(capsys, "collect", "--task", "lift", "--episodes", 2, "--quality", "expert", "--cameras", "front",
           "--image-size", 48, "--out", data)  # fmt: skip
    result(capsys, "finetune", "--algo", "iql", *shared, "--data", data, "--env-steps", 0, "--updates", 5, "--out",
           tmp_path / "critics")  # fmt: skip
    guided = result(capsys, "evaluate", "--policy", name, "--task", "lift", "--episodes", 1, "--guide",
                    tmp_path / "chosen", "--guide-samples", 4)  # fmt: skip
    assert guided["guide"]["samples"] == 4 and guided["guide"]["departures"] > 0.1
    assert content(folder) == before


@pytest.fixture
def small_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiny networks in the programs that a test starts, too."""
    places = [str(Path(__file__).parent / "tiny_pi"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(places))


@KINDS
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("small_everywhere")
def test_a_person_in_the_loop_beside_it(
    tmp_path: Path, world: Interface, tokenizer: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    """Actor and learner are processes of their own, and each is told the task in words."""
    folder, out = save_pi(tmp_path / "p", kind, world, tokenizer, **ONE), tmp_path / "run"
    before, sentence = content(folder), "raise the cube"
    words = ["hil", "run", "--algo", "dsrl", "--policy", f"lerobot:{folder}", "--task", "lift", "--out", out,
             "--operator", "scripted", "--width", 16, "--batch", 16, "--warmup", 20, "--utd", 0.2]  # fmt: skip
    found = result(capsys, *words, "--words", sentence, "--env-steps", 60)
    assert found["finished"] and found["updates"] > 0
    policy = load_policy(out)
    assert isinstance(policy, NoiseSteeredPolicy) and policy.proposer.config.words == sentence
    assert not any("gemma" in key or "expert" in key for key in load_file(out / "policy/model.safetensors"))
    more = result(capsys, *words, "--words", sentence, "--env-steps", found["env_steps"] + 60, "--resume")
    assert more["env_steps"] > found["env_steps"] and more["updates"] > found["updates"]
    assert content(folder) == before


@KINDS
@pytest.mark.timeout(900)
@pytest.mark.usefixtures("small_everywhere")
def test_it_is_deployed_behind_the_safety_filter(tmp_path: Path, world: Interface, tokenizer: Path, kind: str) -> None:
    deployed(save_pi(tmp_path / "p", kind, world, tokenizer, **ONE), tmp_path)


@KINDS
def test_weights_that_lerobot_would_not_take_are_refused(
    tmp_path: Path, world: Interface, tokenizer: Path, kind: str
) -> None:
    """LeRobot prints that and goes on with random ones."""
    folder = save_pi(tmp_path / "p", kind, world, tokenizer)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_action_dim": world.action.size + 3}))
    with pytest.raises(BadInput, match=r"one that LeRobot does not open \(its weights have"):
        open_policy(f"lerobot:{folder}")
    steps = json.loads((folder / "policy_preprocessor.json").read_text())
    for step in steps["steps"]:
        if step["registry_name"] == "tokenizer_processor":
            step["config"]["tokenizer_name"] = "maker/words"
    (folder / "policy_preprocessor.json").write_text(json.dumps(steps))
    with pytest.raises(BadInput, match="tokenizer_name: got maker/words, which is no folder"):
        open_policy(f"lerobot:{folder}")
