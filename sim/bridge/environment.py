"""Environments of other makers' worlds: a folder of this user with an interpreter and pinned packages in it."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from robolearn.core import BadInput, RobolearnError
from robolearn.io.atomic import write_text
from robolearn.io.json_files import read_json
from robolearn.io.locks import Lock, LockHeld
from robolearn.io.paths import check_writable, user_cache

log = logging.getLogger(__name__)

STAMP = "robolearn.json"  # written last: an environment without it is not whole
SAID = 160  # characters of a line of pip; some name two hundred packages


@dataclass(frozen=True)
class WorldEnvironment:
    """Interpreter and packages of a family of worlds."""

    name: str
    packages: tuple[str, ...]  # pinned requirements
    megabytes: int  # on disk
    pythons: tuple[str, ...] = ("3.11", "3.12")  # this one, or the first that is there

    @property
    def folder(self) -> Path:
        """The place of it."""
        return user_cache() / "worlds" / self.name

    @property
    def python(self) -> Path:
        """Its interpreter, which may not be there."""
        return self.folder / "bin" / "python"

    @property
    def installed(self) -> bool:
        """True where these very packages are there."""
        stamp = self.folder / STAMP
        return stamp.exists() and read_json(stamp, what=str(stamp)).get("packages") == list(self.packages)

    @property
    def command(self) -> str:
        """The command that makes it, with its size."""
        return f"robolearn worlds install {self.name} ({self.megabytes} MB)"

    def install(self, say: Callable[[str], None]) -> None:
        """Make it anew; `say` gets a line now and then.

        Raises:
          BadInput: no such Python, no room on the disk, or another process is at it.
          RobolearnError: pip failed; nothing is left behind.
        """
        check_writable(self.folder, "world environments")
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.folder.parent).free // 1_000_000
        if free < 1.2 * self.megabytes:
            raise BadInput(f"disk of {self.folder}", got=f"{free} MB free", expected=f"{1.2 * self.megabytes:.0f} MB")
        base = self._base()
        try:
            lock = Lock(self.folder.parent / f"{self.name}.lock")
        except LockHeld as error:
            raise BadInput(f"world {self.name}", got=f"process {error.holder} installing it") from None
        try:
            shutil.rmtree(self.folder, ignore_errors=True)
            _run([base, "-m", "venv", str(self.folder)], say)
            quiet = ("--disable-pip-version-check", "--progress-bar", "off", "--no-input")
            _run([str(self.python), "-m", "pip", "install", *quiet, *self.packages], say)
            write_text(self.folder / STAMP, json.dumps({"packages": self.packages, "python": base}))
        except BaseException:
            shutil.rmtree(self.folder, ignore_errors=True)
            raise
        finally:
            lock.release()

    def _base(self) -> str:
        """An interpreter to make it of."""
        own = f"{sys.version_info[0]}.{sys.version_info[1]}"
        if own in self.pythons:
            return getattr(sys, "_base_executable", sys.executable)
        for version in self.pythons:
            pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
            for found in (shutil.which(f"python{version}"), *pyenv.glob(f"{version}*/bin/python")):
                # pyenv puts programs on the path that say which version would have to be chosen.
                if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
                    return str(found)
        expected = f"Python {' or '.join(self.pythons)} as python{self.pythons[0]} on the path"
        raise BadInput(f"world {self.name}", got=f"Python {own}", expected=expected)

    def remove(self) -> int:
        """Remove it; the bytes that it took."""
        size = size_of(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)
        return size


def size_of(folder: Path) -> int:
    """Bytes of the files in a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() or path.is_symlink())


def _run(command: list[str], say: Callable[[str], None]) -> None:
    """Run a program of pip's kind, with its lines for `say` and its last error in the message."""
    last: deque[str] = deque(maxlen=30)
    told = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            last.append(text := line.strip())
            log.debug("%s", text)
            if text and time.monotonic() - told > 5:
                told = time.monotonic()
                say(text if len(text) <= SAID else f"{text[: SAID - 1]}…")
    if process.returncode:
        why = next((line for line in reversed(last) if line.startswith("ERROR")), last[-1] if last else "no output")
        raise RobolearnError(f"{' '.join(command[1:4])} failed with exit code {process.returncode}: {why}")
