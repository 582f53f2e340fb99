"""Files against the checksums of the set, where it has some: damage is told from what was recorded or edited since.

A file that differs is damaged, unless something shows that it was written anew: another size under another time of
change, or another time where files that are as they were have kept theirs (a copy may have lost all of them). Where
that is so, or the set has more frames, rows or films than the checksums are of, the checksums are stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from robolearn.core import BadInput
from robolearn.data.lerobot import layout
from robolearn.data.lerobot.checksums import BLOCK, CHECKSUMS_PATH, FileSums, blocks_of, files_of, read_as
from robolearn.data.validate.opened import Defect, Opened, Tolerances

GROWS = ("data/", "videos/", "meta/episodes/")  # where a recording has new files


def compared(
    data: Opened, limits: Tolerances, digests: Callable[[Path], Iterable[str]] = blocks_of
) -> tuple[list[Defect], list[str]]:
    """Damage, and a remark on checksums that are stale. Films are only looked at where they are decoded, too.

    Args:
      digests: those of the blocks of a file.
    """
    root = data.root
    if data.live or not (root / CHECKSUMS_PATH).exists():
        return [], []
    try:
        known = read_as(layout.read_json(root, CHECKSUMS_PATH), CHECKSUMS_PATH)
    except BadInput as error:
        return [Defect("checksums", str(error).removeprefix(f"data set {root}: "), CHECKSUMS_PATH)], []
    there = set(files_of(root))
    other, same_time, later = {}, False, set[str]()
    for name, sums in known.items():
        if name not in there:
            other[name] = "the file is not there"
            later.add(name)
            continue
        time = (root / name).stat().st_mtime_ns
        if found := _difference(root / name, sums, limits.decode or not name.startswith("videos/"), digests):
            other[name] = found
            later |= {name} if time != sums.mtime_ns else set()
        else:
            same_time |= time == sums.mtime_ns
    new = sorted(there - known.keys())
    resized = any(name in there and (root / name).stat().st_size != known[name].size for name in later)
    rewritten = same_time and any(name in there for name in later)
    since = resized or rewritten or any(name.startswith(GROWS) for name in new)
    stale = [name for name in other if since and name in later] + new
    damage = [Defect("checksum", other[name], name) for name in other if name not in stale]
    if not stale:
        return damage, []
    count = "1 file has" if len(stale) == 1 else f"{len(stale)} files have"
    renew = f"`robolearn dataset checksums {root}` renews them"
    return damage, [f"stale checksum: {count} changed since {CHECKSUMS_PATH} was written ({stale[0]}); {renew}"]


def _difference(path: Path, sums: FileSums, whole: bool, digests: Callable[[Path], Iterable[str]]) -> str:
    """The difference of a file from its checksums, in words; its bytes are only read where `whole` is true."""
    if (size := path.stat().st_size) != sums.size:
        return f"{size} bytes, {sums.size} by {CHECKSUMS_PATH}"
    if not whole:
        return ""
    try:
        found = list(digests(path))
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
    wrong = [number for number, (is_, was) in enumerate(zip(found, sums.sha256, strict=False)) if is_ != was]
    if not wrong:
        return ""
    first, last = wrong[0] * BLOCK, min((wrong[0] + 1) * BLOCK, size) - 1
    more = f", and in {len(wrong) - 1} more blocks" if len(wrong) > 1 else ""
    return f"other bytes than by {CHECKSUMS_PATH}, in {first} to {last}{more}"
