"""Sets of a stranger: one column of a table or one value of a JSON file is something else; three uses of each.

    python tests/programs/fuzz_sets.py [--cases 300] [--seed 1]

Each case is opened, validated and imported. Each use ends, within `LIMIT_S`, or is refused by a `RobolearnError` of a
few lines; whatever else it raises is a finding. Prints as JSON how many cases there were and each finding. Without
--cases all of them are tried, some 4,000: half an hour.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import logging
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from robolearn.core import ArraySpec, Episode, Interface, RobolearnError
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.convert.formats import ReadOptions, reader
from robolearn.data.convert.source import write_dataset
from robolearn.data.validate import validate

LIMIT_S = 20
KINDS: dict[str, Callable[[int], Any]] = {
    "text": lambda n: pa.array(["x"] * n),
    "null": pa.nulls,
    "a null": lambda n: pa.array([None, *[1] * (n - 1)], pa.int64()),
    "time": lambda n: pa.array([datetime.datetime(2026, 1, 1)] * n),
    "duration": lambda n: pa.array([1] * n, pa.duration("s")),
    "decimal": lambda n: pa.array([Decimal("1.5")] * n),
    "struct": lambda n: pa.array([{"a": 1}] * n),
    "map": lambda n: pa.array([[("a", 1)]] * n, pa.map_(pa.string(), pa.int64())),
    "ragged": lambda n: pa.array([[1.0] * (i % 3) for i in range(n)]),
    "dictionary": lambda n: pa.array(["x"] * n).dictionary_encode(),
    "NaN": lambda n: pa.array([float("nan")] * n),
    "1.7": lambda n: pa.array([1.7] * n),
    "half": lambda n: pa.array(np.ones(n, np.float16)),
    "huge": lambda n: pa.array([2**62] * n),
    "unsigned": lambda n: pa.array([2**63 + 5] * n, pa.uint64()),
    "negative": lambda n: pa.array([-5] * n),
    "bytes": lambda n: pa.array([b"\xff\x00"] * n),
}
VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    float("nan"),
    float("inf"),
    10**30,
    "x",
    "",
    "\ud800",
    "../up",
    "{x}",
)
VALUES += ([], {}, {"a": 1}, [[1]], [1, "a"])
Case = tuple[str, Callable[[Path], None]]


def make(path: Path) -> Path:
    """Two episodes of 6 frames with one camera."""
    images = {"images.front": ArraySpec((32, 32, 3), "uint8")}
    action = ArraySpec((2,), names=("dx", "gripper"))
    interface = Interface(
        {"proprio": ArraySpec((3,), names=("a", "b", "c")), **images}, action, 10.0, "panda", "tcp_delta"
    )
    random = np.random.default_rng(0)
    with EpisodeWriter(path, interface, stamps=["proprio"]) as writer:
        for e in range(2):
            observation = {
                "proprio": random.normal(size=(6, 3)).astype(np.float32),
                "images.front": random.integers(0, 255, (6, 32, 32, 3), np.uint8),
            }
            action_array = random.uniform(-1, 1, (6, 2)).astype(np.float32)
            reward = np.eye(6, dtype=np.float32)[5]
            stamps = {"proprio": 1000.0 + 10 * e + np.arange(6) / 10}
            writer.write(Episode(observation, action_array, reward, True, True, False, task="lift", stamps=stamps))
    return path


def columns(root: Path) -> Iterator[Case]:
    """Each column of each table as each of `KINDS`, and left out."""

    def replaced(file: Path, name: str, kind: str) -> Callable[[Path], None]:
        def damage(root: Path) -> None:
            table = pq.read_table(root / file)
            place = table.column_names.index(name)
            odd = table.set_column(place, name, KINDS[kind](table.num_rows)) if kind else table.remove_column(place)
            pq.write_table(odd, root / file)

        return damage

    for path in sorted(root.rglob("*.parquet")):
        file = path.relative_to(root)
        for name in pq.read_schema(path).names:
            if not name.startswith("stats/") or name.startswith("stats/action/"):  # those of one feature stand for all
                for kind in (*KINDS, ""):
                    yield f"{file}, {name}: {kind or 'left out'}", replaced(file, name, kind)


def values(root: Path) -> Iterator[Case]:
    """Each value of each JSON file as each of `VALUES`, and left out."""

    def replaced(file: Path, keys: tuple[Any, ...], value: Any, gone: bool) -> Callable[[Path], None]:
        def damage(root: Path) -> None:
            content = place = json.loads((root / file).read_text())
            for key in keys[:-1]:
                place = place[key]
            if gone:
                del place[keys[-1]]
            else:
                place[keys[-1]] = value
            (root / file).write_text(json.dumps(content))

        return damage

    def places(content: Any) -> Iterator[tuple[Any, ...]]:
        inner = (
            content.items()
            if isinstance(content, dict)
            else enumerate(content[:1])
            if isinstance(content, list)
            else ()
        )
        for key, value in inner:
            yield (key,)
            yield from ((key, *rest) for rest in places(value))

    for path in sorted(root.rglob("*.json")):
        file = path.relative_to(root)
        content = json.loads(path.read_text())
        for keys in places({"action": content["action"]} if path.name == "stats.json" else content):
            where = f"{file}, {'/'.join(map(str, keys))}"
            yield f"{where}: left out", replaced(file, keys, None, True)
            for value in VALUES:
                yield f"{where}: {value!r}", replaced(file, keys, value, False)


def findings(root: Path, out: Path) -> Iterator[tuple[str, str]]:
    """Use and exception of each use of the set `root` that neither ends nor is refused."""
    uses: dict[str, Callable[[], Any]] = {
        "open": lambda: Dataset.open(root),
        "validate": lambda: list(validate(root)),
        "import": lambda: write_dataset(reader("lerobot-v3.0")(root, ReadOptions()), out),
    }
    for name, use in uses.items():
        signal.alarm(LIMIT_S)
        try:
            use()
        except RobolearnError as error:
            if len(str(error)) > 2000:
                yield name, f"{type(error).__name__} of {len(str(error))} characters"
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            yield name, f"{type(error).__name__}: {str(error)[:120]} ({Path(last.filename).name}:{last.lineno})"
        finally:
            signal.alarm(0)
            shutil.rmtree(out, ignore_errors=True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, help="this many, drawn at random; all without it")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    logging.disable(logging.WARNING)

    def late(*_: Any) -> None:
        raise TimeoutError(f"longer than {LIMIT_S} s")

    signal.signal(signal.SIGALRM, late)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        whole = make(Path(folder) / "whole")
        cases = [*columns(whole), *values(whole)]
        if args.cases is not None:
            chosen = np.random.default_rng(args.seed).permutation(len(cases))[: args.cases]
            cases = [cases[i] for i in sorted(chosen)]
        found: dict[str, list[str]] = {}
        uses: Counter[str] = Counter()
        for n, (name, damage) in enumerate(cases):
            if n % 100 == 0:
                print(f"{n}/{len(cases)}", file=sys.stderr, flush=True)
            copy = Path(shutil.copytree(whole, Path(folder) / "copy"))
            damage(copy)
            for use, what in findings(copy, Path(folder) / "out"):
                uses[use] += 1
                found.setdefault(what, []).append(f"{use}: {name}")
            shutil.rmtree(copy)
    summary = {"cases": len(cases), "findings": sum(uses.values()), "kinds": {k: v[:5] for k, v in found.items()}}
    print(json.dumps(summary, indent=1))
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
