"""The one way in which checks look at the machine, so that tests can put another one in its place."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robolearn.core.machine import available_cpus

if TYPE_CHECKING:
    from robolearn.core.plugins import Plugin


@dataclass(frozen=True)
class Check:
    """Result of one check.

    Attributes:
      name: the thing, in a word or two.
      ok: whether it can be used.
      found: what is there, in plain words.
      fix: the one command that fixes it; empty when nothing is wrong, or no command can.
    """

    name: str
    ok: bool
    found: str
    fix: str = ""


@dataclass(frozen=True)
class Answer:
    """Result of a child process: exit code, the JSON objects that it printed, the last line of its errors."""

    code: int
    values: dict[str, Any] = field(default_factory=dict)
    error: str = ""


class Machine:
    """This machine."""

    environ: os._Environ[str] | dict[str, str] = os.environ
    version: tuple[int, ...] = sys.version_info[:3]
    prefix: str = sys.prefix
    user: bool = os.name != "posix" or os.geteuid() != 0

    def python(self, *arguments: str, timeout_s: float = 120.0) -> Answer:
        """Run ``python -P <arguments>`` and merge the JSON objects that it prints line by line.

        In a process of its own: a broken library or driver may abort it, and heavy imports stay out of this one.
        """
        try:
            done = subprocess.run(
                [sys.executable, "-P", *arguments], capture_output=True, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return Answer(-1, error=f"no answer within {timeout_s:g} s")
        values: dict[str, Any] = {}
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                values |= json.loads(line)
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        return Answer(done.returncode, values, lines[-1] if lines else f"ended with {done.returncode}")

    @cached_property
    def worlds(self) -> Answer:
        """A world, stepped and rendered: asked for by two checks, run once."""
        return self.python("-c", WORLDS)

    @cached_property
    def torch(self) -> Answer:
        """Version, threads and GPUs of torch, asked for once."""
        return self.python("-c", TORCH)

    def succeeds(self, command: Sequence[str]) -> bool:
        """True where `command` ends with exit code 0."""
        try:
            return subprocess.run(command, capture_output=True, timeout=10, check=False).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False

    def which(self, program: str) -> str | None:
        """The path of a program."""
        return shutil.which(program)

    def module(self, name: str) -> bool:
        """True where `name` can be imported."""
        return importlib.util.find_spec(name) is not None

    def release(self, distribution: str) -> str | None:
        """The version of something that pip installed."""
        try:
            return importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            return None

    def paths(self, pattern: str) -> list[str]:
        """Paths that match, sorted."""
        return sorted(glob.glob(pattern))

    def usable(self, path: str) -> bool:
        """True where this user may read and write `path`."""
        return os.access(path, os.R_OK | os.W_OK)

    def text(self, path: str) -> str:
        """The content of a small file, empty where there is none."""
        try:
            return Path(path).read_text(errors="replace")
        except OSError:
            return ""

    def space(self, path: str) -> tuple[int, int] | None:
        """Total and free bytes of the file system of `path`."""
        try:
            usage = shutil.disk_usage(path)
        except OSError:
            return None
        return usage.total, usage.free

    def left_behind(self, folder: str = "/dev/shm") -> int:
        """Bytes of Fast DDS in `folder` whose process is gone: it held a lock on the file that ends in `_el` beside its
        own, and was killed before it removed both."""
        found = 0
        for path in glob.glob(f"{glob.escape(folder)}/fastdds_*_el"):
            with contextlib.suppress(OSError), open(path) as lock:  # in use, or of another user
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                found += os.path.getsize(path.removesuffix("_el"))
        return found

    def cpus(self) -> int:
        """CPUs that this process may use."""
        return available_cpus()

    def install(self, extra: str = "") -> str:
        """The command that installs robolearn, with an `extra`, the way in which it is installed here."""
        from robolearn.core.installation import install_command

        return install_command(extra)

    def plugins(self) -> list[Plugin]:
        """Variants that other installed packages bring, of all rooms."""
        from hardware.teleop import TELEOPERATORS
        from policies.settings import POLICIES
        from robolearn.core.plugins import plugins
        from robolearn.data.convert.formats import FORMATS
        from robolearn.rewards.choice import REWARDS
        from robolearn.rl.algorithms import ALGORITHMS
        from robots import ROBOTS
        from sim.registry import FAMILIES
        from sim.tasks import TASKS

        for table in (TASKS, FAMILIES, ROBOTS, TELEOPERATORS, FORMATS, POLICIES, REWARDS, ALGORITHMS):
            len(table)  # which loads them
        return plugins()

    def place(self) -> Path:
        """Folder of the packages that run."""
        from robolearn.core.installation import PLACE

        return PLACE

    def folder(self) -> Path:
        """Folder in which this was started."""
        return Path.cwd()


TORCH = """
import json, torch
names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
for i in range(len(names)):
    torch.zeros(8, device=f"cuda:{i}").sum().item()
print(json.dumps({"version": torch.__version__, "threads": torch.get_num_threads(), "gpus": names}))
"""

#: Without cameras first: what was printed stays valid when GL then aborts the process.
WORLDS = """
import json, os, time
from importlib.metadata import version
from sim.registry import make_env
import numpy as np

env = make_env("lift", 1, threads=1)
env.reset(seed=0)
action = np.zeros((1, *env.single_action_space.shape), np.float32)
env.step(action)
began = time.perf_counter()
for _ in range(20):
    env.step(action)
print(json.dumps({"mujoco": version("mujoco"), "steps_per_s": 20 / (time.perf_counter() - began)}), flush=True)

env = make_env("lift", 1, cameras=("front",), threads=1)
env.reset(seed=0)
began = time.perf_counter()
for _ in range(5):
    observation = env.step(action)[0]
fps = 5 / (time.perf_counter() - began)
assert observation["images.front"].std() > 1, "the picture is empty"
try:
    from OpenGL import GL
    renderer = GL.glGetString(GL.GL_RENDERER).decode()
except Exception:
    renderer = ""
print(json.dumps({"gl": os.environ.get("MUJOCO_GL", "the display"), "renderer": renderer, "fps": fps}))
"""
