"""Cameras: one publisher, an encoding that is read, a size that the policy's can be made of, pictures that change."""

from __future__ import annotations

from collections.abc import Iterator

from hardware.station.seen import Finding, LensSample, PictureSample, SeenTopic
from robolearn.core import BadInput
from robots.stations import Camera
from robots.stations.pictures import crop_of

DARK = 2.0  # mean of a picture [0 to 255] below which a lens is covered or the camera sends nothing
LENS = 0.01  # of the width, by which focal lengths and centre may differ from the contract's
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
    yield _size(what, name, camera, samples)
    if max(s.brightness for s in samples) < DARK:
        yield Finding(f"{what} pictures", False, "all black", "the lens cap, exposure, the light")
    elif not simulated and len(samples) > 3 and len({s.checksum for s in samples}) == 1:
        found = f"the same {len(samples)} times, to the last bit"
        yield Finding(f"{what} pictures", False, found, "the camera has stopped: start its driver again", needed=False)
    else:
        yield Finding(f"{what} pictures", True, f"{len({s.checksum for s in samples})} different ones")


def _size(what: str, name: str, camera: Camera, samples: list[PictureSample]) -> Finding:
    """The size of the raw pictures, and whether the policy's can be cut and made of them."""
    newest, sizes = samples[-1], sorted({s.size for s in samples})
    (height, width), (want_height, want_width) = newest.size, camera.size
    line = f"{what} size"
    if len(sizes) > 1:
        return Finding(line, False, f"{len(sizes)} sizes, {sizes[0]} to {sizes[-1]}", "one source for the topic")
    try:
        _, _, cut_height, cut_width = crop_of(camera, newest.size)
    except BadInput as error:
        return Finding(line, False, str(error), f"cameras.{name}.crop, or another mode of the camera")
    cut = f", cut to {cut_width}×{cut_height}" if (cut_height, cut_width) != newest.size else ""
    found = f"{width}×{height} {newest.encoding}{cut} → {want_width}×{want_height}"
    if cut_height < want_height or cut_width < want_width:
        fix = f"a larger mode of the camera, or cameras.{name}.size: [{cut_height}, {cut_width}]"
        return Finding(line, False, f"{found}: smaller than the policy's", fix)
    ratio = (cut_width / want_width) / (cut_height / want_height)
    if not 1 / SQUASHED <= ratio <= SQUASHED:
        fix = f"right if the policy was trained so; otherwise cameras.{name}.crop: center"
        return Finding(line, False, f"{found}: squashed", fix, needed=False)
    return Finding(line, True, found)


def lens(what: str, name: str, camera: Camera, seen: SeenTopic) -> Finding:
    """The driver's camera info against the contract's intrinsics."""
    line, wanted = f"{what} lens", camera.intrinsics
    samples = [s for s in seen.samples if isinstance(s, LensSample)]
    if not samples:
        fix = f"start the driver's info, or leave cameras.{name}.info out"
        return Finding(line, False, f"nothing on {camera.info}", fix, needed=False)
    (height, width), k = samples[-1].size, samples[-1].matrix
    if not (k[0] > 0 and k[4] > 0):
        return Finding(line, False, "not calibrated: its matrix is 0", "calibrate the lens (camera_calibration)", False)
    found = f"{width}×{height}, fx {k[0]:.1f}, fy {k[4]:.1f}, cx {k[2]:.1f}, cy {k[5]:.1f} px"
    if wanted is None:
        return Finding(line, True, found)
    scale = height / wanted.size[0], width / wanted.size[1]
    own = (wanted.fx * scale[1], wanted.fy * scale[0], wanted.cx * scale[1], wanted.cy * scale[0])
    off = max(abs(a - b) / width for a, b in zip((k[0], k[4], k[2], k[5]), own, strict=True))
    same_shape = abs(scale[0] / scale[1] - 1.0) < LENS
    if off <= LENS and same_shape:
        return Finding(line, True, found)
    numbers = ", ".join(f"{value:.1f}" for value in own)
    expected = f"the contract has fx, fy, cx, cy {numbers} px at that size" if same_shape else "of another shape"
    fix = f"cameras.{name}.intrinsics of this camera and mode; then robolearn calibrate again"
    return Finding(line, False, f"{found}; {expected}", fix)
