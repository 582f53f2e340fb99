"""The policy that ``--policy`` names: a folder of ours, an ONNX file, ``lerobot:FOLDER`` for one of LeRobot's, or
``episode:DATA#N`` for a recorded episode, replayed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from policies.settings import LeRobotConfig, denoising_kinds
from policies.storage.backends import check_backend, trace_if_same, use_backend
from policies.storage.config_file import CONFIG, EPISODE, FOREIGN, LEROBOT, interface_of, policy_folder, read_config
from policies.storage.onnx_policy import is_onnx, load_onnx_policy, onnx_interface
from policies.wrappers.prompted import (
    WORDS,
    PromptedPolicy,
    check_goals_match,
    check_prompt,
    is_prompted,
    takes_instructions,
    wants_words,
    without_instructions,
)
from robolearn.core import BadInput, Interface, Policy, bind_policy, check_compatible
from robolearn.io.hashes import sha256, sha256_weights

if TYPE_CHECKING:
    import torch

    from policies.policy import ChunkPolicy, TorchPolicy

SAMPLER_FLAGS = {"steps": "--denoise-steps", "guidance": "--guidance"}


def open_policy(
    name: str | os.PathLike[str],
    device: str = "cpu",
    backend: str = "torch",
    precision: str = "float32",
    sampling: Mapping[str, Any] | None = None,
    *,
    on_arm: bool = False,
) -> Policy:
    """The policy that `name` says, ready to act; with words or goals trained in, it needs them first.

    Args:
      name: a run folder, a checkpoint folder, a file of `robolearn export`, ``episode:DATA#N``, or ``lerobot:`` and a
        folder that LeRobot's ``save_pretrained`` wrote (or the run folder of a training with LeRobot).
      device: where its tensors live, as torch names it.
      backend: that computes its decisions, with a `precision`; see `policies.storage.backends`. A file is computed by
        onnxruntime whatever it says.
      sampling: settings of the sampler in the place of those that the policy was stored with, where they are not None;
        see `policies.policy.ChunkPolicy.sampling`.
      on_arm: it makes one chunk for one arm, soon after each observation: torch's operations are recorded where that
        changes nothing.

    Raises:
      BadInput: there is none, it is damaged, LeRobot or onnxruntime is not installed, or no such backend.
    """
    check_backend(backend, precision)
    text = os.fspath(name)
    changed = {key: value for key, value in (sampling or {}).items() if value is not None}
    if changed and (is_onnx(text) or text.startswith(FOREIGN)):
        flag, value = next((SAMPLER_FLAGS[key], value) for key, value in changed.items())
        raise BadInput(f"policy {text}: {flag}", got=value, expected="none: its sampler is as it was stored")
    if is_onnx(text):
        policy = load_onnx_policy(text)
        return PromptedPolicy(policy) if takes_instructions(policy.interface) else policy
    if text.startswith(FOREIGN) and (backend, precision) != ("torch", "float32"):
        raise BadInput(f"policy {text}: --backend, --precision", got=(backend, precision), available=["torch float32"])
    if text.startswith(EPISODE):
        from policies.storage.episode_policy import load_episode_policy

        return load_episode_policy(text.removeprefix(EPISODE))
    if text.startswith(LEROBOT):
        from policies.storage.lerobot_policy import load_lerobot_policy

        return load_lerobot_policy(text.removeprefix(LEROBOT), device)
    from policies.storage.checkpoint import load_policy

    policy = load_policy(text, device)
    if changed:
        policy = resampled(policy, changed, what=f"policy {text}")
    if (backend, precision) != ("torch", "float32"):
        use_backend(policy, backend, precision)
    elif on_arm:
        trace_if_same(policy)
    return PromptedPolicy(policy) if takes_instructions(policy.interface) else policy


def load_base(
    name: str | os.PathLike[str], device: str | torch.device, *, sampled: bool, words: Callable[[], str] = str
) -> ChunkPolicy:
    """The policy that RL begins with on `device`: a folder of ours, or ``lerobot:FOLDER`` where it is only `sampled`,
    with the `words` of the task if it takes any. Raises `BadInput`: there is none, it is of another kind, it takes
    words and there are none, or it is one of LeRobot's that would have to learn."""
    text = os.fspath(name)
    if not is_sampled_base(text, sampled):
        from policies.storage.checkpoint import load_chunk_policy

        return load_chunk_policy(name, device)
    from policies.storage.lerobot_base import open_base

    return open_base(text.removeprefix(LEROBOT), device, words)


