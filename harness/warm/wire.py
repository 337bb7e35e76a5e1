"""What the stand-ins and the fork server say to each other over a Unix socket.

A message is a length and JSON; the first one carries the stand-in's standard streams. Standard library
only: a stand-in must start in milliseconds.
"""

from __future__ import annotations

import array
import json
import socket
import struct
import sys
from typing import Any

# The socket's abstract address (no file that a killed run could leave) travels in this variable.
ADDRESS_VARIABLE = "VERLOCK_FORK_SERVER"
# Where Ray's workers are forked, if that is another server than the one of Ray's own services.
WORKERS_VARIABLE = "VERLOCK_FORK_WORKERS"
# The key of a message that is no request for a child: the environment of the run that workers are for.
RUN = "run"
_BACKLOG = 64
_LENGTH = struct.Struct("!I")
_LIMIT = 16 * 1024 * 1024
_STREAMS = 3


def listen(address: str) -> socket.socket:
    """Listen at the address; ``OSError`` while another has it."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind("\0" + address)
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def connect(address: str, *, timeout: float) -> socket.socket:
    """Connect to the server; ``OSError`` when it is not there."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(timeout)
        connection.connect("\0" + address)
    except OSError:
        connection.close()
        raise
    return connection


def peer(connection: socket.socket) -> tuple[int, int]:
    """The pid and the user id at the other end, as the kernel knows them."""
    if sys.platform != "linux":
        raise OSError("the fork server is for Linux")
    size = struct.calcsize("3i")
    pid, user, _group = struct.unpack(
        "3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    )
    return pid, user


def send(connection: socket.socket, message: dict[str, Any], streams: tuple[int, ...] = ()) -> None:
    """Send one message, with file descriptors if there are any."""
    body = json.dumps(message).encode()
    head = _LENGTH.pack(len(body))
    if streams:
        rights = (socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", streams))
        connection.sendmsg([head], [rights])
    else:
        connection.sendall(head)
    connection.sendall(body)


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """One message and the descriptors that came with it; ``None`` at the end of the connection."""
    descriptors = array.array("i")
    head, ancillary, _flags, _address = connection.recvmsg(
        _LENGTH.size, socket.CMSG_SPACE(_STREAMS * descriptors.itemsize)
    )
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
    if not head:
        return None
    head += _exactly(connection, _LENGTH.size - len(head))
    (length,) = _LENGTH.unpack(head)
    if length > _LIMIT:
        message = f"a message of {length} bytes is none of ours"
        raise ConnectionError(message)
    return json.loads(_exactly(connection, length)), list(descriptors)


def _exactly(connection: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = connection.recv(length - len(parts))
        if not part:
            message = "the connection ended within a message"
            raise ConnectionError(message)
        parts += part
    return bytes(parts)
