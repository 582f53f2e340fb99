"""Runs the tests of launched deployments with ROS's own `ros2 launch`, made of its sources.

    python tests/programs/launch_sources.py FOLDER

FOLDER has checkouts of https://github.com/ros2/launch, ros2/launch_ros and ros2/ros2cli, which are Python alone: no
wheels of them exist. `make test-launch` clones them. Of what they import, osrf-pycommon, lark and argcomplete are
installed; composition_interfaces has no wheel either: its services, of nodes that share a process, are named and not
used.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("launch/launch", "launch/launch_xml", "launch/launch_yaml", "launch_ros/launch_ros", "launch_ros/ros2launch",
           "ros2cli/ros2cli", "ros2cli/ros2pkg")  # fmt: skip
LIBRARIES = ("osrf-pycommon", "lark", "argcomplete")
SERVICES = "class LoadNode:\n    class Request: ...\n    class Response: ...\n\n\nListNodes = UnloadNode = LoadNode\n"
TESTS = ("tests/launch/test_launched.py",)


def main() -> int:
    checkouts = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="robolearn-launch-") as folder:
        place = Path(folder)
        install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(place)]
        subprocess.run([*install, *LIBRARIES, *(str(checkouts / name) for name in SOURCES)], check=True)
        (place / "composition_interfaces").mkdir()
        (place / "composition_interfaces" / "__init__.py").touch()
        (place / "composition_interfaces" / "srv.py").write_text(SERVICES)
        environment = {
            **os.environ,
            "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}:{place}",
            "OMP_NUM_THREADS": "1",
        }
        return subprocess.run([sys.executable, "-m", "pytest", "-q", *TESTS], cwd=ROOT, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