def is_sampled_base(name: str | os.PathLike[str], sampled: bool) -> bool:
    """True where the policy that `name` says, with which RL begins, is one of LeRobot's. Raises `BadInput`: it would
    have to learn, for it is not only `sampled`."""
    text = os.fspath(name)
    if text.startswith(LEROBOT) and not sampled:
        expected = "one that robolearn trained, or --algo dsrl, iql or proposals, which only sample from it"
        raise BadInput(f"policy {text}", got="one of LeRobot's", expected=expected)
    return text.startswith(LEROBOT)


def takes_words(name: str | os.PathLike[str]) -> bool:
    """True where the policy that `name` says is one of ours that was trained with words."""
    return not os.fspath(name).startswith(LEROBOT) and is_prompted(stated_by(name))


def base_sha256(base: ChunkPolicy) -> str:
    """The digest of what the samples of `base` depend on: its weights, and of one of LeRobot's its files, for its
    weights are in none of our modules."""
    own = sha256_weights(base)
    return sha256(own, base.config.sha256) if isinstance(base.config, LeRobotConfig) else own


def words_of(base: ChunkPolicy | None) -> str:
    """The task in words that `base` was opened with; empty where it takes none."""
    return base.config.words if base is not None and isinstance(base.config, LeRobotConfig) else ""


def resampled(policy: TorchPolicy, settings: Mapping[str, Any], *, what: str) -> TorchPolicy:
    """`policy` with other settings of its sampler; raises `BadInput` for a kind or a network that has none."""
    from policies.policy import ChunkPolicy

    for key, value in settings.items():
        kinds = denoising_kinds()
        if not isinstance(policy, ChunkPolicy) or policy.config.name not in kinds:
            got = f"{value} for one of kind {policy.config.name}"
            raise BadInput(f"{what}: {SAMPLER_FLAGS[key]}", got=got, available=kinds)
        policy = policy.sampling(**{key: value})
    return policy


def needed_by(name: str | os.PathLike[str], *, opened: Policy | None = None) -> Interface:
    """The interface of the policy that `name` says, without instructions. `opened`: the result of `open_foreign`.

    Only what is needed for that is read: of a policy of ours the ``config.json``, not the weights.
    """
    if (policy := opened or open_foreign(name)) is not None:
        return policy.interface
    return without_instructions(stated_by(name))


def stated_by(name: str | os.PathLike[str]) -> Interface:
    """The interface that a policy of ours was stored with, instructions included."""
    if is_onnx(name):
        return onnx_interface(name)
    file = policy_folder(name) / CONFIG
    return interface_of(read_config(file), file)


def check_words(name: str | os.PathLike[str], words: str, usual: str, *, what: str, opened: Policy | None) -> str:
    """The prompt of the policy that `name` says: `words`, or the `usual` ones; nothing if it takes none. `opened`: the
    result of `open_foreign`. Raises `BadInput`: words for a policy that was trained without, or none for one that was
    trained with some."""
    interface = stated_by(name) if opened is None else opened.interface
    if not (is_prompted(interface) or wants_words(opened)):
        check_prompt(words, what=what)
        return ""
    if not (words or usual):
        raise BadInput(f"{what}: words", got="nothing", expected="a sentence", available=interface.extra.get(WORDS, {}))
    return words or usual


def open_foreign(name: str | os.PathLike[str]) -> Policy | None:
    """The policy that `name` says where only opening it tells what it needs, for several checks of it; else None."""
    return open_policy(name) if os.fspath(name).startswith(FOREIGN) else None


def check_goals_given(name: str | os.PathLike[str], given: bool, *, what: str, opened: Policy | None = None) -> None:
    """Raise `BadInput` where the policy that `name` says needs goals and none are `given`, or the other way round.
    `opened`: the result of `open_foreign`."""
    policy = opened or open_foreign(name)
    check_goals_match(stated_by(name) if policy is None else policy.interface, given, what=what)


def check_policy(
    name: str | os.PathLike[str], offered: Interface, *, what: str, simulated: bool = True,
    opened: Policy | None = None,
) -> None:  # fmt: skip
    """Raise `BadInput` unless the policy that `name` says is for a world that offers `offered`. `simulated`: that world
    offers a simulator's truth; a policy that observes it is refused elsewhere. `opened`: the result of
    `open_foreign`."""
    if (policy := opened or open_foreign(name)) is not None:
        bind_policy(policy, offered, what=what)
        needed = policy.interface
    else:
        needed = needed_by(name)
    if needed.privileged and not simulated and needed.embodiment == offered.embodiment:
        sees = tuple(key for key in needed.observation if key not in needed.privileged)
        raise BadInput(
            f"{what}: observation",
            got=f"{', '.join(needed.privileged)}, the simulator's own truth, beside {', '.join(sees) or 'nothing'}",
            expected="what a real arm has: cameras and proprioception",
            hint="Train with --observe proprio images, or `robolearn distill` it into a visuomotor policy",
        )
    check_compatible(needed, offered, what=what)
