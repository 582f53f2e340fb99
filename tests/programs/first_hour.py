"""The first hour of a newcomer: the first page, every command of the tutorial, a keyboard and a browser, mistakes.

    python tests/programs/first_hour.py --keep first-hour

Commands are taken from README.md and tutorial.md as they stand there and run in an empty folder, by a shell; the
figures that the pages promise are read from them, too. What came out lies in --keep: `first_hour.md` (each command, how
long it took, what was left on the screen, and with that what a stranger would do next), pictures of the pages,
recordings. Exit code 1 when a command fails, a figure is off, or it all takes more than forty minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import scipy.stats

ROOT = Path(__file__).resolve().parents[2]
PEOPLE = ROOT / "tests" / "programs" / "record_people.py"
TUTORIAL = ROOT / "robolearn" / "docs" / "tutorial.md"
LIMIT_S = 2400.0
SPREAD = 5.0  # of a promised rate: other processors round otherwise [points]
SCREEN = 8  # lines that are still to be seen when a command has ended
TENSORBOARD = 6100 + os.getpid() % 500


@dataclass
class Hour:
    """What has been done so far."""

    folder: Path
    began: float = field(default_factory=time.monotonic)
    report: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def run(self, command: str, expected: int = 0) -> str:
        """Run `command` by a shell; what it printed, the progress bars left out."""
        begun = time.monotonic()
        env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "100"}
        done = subprocess.run(
            command, shell=True, cwd=self.folder, env=env, text=True, capture_output=True, stdin=subprocess.DEVNULL
        )
        said = [line.split("\r")[-1].rstrip() for line in (done.stderr + done.stdout).splitlines()]
        took, text = time.monotonic() - begun, "\n".join(said)
        self.check(f"`{command}` ends with {expected}", done.returncode == expected, f"{done.returncode}: {said[-3:]}")
        self.check(f"`{command}` without a traceback", "Traceback" not in text, said[-5:])
        left = "\n".join(line for line in said if line)[-4000:].splitlines()[-SCREEN:]
        self.report += [
            "",
            f"## `{command}`",
            "",
            f"{took:.0f} s, exit code {done.returncode}.",
            "",
            "```",
            *left,
            "```",
        ]
        print(f"{took:6.1f} s  {command}", flush=True)
        return text

    def check(self, what: str, holds: bool, found: object = "") -> None:
        if not holds:
            self.wrong.append(f"{what}: {found}")
            print(f"WRONG: {self.wrong[-1]}", flush=True)


def shell_blocks(page: str, heading: str) -> list[str]:
    """The commands of all shell blocks after `heading`."""
    text = "".join(re.findall(r"```sh\n(.*?)```", page[page.index(heading) :], re.DOTALL))
    return [line.split("  #")[0].strip() for line in text.replace("\\\n", " ").splitlines() if line.strip()]


def printed(said: str, policy: str) -> dict[str, float]:
    """The success of a policy with its interval, as a table of `evaluate` shows it."""
    found = re.search(rf"{re.escape(policy)}\s.*?([\d.]+)% \(([\d.]+)–([\d.]+)", said)
    assert found, f"no success of {policy}: {said[-600:]}"
    rate, low, high = (float(value) / 100 for value in found.groups())
    return {"rate": rate, "low": low, "high": high}


def overlap(one: dict[str, Any], low: float, high: float) -> bool:
    """Whether an interval of 400 episodes and a promised one, in %, have anything in common."""
    return 100 * one["high"] >= low and 100 * one["low"] <= high


def quickstart(hour: Hour, page: str) -> None:
    """The first command, and the figures that stand under it."""
    command = shell_blocks(page, "# robolearn")[0]
    assert command == "make quickstart", command
    bc, chosen, rl, low, high = map(float, promised(page))
    out = hour.folder / "runs" / "quickstart"
    said = hour.run(f"{command} -C {ROOT} OUT={out} ARGS=--json")
    (result,) = (json.loads(line) for line in said.splitlines() if line.startswith("{"))  # make says more after it
    hour.check(f"{rl} ({low} to {high})% after RL", overlap(result["rl"]["success"], low, high), result["rl"])
    for name, rate, found in (
        ("imitation", bc, result["bc"]["success"]),
        ("the chosen initial noise", chosen, result["chosen_initial_noise"]["success"]),
    ):
        hour.check(f"{rate}% by {name}", overlap(found, rate - SPREAD, rate + SPREAD), found)
    deployed = result["deploy"]
    hour.check("0 violations on the simulated arm", deployed["violations"] == 0, deployed)
    found, low = deployed["success"], result["rl"]["success"]["low"]
    solved = round(found["rate"] * found["episodes"])
    as_likely = scipy.stats.binom.cdf(solved, found["episodes"], low)  # as few or fewer, by the rate in the world
    hour.check("as many episodes there as in the world", as_likely > 0.01, found)


def promised(page: str) -> tuple[str, ...]:
    """Imitation, chosen start, after RL with its interval, in %."""
    text = " ".join(page.split())
    found = re.search(r"imitation ([\d.]+)% → ([\d.]+)% at .*? → ([\d.]+)% \(([\d.]+)–([\d.]+)\)", text)
    assert found, "README's figures"
    return found.groups()


def tutorial(hour: Hour, page: str, tutorial: str) -> None:
    """Its commands one by one, and those of the first page that are not among them. They need not say --json: a person
    reads them."""
    commands = shell_blocks(tutorial, "## 1.")
    commands += [command for command in shell_blocks(page, "## Step by step") if command not in commands]
    text = " ".join(tutorial.split())
    about = [float(rate) for rate in re.findall(r"about (\d+) of 100", text)]
    assert len(about) == 3, f"the tutorial's figures: {about}"
    promises = dict(zip(("runs/bc", "runs/rl", "runs/stored"), about, strict=True))
    for command in commands:
        said = hour.run(command)
        word = command.split()[1]
        if word in ("collect", "train", "finetune", "distill"):
            hour.check(f"{word} says what comes next", bool(re.search(r"^next +robolearn ", said, re.MULTILINE)), word)
        if word == "evaluate":
            for policy, rate in promises.items():
                if policy in re.findall(r"(?:--policy|--against) (\S+)", command):
                    found = printed(said, policy)
                    hour.check(f"about {rate:.0f}% by {policy}", overlap(found, rate - SPREAD, rate + SPREAD), found)
        if "--against runs/rl" in command:
            hour.check("a verdict for RL", "runs/rl is better" in said, said.splitlines()[-6:])
        if word == "deploy":
            hour.check("deployed without a violation", "0 violations" in said, said.splitlines()[-6:])


def look_around(hour: Hour, page: str) -> None:
    """What a newcomer tries besides: help, lists, data, Python."""
    hour.run("robolearn doctor")
    hour.run("robolearn help train")
    for command in ("robolearn runs", "robolearn presets", "robolearn runs compare runs/bc runs/rl"):
        hour.run(command)
    for command in ("info", "validate", "quality"):
        hour.run(f"robolearn dataset {command} data/lift")
    hour.run("robolearn dataset view data/lift --episodes 0-1 --save lift.rrd")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (hour.folder / "first.py").write_text(code)
    hour.check("success from Python", "of 64" in hour.run(f"{sys.executable} first.py"))


def own_file(hour: Hour) -> None:
    """A file in LIBERO's layout comes to an arm by what the screen says alone."""
    sys.path.insert(0, str(ROOT / "tests" / "programs"))
    import libero_file

    libero_file.write(hour.folder / "demos.hdf5", 6)
    said = hour.run("robolearn dataset import demos.hdf5 --out data/file")
    hour.check("an import names --robot", "--robot CONTRACT" in said, said.splitlines()[-4:])
    said = hour.run("robolearn dataset import demos.hdf5 --robot sim --out data/arm", expected=2)
    (renamed,) = re.findall(r"--map NAME=(\S+) renames it", said) or [""]
    (camera,) = re.findall(r"camera: got (\w+)", said) or [""]
    mapped = f"--map obs/{camera}_rgb={renamed}"
    said = hour.run(f"robolearn dataset import demos.hdf5 --robot sim {mapped} --out data/arm")
    train, deploy = re.findall(r"(robolearn (?:train|deploy) .*?) : ", said)
    hour.run(train.replace("runs/…", "runs/file") + " --steps 300")
    said = hour.run(deploy.replace("runs/…", "runs/file") + " --episodes 1 --seconds 5")
    hour.check("the file's policy is deployed without a violation", "0 violations" in said, said.splitlines()[-6:])


