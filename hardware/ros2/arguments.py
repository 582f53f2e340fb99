"""Command-line flags as ROS parameters."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from robolearn.core import BadInput


def ros_arguments(argv: Sequence[str], names: Sequence[str]) -> list[str]:
    """Flags as ROS parameters: `--contract sim --seed=3` → `--ros-args -p contract:=sim -p seed:=3`.

    What is already behind `--ros-args` stays as it is.

    Raises:
      BadInput: a flag that is none of `names`, or one without a value.
    """
    argv = list(argv)
    split = argv.index("--ros-args") if "--ros-args" in argv else len(argv)
    flags, rest = argv[:split], argv[split:]
    out: list[str] = []
    while flags:
        flag = flags.pop(0)
        name, has_value, value = flag.removeprefix("--").partition("=")
        name = name.replace("-", "_")
        if not flag.startswith("--") or name not in names:
            raise BadInput("flag", got=flag, available=[f"--{n.replace('_', '-')}" for n in names])
        if not has_value:
            if not flags:
                raise BadInput(f"flag {flag}", got="no value", expected="a value")
            value = flags.pop(0)
        out += ["-p", f"{name}:={value}"]
    return ([sys.argv[0], "--ros-args", *out, "--"] if out else [sys.argv[0]]) + rest
