"""Launch files run by the test double, in an environment made as pip makes one."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def double() -> Any:
    """The module `launch_double`."""
    name = "launch_double"
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A prefix into which the ROS files were linked; its `bin/python3` is the Python of the tests."""
    place = tmp_path_factory.mktemp("prefix")
    # No `venv`: that one would not have the libraries.
    (place / "bin").mkdir()
    (place / "bin" / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (place / "bin" / "python3").chmod(0o755)
    code = f"import runpy, sys; sys.prefix = {str(place)!r}; runpy.run_path({str(ROOT / '.ci' / 'ros-index')!r})"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    return place


@pytest.fixture
def launch(double: Any, prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """``launch("deploy", robot="sim")`` → the context after the launch file was run."""
    for name, module in double.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    shutil.rmtree(tmp_path / "parameters", ignore_errors=True)
    (tmp_path / "parameters").mkdir()

    def run(name: str, installed: Path = prefix, **arguments: str) -> Any:
        file = installed / "share" / "robolearn" / "launch" / f"{name}.launch.py"
        return double.run(file, arguments, installed, tmp_path / "parameters")

    return run
