"""How much memory is left, by figures as Linux gives them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from robolearn.core.machine import available_memory

MIB = 1 << 20


def machine(tmp_path: Path, groups: str, files: dict[str, str]) -> tuple[Path, Path]:
    proc, cgroups = tmp_path / "proc", tmp_path / "cgroup"
    for path, text in {"proc/self/cgroup": groups, "proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 8192 kB\n"}.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    for path, text in files.items():
        (cgroups / path).parent.mkdir(parents=True, exist_ok=True)
        (cgroups / path).write_text(text)
    return proc, cgroups


def group(most: object, used: int, files: int = 0) -> dict[str, str]:
    stat = f"anon 1\ninactive_file {files}\n"
    return {"memory.max": f"{most}\n", "memory.current": f"{used}\n", "memory.stat": stat}


def test_the_machine_without_limits(tmp_path: Path) -> None:
    assert available_memory(*machine(tmp_path, "0::/\n", {})) == 8 * MIB
    assert available_memory(*machine(tmp_path, "0::/\n", group("max", 3))) == 8 * MIB


def test_a_container_has_what_its_limit_leaves(tmp_path: Path) -> None:
    assert available_memory(*machine(tmp_path, "0::/\n", group(5 * MIB, 2 * MIB, MIB))) == 4 * MIB
    assert available_memory(*machine(tmp_path, "0::/\n", group(5 * MIB, 6 * MIB))) == 0


def test_the_narrowest_of_the_groups_around_counts(tmp_path: Path) -> None:
    outer = {f"a/{name}": text for name, text in group(3 * MIB, MIB).items()}
    inner = {f"a/b/{name}": text for name, text in group("max", MIB).items()}
    assert available_memory(*machine(tmp_path, "0::/a/b\n", outer | inner)) == 2 * MIB


def test_groups_of_the_first_version(tmp_path: Path) -> None:
    files = {"memory.limit_in_bytes": str(6 * MIB), "memory.usage_in_bytes": str(MIB), "memory.stat": "x 1\n"}
    groups = "7:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n"
    here = {f"memory/docker/1/{name}": text for name, text in files.items()}
    assert available_memory(*machine(tmp_path, groups, here)) == 5 * MIB


def test_elsewhere_half_of_the_machine_is_taken_to_be_free(tmp_path: Path) -> None:
    assert available_memory(tmp_path, tmp_path) > 0


@pytest.mark.long
@pytest.mark.parametrize("limit", ["-v", "-d"])
def test_a_limit_of_the_process_counts(limit: str) -> None:
    """A second process, that its shell allows 1.5 GB and that takes 200 MB of them."""
    code = (
        "from robolearn.core.machine import available_memory as left; before = left();"
        "taken = bytearray(200_000_000); print(before, before - left())"
    )
    command = f"ulimit {limit} 1500000; exec {sys.executable} -c '{code}'"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True)
    before, taken = map(int, done.stdout.split())
    assert 0.5e9 < before < 1.5e9 * 1.024 and 199e6 < taken < 203e6
