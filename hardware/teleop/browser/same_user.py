"""Whether a connection comes from a process of this user, by the kernel's own table of sockets."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LOCAL, _REMOTE, _UID = 1, 2, 7  # columns


def same_user(transport: asyncio.BaseTransport | None) -> bool:
    """Whether the other end is a socket of this machine and this user; true where the system has no such table.

    Args:
      transport: of the connection, at the server's end.
    """
    if not TABLES[0].exists():
        return True
    if transport is None:
        return False
    # What is remote here is local there.
    theirs, ours = (_spelled(*transport.get_extra_info(name)[:2]) for name in ("peername", "sockname"))
    for table in TABLES:
        rows = table.read_text().splitlines()[1:] if table.exists() else ()
        for row in map(str.split, rows):
            if row[_LOCAL] == theirs and row[_REMOTE] == ours:
                return int(row[_UID]) == os.getuid()
    return False


def _spelled(host: str, port: int) -> str:
    """An address as the table has it: words of 32 bits in the byte order of the machine, then the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    packed = socket.inet_pton(family, host)
    words = [packed[i : i + 4] for i in range(0, len(packed), 4)]
    if sys.byteorder == "little":
        words = [word[::-1] for word in words]
    return f"{b''.join(words).hex().upper()}:{port:04X}"