MISTAKES = (
    ("robolearn trian --data data/lift", "train"),
    ("robolearn train --data data/lfit --out runs/x", "data/lift"),
    ("robolearn evaluate --policy runs/bc --task lfit", "lift"),
    ("robolearn evaluate --policy runs/bc --task peg_insert", "another task"),
    ("robolearn train --data data/lift --out runs/bc", "--resume"),
    ("robolearn finetune --policy runs/bc --task lift --env-steps 100 --out runs/few", "--worlds"),
    ("robolearn deploy --policy runs/bc --robot fr3", "made for panda"),
)  # with the word that helps


def mistakes(hour: Hour) -> None:
    """Exit code 2, one or two lines, with the word that helps."""
    for command, help_ in MISTAKES:
        said = hour.run(command, expected=2)
        errors = [line for line in said.splitlines() if "error" in line]
        hour.check(f"`{command}` says {help_}", help_ in said and len(said.splitlines()) <= 3, errors or said)


def record(hour: Hour) -> None:
    """By keyboard and by browser."""
    for who in ("keyboard", "browser"):
        said = hour.run(f"{sys.executable} {PEOPLE} {who} --episodes 1 --out data/{who}")
        hour.check(f"one success by {who}", "1 episodes, 1 of them successes" in said, said.splitlines()[-4:])
        hour.run(f"robolearn dataset validate data/{who}")


