"""Kill a recording at random moments, again and again: the set must open each time and no finished episode be lost.

    python tests/programs/crash.py --kills 200            what `make test-crash` runs
    python tests/programs/crash.py --kills 20 --seed 7 --keep FOLDER

Every recorder is a process of its own, forked from this one to save the imports, that resumes the set, records short
episodes of a vector and two cameras as fast as it can, and says when `end` has returned. SIGKILL comes at a random
moment: while it resumes, records, encodes, commits. Another process then opens the set and compares what is in it
with what must be. Now and then `repair` comes before it, and the episode it saves must be whole up to its end.

Edits, splits and repairs are victims, too: the set they read stays as it is, what they were to make is whole or not
there, of a split all parts or none but for the moment between two renames, and what they leave is found and cleared.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from robolearn.core import ArraySpec, Interface
from robolearn.data import Dataset, EpisodeWriter
from robolearn.data.convert import edit
from robolearn.data.convert.source import open_numbers, write_dataset, write_datasets
from robolearn.data.writing.repair import repair
from robolearn.data.writing.uncommitted import clear, leftovers

CAMERAS = ("front", "wrist")
SIZE = 64
INTERFACE = Interface(
    {"proprio": ArraySpec((3,))} | {f"images.{camera}": ArraySpec((SIZE, SIZE, 3), "uint8") for camera in CAMERAS},
    ArraySpec((2,)),
    control_hz=20.0,
)
STARTING_S = 0.5  # a fifth of the kills comes within this time of the start, whatever the recorder does then
MOST = 6  # the others come after so many of its messages at most, within about the time between two
PER_SET = 40  # kills, then a new set begins
EDITS = ("drop", "split", "repair")
EDIT_S = 0.4  # within which an edit is killed
LOOKED_AT = 2  # episodes at the end of the set whose images are decoded after each kill; at the end all are

LEROBOT = """
import json, os, sys
os.environ["HF_HUB_OFFLINE"] = "1"
from lerobot.datasets.lerobot_dataset import LeRobotDataset
root = sys.argv[1]
data = LeRobotDataset("crash/test", root=root, video_backend="pyav")
assert len(data) == json.load(open(root + "/meta/info.json"))["total_frames"]
for i in (0, len(data) // 2, len(data) - 1):
    step = data[i]
    assert step["observation.images.front"].shape[0] == 3
    assert float(step["observation.state"][1]) == int(step["frame_index"])
"""


def color(episode: int, step: int, camera: int) -> int:
    """What every pixel of an image says about its place."""
    return 20 + (37 * episode + 11 * step + 90 * camera) % 200


def length(episode: int) -> int:
    return 3 + 7 * episode % 29


def record(root: Path, out: int) -> None:
    """Resume and record until killed; write a byte to `out` after every finished episode."""
    with EpisodeWriter(root, INTERFACE, resume=True, stamps=("proprio",), task="count") as writer:
        os.write(out, b"b")
        while True:
            e = writer.episodes
            for t in range(length(e)):
                images = {
                    f"images.{name}": np.full((SIZE, SIZE, 3), color(e, t, c), np.uint8)
                    for c, name in enumerate(CAMERAS)
                }
                writer.add({"proprio": [e, t, -t], **images}, [0, t / 100], stamps={"proprio": t / 20})
            writer.end(success=True, terminated=True)
            os.write(out, b"e")


def check(root: Path, least: int, saved: list[int], everything: bool) -> int:
    """Open the set and compare it; returns the number of its episodes, of which `saved` are from repairs."""
    info = root / "meta/info.json"
    if not info.exists() or not json.loads(info.read_text())["total_episodes"]:
        assert not least, f"{least} finished episodes are gone"
        return 0
    dataset = Dataset.open(root, cache=False)
    assert dataset.episodes - least in (0, 1), f"{dataset.episodes} episodes, {least} were finished"
    looked_at = range(dataset.episodes) if everything else range(dataset.episodes)[-LOOKED_AT:]
    for index in range(dataset.episodes):
        episode = dataset.episode(index)
        steps = np.arange(len(episode))
        recorded = int(episode.observation["proprio"][0, 0])
        assert np.array_equal(episode.observation["proprio"], np.stack([0 * steps + recorded, steps, -steps], 1))
        assert np.array_equal(episode.stamps["proprio"], steps / 20) and episode.task == "count"
        if index in saved:
            assert not episode.success and len(episode) <= length(recorded) and recorded <= index
        else:
            assert episode.success and len(episode) == length(index) and recorded == index
        for c, name in enumerate(CAMERAS if index in looked_at else ()):
            shown = episode.observation[f"images.{name}"].astype(int).mean(axis=(1, 2, 3))
            assert np.abs(shown - [color(recorded, int(t), c) for t in steps]).max() < 4, f"{name}, episode {index}"
    return dataset.episodes


def mended(root: Path) -> dict[str, Any]:
    return vars(repair(root))


def in_child(work: Callable[[int], Any]) -> tuple[int, int]:
    """Fork; the child does `work` with the end of a pipe to write to. Returns its process and the end to read from."""
    reading, writing = os.pipe()
    child = os.fork()
    if child:
        os.close(writing)
        return child, reading
    code = 1
    try:
        os.close(reading)
        answer = work(writing)
        os.write(writing, json.dumps(answer).encode())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def asked(work: Callable[..., Any], *arguments: Any) -> Any:
    """What `work` (`arguments`) returns, done in a child.

    Raises:
      SystemExit: it failed.
    """
    child, reading = in_child(lambda _: work(*arguments))
    answer = read_all(reading)
    _, status = os.waitpid(child, 0)
    if status:
        raise SystemExit(1)
    return json.loads(answer)


def read_all(reading: int) -> bytes:
    content = b""
    while part := os.read(reading, 1 << 16):
        content += part
    os.close(reading)
    return content


def killed(root: Path, rng: np.random.Generator) -> int:
    """Start a recorder and kill it at a random moment; returns how many episodes it said were finished."""
    child, reading = in_child(lambda out: record(root, out))
    said = b""
    if rng.random() < 0.2:
        time.sleep(rng.uniform(0.0, STARTING_S))
    else:
        times = [time.monotonic()]
        for _ in range(rng.integers(1, MOST + 1)):
            said += (part := os.read(reading, 1))
            if not part:
                break  # the recorder is gone
            times.append(time.monotonic())
        time.sleep(rng.uniform(0.0, 1.2 * (times[-1] - times[-2])))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        raise SystemExit("the recorder ended by itself")
    return (said + read_all(reading)).count(b"e")


def edited(kind: str, root: Path, out: Path) -> None:
    """Do what is to be killed: an edit of `root` into `out`, or its repair."""
    dataset = open_numbers(root)
    if kind == "repair":
        repair(root)
    elif kind == "split":
        parts = [edit.keep(dataset, part) for part in edit.split(dataset, (1, 1), 0)]
        write_datasets(parts, [out / "one", out / "two"], lambda _: None)
    else:
        write_dataset(edit.drop(dataset, [0]), out / "one")


def edit_killed(kind: str, root: Path, rng: np.random.Generator) -> None:
    """Kill an edit at a random moment, and check what is there, and what is left."""
    out = root.parent / f".{root.name}-edits"
    out.mkdir(exist_ok=True)
    child, reading = in_child(lambda _: edited(kind, root, out))
    time.sleep(rng.uniform(0.0, EDIT_S))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reading)
    total = open_numbers(root).episodes
    made = {path.name: open_numbers(path).episodes for path in out.iterdir() if not path.name.startswith(".")}
    left = {path.name for path in out.iterdir() if path.name.startswith(".")}
    assert left == {one.path.name for one in leftovers(out)}, f"{left} is not found"
    if kind == "drop":
        assert made in ({}, {"one": total - 1})
    if kind == "split":  # the last part is renamed first; the other one is whole then, too
        half = [len(part) for part in edit.split(open_numbers(root), (1, 1), 0)]
        assert made in ({}, {"two": half[1]}, {"one": half[0], "two": half[1]})
        assert len(made) != 1 or open_numbers(out / ".one.part/set").episodes == half[0]
    for one in list(leftovers(out)):
        clear(one)
    assert {path.name for path in out.iterdir()} == set(made)
    shutil.rmtree(out)


def run(kills: int, seed: int, keep: Path) -> dict[str, int]:
    """The test; returns what was counted."""
    rng = np.random.default_rng(seed)
    counts = {"kills": 0, "sets": 0, "episodes": 0, "saved": 0, "saved_frames": 0, "lost_frames": 0}
    counts |= dict.fromkeys(EDITS, 0)
    root, episodes, saved = keep, 0, []
    for kill in range(kills):
        if kill % PER_SET == 0:
            root, episodes, saved = keep / f"{kill // PER_SET}", 0, []
            counts["sets"] += 1
        finished = killed(root, rng)
        last = kill % PER_SET == PER_SET - 1 or kill == kills - 1
        least = episodes + finished
        episodes = asked(check, root, least, saved, last)
        if (root / "meta/info.json").exists() and (last or rng.random() < 0.25):
            done = asked(mended, root)
            saved += [number for number, _ in done["saved"]]
            episodes += len(done["saved"])
            counts["saved"] += len(done["saved"])
            counts["saved_frames"] += sum(frames for _, frames in done["saved"])
            counts["lost_frames"] += done["lost"]
            assert episodes == done["episodes"], f"{done['episodes']} episodes after the repair, {episodes} expected"
            asked(check, root, episodes, saved, last)
        if episodes > 2 and rng.random() < 0.25:
            kind = str(rng.choice(EDITS))
            asked(edit_killed, kind, root, rng)
            total = asked(mended, root)["episodes"]  # of a killed repair, too, that had saved one
            saved, episodes = [*saved, *range(episodes, total)], total
            asked(check, root, episodes, saved, False)
            counts[kind] += 1
        counts["kills"] += 1
        if last:
            counts["episodes"] += episodes
        if sys.stderr.isatty() or last:
            print(f"kill {kill + 1} of {kills}: {episodes} episodes", file=sys.stderr, flush=True)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None, help="by default another one each time; it is printed")
    parser.add_argument("--lerobot-python", help="an interpreter with LeRobot, which then opens the sets, too")
    parser.add_argument("--keep", type=Path, default=None, help="leave the sets in this folder")
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else int.from_bytes(os.urandom(3), "little")
    print(f"seed {seed}", file=sys.stderr, flush=True)
    logging.disable(logging.WARNING)
    folder = args.keep or Path(tempfile.mkdtemp(prefix="robolearn-crash-"))
    counts = run(args.kills, seed, folder)
    for root in sorted(folder.iterdir()) if args.lerobot_python else ():
        subprocess.run([args.lerobot_python, "-c", LEROBOT, str(root)], check=True, cwd=folder)
    print(json.dumps({"seed": seed} | counts))
    if args.keep is None:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
