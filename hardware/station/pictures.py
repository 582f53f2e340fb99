"""Cameras: one publisher, an encoding that is read, a size that the policy's can be made of, pictures that change."""

from __future__ import annotations

from collections.abc import Iterator

from hardware.station.lines import Finding
from hardware.station.seen import PictureSample, SeenTopic
from robots.stations import Camera

DARK = 2.0  # mean of a picture [0 to 255] below which a lens is covered or the camera sends nothing
SQUASHED = 1.02  # ratio of the two scales, beyond which pictures are squashed to their size


def one_camera(what: str, seen: SeenTopic) -> Iterator[Finding]:
    """Two cameras on one topic alternate."""
    senders = seen.senders(seen.samples)
    if len({sample.sender for sample in seen.samples}) > 1:
        found = f"several: {' and '.join(sorted(senders))}"
        yield Finding(f"{what} publishers", False, found, "end one of them, or give it another topic")


def values(what: str, name: str, camera: Camera, seen: SeenTopic, *, simulated: bool) -> Iterator[Finding]:
    """Encoding, size and content. A `simulated` world at rest looks the same in every picture; a real one has noise."""
    samples = [s for s in seen.samples if isinstance(s, PictureSample)]
    newest = samples[-1]
    if newest.problem:
        yield Finding(f"{what} pictures", False, newest.problem, f"another encoding, or cameras.{name}.type")
        return
    sizes = sorted({s.size for s in samples})
    (height, width), (want_height, want_width) = newest.size, camera.size
    found = f"{width}×{height} {newest.encoding} → {want_width}×{want_height}"
    if len(sizes) > 1:
        yield Finding(
            f"{what} size", False, f"{len(sizes)} sizes, {sizes[0]} to {sizes[-1]}", "one source for the topic"
        )
    elif height < want_height or width < want_width:
        fix = f"a larger mode of the camera, or cameras.{name}.size: [{height}, {width}]"
        yield Finding(f"{what} size", False, f"{found}: smaller than the policy's", fix)
    else:
        ratio = (width / want_width) / (height / want_height)
        if not 1 / SQUASHED <= ratio <= SQUASHED:
            fix = "right if the policy was trained so; otherwise cut it to the shape of its size"
            yield Finding(f"{what} size", False, f"{found}: squashed", fix, needed=False)
        else:
            yield Finding(f"{what} size", True, found)
    if max(s.brightness for s in samples) < DARK:
        yield Finding(f"{what} pictures", False, "all black", "the lens cap, exposure, the light")
    elif not simulated and len(samples) > 3 and len({s.checksum for s in samples}) == 1:
        found = f"the same {len(samples)} times, to the last bit"
        yield Finding(f"{what} pictures", False, found, "the camera has stopped: start its driver again", needed=False)
    else:
        yield Finding(f"{what} pictures", True, f"{len({s.checksum for s in samples})} different ones")
