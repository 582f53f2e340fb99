"""The film of the first page: three starts, by imitation and after RL. `python tests/programs/first_page_film.py
runs/quickstart robolearn/film.webp`, after `make quickstart`.

The starts are the first three that imitation fails, of the seed of the report's evaluation; nothing else is chosen.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import av
import cv2
import numpy as np
from PIL import Image

from robolearn import evaluate, make_env, open_policy
from robolearn.eval.video import Choice, record_episodes

EPISODES, SEED, STARTS = 64, 1000, 3
SIZE, HZ = (320, 240), 10  # width and height [px], pictures a second


def films(run: Path, starts: list[int] | None) -> tuple[list[int], list[list[np.ndarray]]]:
    """The worlds whose first episode is shown, those of `starts` or that failed, and their pictures."""
    env, policy = make_env("lift", EPISODES), open_policy(run)
    evaluation = evaluate(env, policy, episodes=EPISODES, seed=SEED)
    first = {int(evaluation.world[row]): row for row in range(EPISODES) if evaluation.index[row] == 0}
    chosen = starts or sorted(world for world, row in first.items() if not evaluation.succeeded[row])[:STARTS]
    with tempfile.TemporaryDirectory() as folder:
        choices = [Choice(first[world], f"{world}", "") for world in chosen]
        videos = record_episodes(env, policy, evaluation, Path(folder), choices=choices)
        return chosen, [pictures(video.path) for video in videos]


def pictures(path: Path) -> list[np.ndarray]:
    """Every second picture of a film of 20 Hz, small."""
    with av.open(str(path)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    return [cv2.resize(frame, SIZE, interpolation=cv2.INTER_AREA) for frame in frames[:: 20 // HZ]]


def main(run: Path, out: Path) -> None:
    starts, before = films(run / "bc", None)
    _, after = films(run / "rl", starts)
    rows = []
    for left, right in zip(before, after, strict=True):
        most = max(len(left), len(right))
        held = [film + film[-1:] * (most - len(film)) for film in (left, right)]
        names = ("imitation", "after RL")
        rows += [
            np.hstack([named(p, name) for p, name in zip(pair, names, strict=True)]) for pair in zip(*held, strict=True)
        ]
    made = [Image.fromarray(row) for row in rows]
    made[0].save(out, save_all=True, append_images=made[1:], duration=1000 // HZ, loop=0, quality=60, method=6)
    print(f"{out}: {len(rows)} pictures, {out.stat().st_size / 1e6:.2f} MB, worlds {starts} of seed {SEED}")


def named(picture: np.ndarray, name: str, colour: tuple[int, int, int] = (40, 40, 40)) -> np.ndarray:
    """`picture` over a bar of `colour` that has its name."""
    bar = np.full((24, picture.shape[1], 3), colour, np.uint8)
    cv2.putText(bar, name, (8, 17), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (255, 255, 255), 1, cv2.LINE_AA)
    return np.vstack([picture, bar])


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