def pictures(hour: Hour) -> None:
    """What the pages look like: the report, and the curves in TensorBoard."""
    sys.path.insert(0, str(ROOT / "tests" / "hardware" / "teleop"))
    from browser_driver import Chromium

    board = subprocess.Popen(
        [Path(sys.executable).with_name("tensorboard"), "--logdir", "runs", "--port", str(TENSORBOARD)],
        cwd=hour.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        address = f"http://localhost:{TENSORBOARD}"
        runs = json.loads(fetched(f"{address}/data/runs"))
        hour.check("TensorBoard has the runs", {"bc", "rl"} <= {run.split("/")[0] for run in runs}, runs)
        report = hour.folder / "runs" / "quickstart" / "report.html"
        with Chromium() as chromium:
            for name, url, size, scheme in (
                ("report", report.as_uri(), (1280, 1600), "light"),
                ("report-dark", report.as_uri(), (1280, 1600), "dark"),
                ("report-phone", report.as_uri(), (390, 844), "dark"),
                ("tensorboard", f"{address}/#timeseries", (1280, 1600), "light"),
            ):
                tab = chromium.open(url, size)
                tab.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
                tab.wait("document.body?.innerText.length > 0")
                wide = tab.js("document.documentElement.scrollWidth - innerWidth")
                hour.check(f"{name} as wide as its window", wide <= 0, f"{wide} px beyond")
                time.sleep(5.0)  # curves are drawn after the page is there
                tab.picture(hour.folder / f"{name}.png")
    finally:
        board.terminate()
        board.wait(30)
    hour.report += [
        "",
        "![report](report.png)",
        "",
        "![on a phone](report-phone.png)",
        "",
        "![TensorBoard](tensorboard.png)",
    ]


def fetched(url: str, patience_s: float = 60.0) -> str:
    end = time.monotonic() + patience_s
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                text = answer.read().decode()
            if text.strip() not in ("[]", ""):
                return text
        except OSError:
            pass
        if time.monotonic() > end:
            raise RuntimeError(f"no answer from {url}")
        time.sleep(0.5)


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--keep", type=Path, required=True, help="a folder that is empty or not there yet")
    folder = flags.parse_args().keep.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        flags.error(f"{folder} is not empty")
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    hour = Hour(folder)
    parts: tuple[Callable[[], None], ...] = (
        lambda: quickstart(hour, page),
        lambda: tutorial(hour, page, TUTORIAL.read_text(encoding="utf-8")),
        lambda: look_around(hour, page),
        lambda: own_file(hour),
        lambda: mistakes(hour),
        lambda: record(hour),
        lambda: pictures(hour),
    )
    for part in parts:
        part()
    took = time.monotonic() - hour.began
    hour.check(f"at most {LIMIT_S:.0f} s in all", took <= LIMIT_S, f"{took:.0f} s")
    head = ["# The first hour", "", f"{took:.0f} s. " + ("All as promised." if not hour.wrong else "Wrong:"), ""]
    text = "\n".join([*head, *(f"- {line}" for line in hour.wrong), *hour.report, ""])
    (folder / "first_hour.md").write_text(text, encoding="utf-8")
    print(f"{folder / 'first_hour.md'}: {took:.0f} s, {len(hour.wrong)} wrong", flush=True)
    return int(bool(hour.wrong))


if __name__ == "__main__":
    os.environ.setdefault("ROS_DOMAIN_ID", str(1 + os.getpid() % 100))
    sys.exit(main())
