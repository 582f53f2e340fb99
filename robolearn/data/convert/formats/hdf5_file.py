"""An HDF5 file of a stranger's, opened for reading.

An HDF5 file may refer to others: external links, external storage (any file of the disk, read as raw numbers) and
virtual data sets. Importing a stranger's file would copy what they lead to into a set, so such files are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from robolearn.core import BadInput
from robolearn.core.installation import install_command


def library() -> Any:
    """`h5py`; raises `BadInput` where it is not installed."""
    try:
        import h5py
    except ImportError:
        raise BadInput("HDF5", got="no h5py", expected="it", hint=install_command("formats")) from None
    return h5py


def open_file(path: Path) -> Any:
    """The file at `path`, for reading; raises `BadInput` where it is no HDF5."""
    try:
        return library().File(path, "r")
    except OSError as error:
        raise BadInput(f"HDF5 file {path}", got=f"no readable HDF5 ({error})") from None


@contextmanager
def damage(path: Path, part: str) -> Iterator[None]:
    """Turn h5py's errors on a damaged file, and those that a strange one leads to, into `BadInput`."""
    try:
        yield
    except (OSError, RuntimeError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInput(f"HDF5 file {path}: {part}", got=f"unreadable ({error})") from None


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
