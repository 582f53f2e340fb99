"""Worlds in actors of Ray: the same bit for bit, also where one is killed, here and on a cluster that has a token."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.typing import NDArray

from sim.registry import make_env

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]


def kill_an_actor(family: psutil.Process) -> None:
    """SIGKILL for one of the actors among the descendants of a process."""
    actors = [one for one in family.children(recursive=True) if one.name().startswith("ray::OwnShare")]
    actors[0].kill()


def test_actors_do_the_same_and_a_killed_one_is_started_again(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    chunks = np.random.default_rng(0).uniform(-1, 1, (24, 3, 3, 7)).astype(np.float32)
    seen: list[list[NDArray]] = []
    for workers in ("", "ray:2"):
        env: Any = make_env("lift", 3, workers=workers, threads=1)
        rows = [*env.reset(seed=5)[0].values()]
        for k, chunk in enumerate(chunks):
            if workers and k == 22:
                kill_an_actor(psutil.Process())
            observation, *said, infos = env.step_chunk(chunk)
            rows += [value.copy() for value in (*observation.values(), *said, infos["success"], infos["step_rewards"])]
        env.close()
        seen.append(rows)
    for one, other in zip(*seen, strict=True):
        np.testing.assert_array_equal(one, other)
    lines = [record.getMessage() for record in caplog.records if "is started again" in record.getMessage()]
    assert len(lines) == 1 and "its actor is gone: The actor died" in lines[0]
    assert not capsys.readouterr().out  # stdout belongs to the result


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_a_cluster_with_a_token_collects_the_same_set(tmp_path: Path) -> None:
    port, token = free_port(), secrets.token_hex(32)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    clean |= {"PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token"}
    ours = clean | {"RAY_AUTH_TOKEN": token}
    # A process for a client takes more than Ray's 30 s on a machine that is busy with other tests.
    loopback = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_CLIENT_SERVER_CHECK_CHANNEL_TIMEOUT_S": "100"}
    start = ["start", "--head", "--block", "--node-ip-address", "127.0.0.1", "--port", str(free_port()), "--num-cpus",
             "2", "--include-dashboard", "false", "--ray-client-server-port", str(port)]  # fmt: skip
    ray = Path(sys.executable).with_name("ray")
    line = [sys.executable, "-c", "import sys; from robolearn.cli.main import main; sys.exit(main())", "collect",
            "--task", "lift", "--episodes", "3", "--quality", "expert"]  # fmt: skip
    with (tmp_path / "head.log").open("wb") as log:
        head = subprocess.Popen([ray, *start], env=ours | loopback, stdout=log, stderr=log)
    try:
        end = time.monotonic() + 120
        while b"block forever" not in (tmp_path / "head.log").read_bytes():
            assert time.monotonic() < end and head.poll() is None, (tmp_path / "head.log").read_text()
            time.sleep(0.5)
        there = [*line, "--out", str(tmp_path / "there"), "--workers", f"ray://127.0.0.1:{port}"]
        subprocess.run(there, env=ours, check=True, timeout=250)
    finally:
        family = psutil.Process(head.pid).children(recursive=True)
        head.terminate()
        head.wait(60)
        psutil.wait_procs(family, 20)
    subprocess.run([*line, "--out", str(tmp_path / "here")], env=clean, check=True, timeout=250)
    sets = [
        {path.relative_to(tmp_path / name): path.read_bytes() for path in (tmp_path / name).rglob("*.parquet")}
        for name in ("here", "there")
    ]
    assert sets[0] == sets[1] and sets[0]
