"""Measures the figures that the pages state, and names those that are off.

    python tests/programs/figures.py             # what takes at most twenty minutes
    python tests/programs/figures.py --all       # all, some hours
    python tests/programs/figures.py --list      # what is stated, and at which commit it was last measured

The figures are in `figures.yaml` beside this file, what came of them last in `figures_measured.json`. Exit code 1 where
one is off or a command fails.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
FIGURES = Path(__file__).with_name("figures.yaml")
MEASURED = Path(__file__).with_name("figures_measured.json")
MINUTES = 20.0  # of all commands together, without --all


@dataclass(frozen=True)
class Figure:
    """A figure on a page, and how it is measured; the fields are those of `figures.yaml`."""

    name: str
    page: str
    says: str
    command: str
    value: Mapping[str, Any]
    room: Mapping[str, Any]
    minutes: float

    def stated(self) -> float:
        """The figure as it stands on its page."""
        text = " ".join((ROOT / self.page).read_text(encoding="utf-8").split())
        found = re.findall(self.says, text)
        if len(found) != 1:
            raise SystemExit(f"{self.name}: {self.says!r} stands {len(found)} times on {self.page}, not once")
        return float(found[0].replace(",", ""))

    def of(self, result: Any) -> float:
        """The figure in what its command printed."""
        for key in self.value["path"].split("."):
            result = result[int(key)] if isinstance(result, list) else result[key]
        return float(result) * self.value.get("times", 1)

    def is_off(self, measured: float) -> bool:
        """True where `measured` is not what the page states."""
        stated, only = self.stated(), self.room.get("only")
        room = self.room["points"] if "points" in self.room else self.room["share"] * stated
        above, below = measured - stated > room + 1e-9, stated - measured > room + 1e-9
        return (above and only != "lower") or (below and only != "higher")


def figures() -> list[Figure]:
    """All of `figures.yaml`."""
    return [Figure(**entry) for entry in yaml.safe_load(FIGURES.read_text(encoding="utf-8"))]


def affordable(wanted: list[Figure]) -> list[Figure]:
    """Those whose commands take `MINUTES` together, the shortest first."""
    left, chosen = MINUTES, []
    for command, minutes in sorted({(f.command, f.minutes) for f in wanted}, key=lambda pair: pair[1]):
        if minutes <= left:
            left -= minutes
            chosen.append(command)
    return [figure for figure in wanted if figure.command in chosen]


def run(command: str, out: Path) -> Any:
    """The JSON object that `command` prints, or None where it fails."""
    words = shlex.split(command.format(out=out))
    program = str(Path(sys.executable).parent / words[0])
    done = subprocess.run([program, *words[1:], "--json"], capture_output=True, text=True, cwd=out)
    if done.returncode:
        print(f"FAILED ({done.returncode}): {command}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
        return None
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="some of them")
    parser.add_argument("--all", action="store_true", help="the longer ones, too")
    parser.add_argument("--list", action="store_true", help="measure nothing")
    args = parser.parse_args()
    known = figures()
    if unknown := set(args.names) - {figure.name for figure in known}:
        parser.error(f"no such figure: {', '.join(unknown)}; there are {', '.join(figure.name for figure in known)}")
    last = json.loads(MEASURED.read_text(encoding="utf-8")) if MEASURED.exists() else {}
    wanted = [figure for figure in known if figure.name in args.names] if args.names else known
    chosen = [] if args.list else wanted if args.all or args.names else affordable(wanted)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    results: dict[str, Any] = {}
    off = []
    with tempfile.TemporaryDirectory() as folder:
        for figure in wanted:
            before = last.get(figure.name)
            when = f"last {before['value']:g} at {before['commit']}, {before['date']}" if before else "never by this"
            if figure not in chosen:
                print(f"{figure.name}: the page says {figure.stated():g}; {when}", flush=True)
                continue
            if figure.command not in results:
                print(f"… {figure.command}", flush=True)
                results[figure.command] = run(figure.command, Path(folder))
            if (result := results[figure.command]) is None:
                off.append(figure.name)
                continue
            measured = figure.of(result)
            verdict = "OFF" if figure.is_off(measured) else "ok"
            off += [figure.name] if verdict == "OFF" else []
            print(
                f"{figure.name}: {figure.page} says {figure.stated():g}, measured {measured:.4g}: {verdict}", flush=True
            )
            date = datetime.date.today().isoformat()
            last[figure.name] = {"value": round(measured, 4), "commit": commit.stdout.strip(), "date": date}
    if chosen:
        MEASURED.write_text(json.dumps(last, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        print(f"{len(chosen)} figures measured, {len(off)} off" + (f": {', '.join(off)}" if off else ""))
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
