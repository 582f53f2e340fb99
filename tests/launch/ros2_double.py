"""`ros2 launch [--noninteractive] FILE NAME:=VALUE …` and `--show-args`, by the test double of launch: the processes
are started, and what is said of them is in the words and the format of launch 3.7.

The nodes are those of the first prefix in AMENT_PREFIX_PATH.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import launch_double

sys.modules.update(launch_double.modules())


def say(level: str, name: str, text: str) -> None:
    print(f"[{level}] [{name}]: {text}", flush=True)


def show(file: Path) -> int:
    print("Arguments (pass arguments as '<name>:=<value>'):")
    for argument in launch_double.PythonLaunchDescriptionSource(str(file)).description().get_launch_arguments():
        print(f"\n    '{argument.name}':\n        {argument.description}")
    return 0


class Launch:
    """The processes; the first end of one that is required ends all."""

    def __init__(self) -> None:
        self.children: dict[str, tuple[Any, subprocess.Popen[str]]] = {}
        self.over = threading.Event()

    def start(self, number: int, process: Any) -> None:
        name = f"{process.executable}-{number}"
        child = subprocess.Popen(process.command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.children[name] = process, child
        say("INFO", name, f"process started with pid [{child.pid}]")
        threading.Thread(target=self.watch, args=(name,)).start()

    def watch(self, name: str) -> None:
        process, child = self.children[name]
        for line in child.stdout or ():
            print(f"[{name}] {line}", end="", flush=True)
        if code := child.wait():
            command = " ".join(process.command)
            say("ERROR", name, f"process has died [pid {child.pid}, exit code {code}, cmd '{command}'].")
        else:
            say("INFO", name, f"process has finished cleanly [pid {child.pid}]")
        if process.shutdown or all(other.poll() is not None for _, other in self.children.values()):
            self.over.set()

    def end(self) -> None:
        for ask, wait_s in ((signal.SIGINT, None), (signal.SIGTERM, 5.0), (signal.SIGKILL, 5.0)):
            for _, child in self.children.values():
                if child.poll() is None:
                    child.send_signal(ask)
            for process, child in self.children.values():
                try:
                    child.wait(process.sigterm_timeout if wait_s is None else wait_s)
                except subprocess.TimeoutExpired:
                    continue


def main(words: list[str]) -> int:
    assert words.pop(0) == "launch"
    shown, words = "--show-args" in words, [word for word in words if not word.startswith("--")]
    file, given = Path(words[0]), dict(word.split(":=", 1) for word in words[1:])
    assert all(given.values()), "launch takes no empty value"
    if shown:
        return show(file)
    launch = Launch()
    signal.signal(signal.SIGINT, lambda *_: launch.over.set())  # of SIGTERM launch dies without its processes
    with tempfile.TemporaryDirectory() as folder:
        try:
            prefix = Path(os.environ["AMENT_PREFIX_PATH"].split(os.pathsep)[0])
            started = launch_double.run(file, given, prefix, Path(folder)).started
        except Exception as error:
            say("ERROR", "launch", f"Caught exception in launch (see debug for traceback): {error}")
            return 1
        for number, process in enumerate(started, 1):
            launch.start(number, process)
        launch.over.wait()
        launch.end()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
