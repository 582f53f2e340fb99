"""The public codebases that can be run beside ours: what a checkout has, which configs are taken, what is repaired."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robolearn.core import BadInput, RobolearnError


class CodeFailed(RobolearnError):
    """A rival failed, or its process ended, before its policy could be judged."""


@dataclass(frozen=True)
class Codebase:
    """One of others.

    Attributes:
      source: where it is public.
      imitation, tuning: those of its published configs that are taken where the user names none.
      files: further ones that it has to have.
      repairs: those of `far.repairs` that apply to it.
      repaired: settings of the repaired tuning.
      home: its variable of the environment that names the checkout, empty where it has none.
      roots: those that its configs read, for data and logs.
    """

    source: str
    imitation: str
    tuning: str
    files: tuple[str, ...]
    repairs: tuple[str, ...]
    repaired: dict[str, Any]
    home: str
    roots: tuple[str, ...]


CODEBASES: dict[str, Codebase] = {
    "reinflow": Codebase(
        "github.com/ReinFlow/ReinFlow",
        "cfg/gym/pretrain/kitchen-complete-v0/pre_reflow_mlp.yaml",
        "cfg/gym/finetune/kitchen-complete-v0/ft_ppo_reflow_mlp.yaml",
        ("agent/finetune/reinflow/train_ppo_agent.py", "model/flow/ft_ppo/ppoflow.py", "model/flow/mlp_flow.py"),
        ("time grid", "W2", "truncation", "scheduler"),
        {"train.repeat_samples": False},
        "REINFLOW_DIR",
        ("REINFLOW_DATA_DIR", "REINFLOW_LOG_DIR", "REINFLOW_WANDB_ENTITY"),
    ),
    "dppo": Codebase(
        "github.com/irom-princeton/dppo",
        "cfg/gym/pretrain/kitchen-complete-v0/pre_diffusion_mlp.yaml",
        "cfg/gym/finetune/kitchen-complete-v0/ft_ppo_diffusion_mlp.yaml",
        ("agent/finetune/train_ppo_diffusion_agent.py",),
        ("truncation",),
        {},
        "",
        ("DPPO_DATA_DIR", "DPPO_LOG_DIR", "DPPO_WANDB_ENTITY"),
    ),
}
BOTH = ("env/gym_utils/async_vector_env.py", "util/reward_scaling.py")  # of every codebase
PACKAGES = ("numpy", "torch", "hydra", "omegaconf", "einops", "tqdm")  # that their agents import
FIND = "import importlib.util, sys; print([n for n in sys.argv[1:] if importlib.util.find_spec(n) is None])"


@dataclass(frozen=True)
class Checkout:
    """A codebase in a folder of the user, the interpreter that has its packages, and the configs that are taken."""

    name: str
    path: Path
    python: str
    imitation: str
    tuning: str

    @property
    def codebase(self) -> Codebase:
        """The codebase that it is a checkout of."""
        return CODEBASES[self.name]

    @staticmethod
    def of(word: str, python: Path | None, configs: Mapping[str, tuple[str, str]] | None = None) -> Checkout:
        """The checkout of ``NAME=PATH``, with its own `configs` or those of its codebase.

        Raises:
          BadInput: no such codebase, a folder that lacks a file, or an interpreter that lacks a package.
        """
        name, _, path = word.partition("=")
        if name not in CODEBASES or not path:
            raise BadInput("--checkout", got=word, expected="NAME=PATH", available=CODEBASES)
        code, folder = CODEBASES[name], Path(path).expanduser().resolve()
        taken = (configs or {}).get(name, (code.imitation, code.tuning))
        found = Checkout(name, folder, str(python or sys.executable), *taken)
        found._check()
        return found

    def _check(self) -> None:
        code, what = self.codebase, f"--checkout {self.name}={self.path}"
        for file in (self.imitation, self.tuning, *BOTH, *code.files):
            if not (self.path / file).is_file():
                got = f"no {file} there" if self.path.is_dir() else "no such folder"
                raise BadInput(what, got=got, expected=f"a checkout of {code.source}")
        try:
            done = subprocess.run(
                [self.python, "-c", FIND, *PACKAGES], cwd=self.path, capture_output=True, text=True, check=False,
                env=self.environment(self.path),
            )  # fmt: skip
        except OSError as error:
            got = f"a file that cannot be run ({error.strerror})"
            raise BadInput(f"--checkout-python {self.python}", got=got, expected="a Python interpreter") from error
        missing = done.stdout.strip().strip("[]").replace("'", "")
        if done.returncode or missing:
            got = f"no {missing}" if missing else (done.stderr.strip().splitlines() or ["no answer"])[-1]
            expected = f"an interpreter in which {self.name} was installed"
            raise BadInput(f"--checkout-python {self.python}", got=got, expected=expected)

    def environment(self, out: Path) -> dict[str, str]:
        """The environment of its process: folders of its own below `out`, nothing of this interpreter's."""
        ours = ("PYTHONPATH", "PYTHONHOME")
        kept = {key: value for key, value in os.environ.items() if key not in ours}
        roots = dict.fromkeys(self.codebase.roots, str(out)) | {self.codebase.home: str(self.path)}
        return {"OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg", **kept, **{k: v for k, v in roots.items() if k}}


def configs_of(words: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Codebase → its configs of imitation and of tuning, of ``NAME=IMITATION,TUNING``.

    Raises:
      BadInput: no such codebase, one that is named twice, or other than two files.
    """
    found: dict[str, tuple[str, str]] = {}
    for word in words:
        name, _, files = word.partition("=")
        imitation, _, tuning = files.partition(",")
        if name not in CODEBASES or name in found or not imitation or not tuning or "," in tuning:
            expected = "NAME=IMITATION,TUNING: two files of its checkout, each codebase once"
            raise BadInput("--checkout-configs", got=word, expected=expected, available=CODEBASES)
        found[name] = imitation, tuning
    return found
