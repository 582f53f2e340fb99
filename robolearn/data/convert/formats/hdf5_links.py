"""What an HDF5 file holds itself, and what it takes from elsewhere.

A file may name others: external links, external storage (any file of the disk, read as raw numbers) and virtual data
sets. Importing a stranger's file would copy what they lead to into a set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from robolearn.core import BadInput


def check_own(file: Any, path: Path) -> None:
    """Raise `BadInput` unless all that the open h5py `file` leads to lies in itself; `path` is for the message."""
    import h5py

    seen: set[Any] = set()
    groups = [file]
    while groups:
        group = groups.pop()
        for name in group:
            link = group.get(name, getlink=True)
            where = f"{group.name.rstrip('/')}/{name}"
            if isinstance(link, h5py.SoftLink):  # leads to another place of this file, which is looked at there
                continue
            if not isinstance(link, h5py.HardLink):
                raise _refusal(path, where, f"a link to {getattr(link, 'filename', 'something else')}")
            found = group[name]
            if isinstance(found, h5py.Group):
                address = h5py.h5o.get_info(found.id).addr  # pyright: ignore[reportAttributeAccessIssue]
                if address not in seen:  # a group may contain itself
                    seen.add(address)
                    groups.append(found)
            elif isinstance(found, h5py.Dataset):
                if found.external:
                    raise _refusal(path, where, f"numbers in {found.external[0][0]}")
                if found.is_virtual:
                    raise _refusal(path, where, f"a view of {found.virtual_sources()[0].file_name}")


def _refusal(path: Path, where: str, got: str) -> BadInput:
    return BadInput(f"HDF5 file {path}: {where}", got=got, expected="everything in the file itself")
