"""What ``--policy`` means: a folder of ours, an ONNX file, or ``lerobot:FOLDER`` for a policy of LeRobot's."""

from __future__ import annotations

import os

from policies.backends import check_backend, use_backend
from policies.config_file import CONFIG, interface_of, policy_folder, read_config
from policies.onnx_policy import is_onnx, load_onnx_policy, onnx_interface
from policies.prompted import WORDS, PromptedPolicy, is_prompted, refuse_words, without_words
from robolearn.core import BadInput, Interface, Policy, bind_policy, check_compatible

LEROBOT = "lerobot:"


def open_policy(
    name: str | os.PathLike[str], device: str = "cpu", backend: str = "torch", precision: str = "float32"
) -> Policy:
    """The policy that `name` says, ready to act; one that was trained with words wants to be told some before.

    Args:
      name: a run folder, a checkpoint folder, a file of `robolearn export`, or ``lerobot:`` and a folder that
        LeRobot's ``save_pretrained`` wrote (or the run folder of a training with LeRobot).
      device: where its tensors live, as torch names it.
      backend: what computes its decisions, with which precision; see `policies.backends`. A file is computed by
        onnxruntime whatever it says.

    Raises:
      BadInput: there is none, it is damaged, LeRobot or onnxruntime is not installed, or no such backend.
    """
    check_backend(backend, precision)
    text = os.fspath(name)
    if is_onnx(text):
        policy = load_onnx_policy(text)
        return PromptedPolicy(policy) if is_prompted(policy.interface) else policy
    if text.startswith(LEROBOT) and (backend, precision) != ("torch", "float32"):
        raise BadInput(f"policy {text}: --backend, --precision", got=(backend, precision), available=["torch float32"])
    if text.startswith(LEROBOT):
        from policies.lerobot_policy import load_lerobot_policy

        return load_lerobot_policy(text.removeprefix(LEROBOT), device)
    from policies.checkpoint import load_policy

    policy = load_policy(text, device)
    if (backend, precision) != ("torch", "float32"):
        use_backend(policy, backend, precision)
    return PromptedPolicy(policy) if is_prompted(policy.interface) else policy


def needed_by(name: str | os.PathLike[str]) -> Interface:
    """What the policy that `name` says sees and commands.

    Only what is needed for that is read: of a policy of ours the ``config.json``, not the weights.
    """
    if os.fspath(name).startswith(LEROBOT):
        return open_policy(name).interface
    return without_words(_stated(name))


def _stated(name: str | os.PathLike[str]) -> Interface:
    """The interface that a policy of ours was stored with, words included."""
    if is_onnx(name):
        return onnx_interface(name)
    file = policy_folder(name) / CONFIG
    return interface_of(read_config(file), file)


def check_words(name: str | os.PathLike[str], words: str, usual: str, *, what: str) -> str:
    """What the policy that `name` says is to be told: `words`, or the `usual` ones; nothing if it takes none.

    Raises:
      BadInput: words for a policy that was trained without, or none for one that was trained with some.
    """
    interface = None if os.fspath(name).startswith(LEROBOT) else _stated(name)
    if interface is None or not is_prompted(interface):
        refuse_words(words, what=what)
        return ""
    if not (words or usual):
        raise BadInput(f"{what}: words", got="none", expected="a sentence", available=interface.extra.get(WORDS, {}))
    return words or usual


def check_policy(name: str | os.PathLike[str], offered: Interface, *, what: str, simulated: bool = True) -> None:
    """Raise `BadInput` unless the policy that `name` says is for a world that offers `offered`.

    Args:
      what: for messages.
      simulated: whether that world has a simulator's truth to show; a policy that sees it is refused elsewhere.
    """
    if os.fspath(name).startswith(LEROBOT):
        policy = open_policy(name)
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
            hint="Train with --observe proprio images, or `robolearn distill` it into a policy that sees",
        )
    check_compatible(needed, offered, what=what)
