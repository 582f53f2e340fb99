"""Backends of policies: the same decisions by a compiler and by onnxruntime, in all kinds of policy; refusals."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from policies.kinds.gaussian import GaussianConfig, GaussianPolicy, NoiseSteeredConfig, NoiseSteeredPolicy
from policies.normalize import Normalizer
from policies.policy import ChunkPolicy, TorchPolicy
from policies.settings import (
    ActConfig,
    DiffusionConfig,
    FlowConfig,
    NetworkConfig,
    PolicyConfig,
    RegressionConfig,
)
from policies.storage import onnx_export
from policies.storage.backends import trace_if_same, use_backend
from policies.storage.checkpoint import save_policy
from policies.storage.loading import check_policy, needed_by, open_policy
from policies.storage.onnx_export import OnnxExport, export_onnx
from policies.storage.onnx_policy import load_onnx_policy
from policies.wrappers.best_of_n import BestOfNConfig, BestOfNPolicy
from robolearn.core import ArraySpec, BadInput, Interface, NonFinite, Policy

pytestmark = pytest.mark.long

SMALL = NetworkConfig(width=16, depth=2, image_features=8)
ATTENDING = NetworkConfig(kind="transformer", width=16, depth=1, heads=2, image_features=8)
UNET = NetworkConfig(kind="unet1d", channels=(8, 16), image_features=8)
STATE = Interface({"proprio": ArraySpec((5,)), "objects": ArraySpec((3,))}, ArraySpec((4,)), control_hz=20.0)
SEEING = Interface(
    {"images.front": ArraySpec((16, 24, 3), "uint8"), "proprio": ArraySpec((5,))}, ArraySpec((4,)), control_hz=20.0
)


def normalizer(interface: Interface) -> Normalizer:
    """Statistics far from the identity: what leaves one out must be noticed."""
    vectors = {k: s for k, s in interface.observation.items() if s.dtype != "uint8"}
    statistics = {k: {"mean": np.arange(s.size) + 2.0, "std": np.full(s.size, 0.5)} for k, s in vectors.items()}
    size = interface.action.size
    statistics["action"] = {"min": np.full(size, -0.3), "max": np.linspace(0.1, 0.9, size)}
    return Normalizer.from_statistics(interface, statistics)


def flow(interface: Interface = STATE, config: PolicyConfig | None = None) -> ChunkPolicy:
    torch.manual_seed(0)
    net = (config or FlowConfig(network=SMALL, initial_noise_std=0.7)).build(interface)
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(1.5)  # untrained outputs are near zero
    return ChunkPolicy(net, normalizer(interface), interface).eval()


def chosen() -> TorchPolicy:
    policy = BestOfNPolicy(flow(), BestOfNConfig(width=16))
    policy.trusted.fill_(1.0)
    return policy.eval()


KINDS = {
    "flow": flow,
    "unet": lambda: flow(STATE, FlowConfig(steps=2, network=UNET, horizon=5)),
    "history": lambda: flow(SEEING, FlowConfig("shortcut", steps=3, network=SMALL, observe=2, execute=1)),
    "transformer": lambda: flow(SEEING, FlowConfig(steps=2, network=ATTENDING, horizon=6, observe=2)),
    "act": lambda: flow(SEEING, ActConfig(network=ATTENDING, horizon=6, execute=2, latent=4)),
    "regression": lambda: flow(STATE, RegressionConfig(network=SMALL)),
    "ddpm": lambda: flow(STATE, DiffusionConfig(steps=3, eta=1.0, network=SMALL)),
    "chosen": chosen,
    "steered": lambda: NoiseSteeredPolicy(flow(), NoiseSteeredConfig(width=16)).eval(),
    "gaussian": lambda: GaussianPolicy(normalizer(STATE), STATE, GaussianConfig(width=16)).eval(),
}


def see(interface: Interface, worlds: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        key: rng.integers(0, 256, (worlds, *spec.shape), np.uint8)
        if spec.dtype == "uint8"
        else rng.normal(2.0, 1.0, (worlds, *spec.shape)).astype(np.float32)
        for key, spec in interface.observation.items()
    }


def episode(policy: Policy, worlds: int = 2) -> np.ndarray:
    """Decisions of two steps and of a new episode in world 0, from one seed."""
    policy.reset(5)
    chunks = [policy.act(see(policy.interface, worlds, seed)) for seed in (1, 2)]
    begins = np.zeros(worlds, bool)
    begins[0] = True
    policy.begin(begins)
    return np.stack([*chunks, policy.act(see(policy.interface, worlds, 3))])


@pytest.fixture(scope="module")
def exported() -> OnnxExport:
    """`flow` of what is seen."""
    return export_onnx(flow(SEEING))


@pytest.mark.parametrize("kind", KINDS)
def test_an_onnx_file_acts_as_the_policy(tmp_path: Path, kind: str) -> None:
    policy = KINDS[kind]()
    wanted = {worlds: episode(policy, worlds) for worlds in (1, 5)}
    assert np.abs(np.diff(wanted[5], axis=1)).max() > 0.01  # worlds differ, so that mixing them up is seen
    made = export_onnx(policy)
    assert made.max_difference < 1e-4
    (tmp_path / "policy.onnx").write_bytes(made.content)
    loaded = open_policy(tmp_path / "policy.onnx")
    assert isinstance(loaded, Policy) and loaded.execute_steps == policy.execute_steps
    for worlds, chunks in wanted.items():
        np.testing.assert_allclose(episode(loaded, worlds), chunks, atol=1e-4)


def test_the_file_stands_by_itself(tmp_path: Path, exported: OnnxExport) -> None:
    """Any ONNX runtime: pictures as uint8 and noise in, actions out; no path of this machine, nothing but protobuf."""
    policy = flow(SEEING)
    file = tmp_path / "policy.onnx"
    file.write_bytes(exported.content)
    onnx.checker.check_model(onnx.load(file), full_check=True)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    inputs = {value.name: (value.type, value.shape[1:]) for value in session.get_inputs()}
    assert inputs == {
        "images.front": ("tensor(uint8)", [16, 24, 3]),
        "proprio": ("tensor(float)", [5]),
        "noise": ("tensor(float)", [4, 4]),
    }
    observation, noise = see(SEEING, 3), np.random.default_rng(1).standard_normal((3, 4, 4), np.float32)
    (actions,) = session.run(["actions"], {**observation, "noise": noise})
    seen = policy.normalizer.observation({key: torch.from_numpy(value) for key, value in observation.items()})
    with torch.inference_mode():
        x1 = policy.net.sample(policy.net.encode(seen), 0.7 * torch.from_numpy(noise))
    np.testing.assert_allclose(actions, policy.normalizer.action_back(x1).numpy(), atol=1e-4)
    content = file.read_bytes()
    assert b"/policies/" not in content and str(Path.home()).encode() not in content and b"pickle" not in content


def test_what_a_file_is_for_is_read_and_checked(tmp_path: Path, exported: OnnxExport) -> None:
    file = tmp_path / "policy.onnx"
    file.write_bytes(exported.content)
    assert needed_by(file) == SEEING
    with pytest.raises(BadInput, match=r"images\.front"):
        check_policy(file, STATE, what="test")


def test_a_compiled_policy_acts_as_the_policy() -> None:
    policy = flow(STATE, FlowConfig(steps=2, network=SMALL))
    wanted = episode(policy)
    assert use_backend(policy, "compile") is policy
    np.testing.assert_allclose(episode(policy), wanted, atol=1e-5)
    assert not np.array_equal(wanted, np.zeros_like(wanted))


@pytest.mark.parametrize("kind", KINDS)
def test_a_recording_acts_as_the_policy_to_the_bit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = KINDS[kind]()
    wanted = {worlds: episode(policy, worlds) for worlds in (1, 5)}
    use_backend(policy, "trace")
    for worlds, chunks in wanted.items():
        np.testing.assert_array_equal(episode(policy, worlds), chunks)
    monkeypatch.setattr(type(policy), "decide", None)  # nothing of it is needed any more
    np.testing.assert_array_equal(episode(policy, 1), wanted[1])


class Branching(GaussianPolicy):
    """Python reads an observed value, and acts by it."""

    def decide(self, observation: Mapping[str, torch.Tensor], noise: torch.Tensor) -> torch.Tensor:
        return super().decide(observation, noise) * (1.0 if observation["proprio"][0, 0] > 2.0 else -1.0)


def test_what_a_recording_would_change_is_not_recorded(caplog: pytest.LogCaptureFixture) -> None:
    policy = Branching(normalizer(STATE), STATE, GaussianConfig(width=16)).eval()
    with pytest.raises(BadInput, match=r"--backend trace: largest difference from torch's actions: got 0\..*none"):
        use_backend(policy, "trace")
    with caplog.at_level("INFO"):
        assert trace_if_same(policy) is policy and policy.backend is None
    assert "operation by operation" in caplog.text
    assert all(weight.requires_grad for weight in policy.parameters())


class Unrecorded(GaussianPolicy):
    """It computes nothing while it is recorded."""

    def decide(self, observation: Mapping[str, torch.Tensor], noise: torch.Tensor) -> torch.Tensor:
        if torch.jit.is_tracing():
            raise RuntimeError("not while recording")
        return super().decide(observation, noise)


def test_what_cannot_be_recorded_acts_without() -> None:
    policy = Unrecorded(normalizer(STATE), STATE, GaussianConfig(width=16)).eval()
    with pytest.raises(BadInput, match="kind gaussian: got not while recording, expected operations that torch can"):
        use_backend(policy, "trace")
    assert trace_if_same(policy).backend is None and all(weight.requires_grad for weight in policy.parameters())


def test_on_an_arm_decisions_are_recorded(tmp_path: Path) -> None:
    folder = save_policy(flow(), tmp_path / "policy")
    there, beside = open_policy(folder, on_arm=True), open_policy(folder)
    assert there.backend is not None and beside.backend is None
    np.testing.assert_array_equal(episode(there, 1), episode(beside, 1))


@pytest.mark.parametrize(("backend", "precision", "least", "most"), [
    ("torch", "bfloat16", 1e-5, 0.05), ("onnx", "int8", 1e-5, 0.05), ("onnx", "float32", 0.0, 1e-4),
])  # fmt: skip
def test_a_backend_with_less_precision_is_near(
    tmp_path: Path, backend: str, precision: str, least: float, most: float
) -> None:
    policy = flow()
    wanted = episode(policy)
    folder = save_policy(policy, tmp_path / "policy")
    found = episode(open_policy(folder, "cpu", backend, precision))
    assert found.dtype == np.float32
    assert least <= np.abs(found - wanted).max() <= most  # else it was not in that precision


def test_a_backend_reads_the_weights_that_act(tmp_path: Path) -> None:
    """A backend is made of the policy that is loaded, not of the one that was there before."""
    folder = save_policy(flow(), tmp_path / "policy")
    before = episode(open_policy(folder, backend="onnx"))
    changed = flow()
    with torch.no_grad():
        next(changed.net.field.parameters()).mul_(2.0)
    save_policy(changed, folder)
    after = episode(open_policy(folder, backend="onnx"))
    assert np.abs(after - before).max() > 1e-3
    np.testing.assert_allclose(after, episode(changed), atol=1e-4)


def test_actions_that_are_not_finite_are_noticed_whoever_computes_them(tmp_path: Path, exported: OnnxExport) -> None:
    (tmp_path / "policy.onnx").write_bytes(exported.content)
    policy = load_onnx_policy(tmp_path / "policy.onnx")
    observation = see(SEEING, 2)
    observation["proprio"][1, 0] = np.nan
    with pytest.raises(NonFinite, match=r"worlds \[1\]"):
        policy.act(observation)


def test_a_graph_that_differs_from_torch_is_refused(exported: OnnxExport, monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.load_model_from_string(exported.content)
    del model.metadata_props[:]
    monkeypatch.setattr(onnx_export, "_model", lambda _: model)
    assert export_onnx(flow(SEEING)).max_difference == exported.max_difference
    other = flow(SEEING)
    with torch.no_grad():
        next(other.net.field.parameters()).mul_(1.01)  # a graph that is a percent off in one layer
    with pytest.raises(BadInput, match=r"largest difference from torch's actions: got .*expected at most 0\.0001"):
        export_onnx(other)


@pytest.mark.parametrize(("backend", "precision", "message"), [
    ("tensorrt", "float32", "--backend: got tensorrt; available: torch, trace, compile, onnx"),
    ("onnx", "bfloat16", "--precision with --backend onnx: got bfloat16; available: float32, int8"),
    ("torch", "int8", "--precision with --backend torch: got int8; available: float32, bfloat16"),
])  # fmt: skip
def test_a_backend_that_there_is_not(tmp_path: Path, backend: str, precision: str, message: str) -> None:
    folder = save_policy(flow(), tmp_path / "policy")
    with pytest.raises(BadInput) as error:
        open_policy(folder, "cpu", backend, precision)
    assert message in str(error.value)
    with pytest.raises(BadInput, match="lerobot:nothing: --backend, --precision"):
        open_policy("lerobot:nothing", backend="onnx")


def test_without_the_extra_one_line_says_what_to_install(
    tmp_path: Path, exported: OnnxExport, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_policy(flow(), tmp_path / "policy")
    for module in ("onnxruntime", "onnxscript"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(
                BadInput, match=rf"got no {module}.*expected it installed\..* -m pip install .*\[onnx\]'"
            ):
                open_policy(folder, backend="onnx")
    (tmp_path / "policy.onnx").write_bytes(exported.content)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(BadInput, match="got no onnxruntime"):
        load_onnx_policy(tmp_path / "policy.onnx")


def test_files_that_are_no_policies(tmp_path: Path, exported: OnnxExport) -> None:
    file = tmp_path / "policy.onnx"
    with pytest.raises(BadInput, match="no such file"):
        open_policy(file)
    file.write_bytes(b"something else")
    with pytest.raises(BadInput, match="one that onnxruntime does not run"):
        open_policy(file)
    model = onnx.load_model_from_string(exported.content)
    (entry,) = model.metadata_props
    told = json.loads(entry.value)
    for value, message in (
        ("{", "unreadable metadata"),
        (json.dumps(told | {"version": 99}), "version"),
        (json.dumps({key: told[key] for key in told if key != "interface"}), "interface"),
    ):
        entry.value = value
        file.write_bytes(model.SerializeToString())
        with pytest.raises(BadInput, match=message):
            open_policy(file)
    del model.metadata_props[:]
    file.write_bytes(model.SerializeToString())
    with pytest.raises(BadInput, match=r"without 'robolearn.policy'.*expected one of `robolearn export`"):
        open_policy(file)
