"""Python, torch, CPUs, GPU."""

from __future__ import annotations

from robolearn.cli.checks.machine import Check, Machine


def python(machine: Machine) -> list[Check]:
    """The version that this runs with."""
    version = ".".join(map(str, machine.version))
    good = (3, 11) <= machine.version[:2] <= (3, 12)
    return [Check("Python", good, version, "" if good else "sudo apt install python3.11-venv")]


def processors(machine: Machine) -> list[Check]:
    """CPUs that may be used; never a reason to refuse."""
    cpus = machine.cpus()
    return [Check("CPUs", True, f"{cpus}" if cpus > 1 else "1; with 2 the quickstart takes about half as long")]


def torch(machine: Machine) -> list[Check]:
    """Whether torch can be imported, in a child: a broken one may crash."""
    answer = machine.torch
    if answer.code != 0:
        return [Check("torch", False, answer.error, machine.install())]
    return [Check("torch", True, f"{answer.values['version']}, {answer.values['threads']} threads")]


def gpu(machine: Machine) -> list[Check]:
    """A GPU that torch computes on."""
    names = machine.torch.values.get("gpus", [])
    if names:
        return [Check("GPU", True, ", ".join(names))]
    if machine.which("nvidia-smi") and machine.succeeds(["nvidia-smi"]):
        fix = "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu128"
        return [Check("GPU", False, "an NVIDIA GPU, but this torch was built without CUDA", fix)]
    return [Check("GPU", False, "none; everything runs on the CPU as well")]
