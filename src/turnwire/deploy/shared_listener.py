"""One listening socket for all replicas of a machine, whoever started them.

Promise: a replica that comes gets the socket that those before it listen on, and one that goes, by its own will or not,
leaves it to the others with every connection that waits there. Only processes of the same user are lent to. Where a
system has no names for that, each replica has a socket of its own on the same port: one that goes then breaks the
connections that it has not accepted yet.
"""

from __future__ import annotations

import array
import contextlib
import os
import socket
import struct
import sys
import threading
import time

__all__ = ["SharedListener"]

_BACKLOG = 2048
_TRIES = 30
_AGAIN_S = 0.1
_TAKE_OVER_S = 0.05


class SharedListener:
    """The socket of a port, borrowed or made; `socket` is ours to close."""

    def __init__(self, host: str, port: int) -> None:
        self._name = f"\0turnwire-{os.getuid()}-{host}-{port}"
        self._lending: socket.socket | None = None
        self._closed = threading.Event()
        self.socket = self._found(host, port)
        if sys.platform == "linux":
            threading.Thread(target=self._lend, args=(self.socket.dup(),), name="listener", daemon=True).start()

    def close(self) -> None:
        """Lend no more, so that another does."""
        self._closed.set()
        if self._lending is not None:
            with contextlib.suppress(OSError):
                self._lending.shutdown(socket.SHUT_RDWR)

    def _found(self, host: str, port: int) -> socket.socket:
        for _ in range(_TRIES if sys.platform == "linux" else 0):
            borrowed = _borrowed(self._name)
            if borrowed is not None:
                return borrowed
            # Who has the name makes the socket: of two that start at once, one does.
            name = _named(self._name)
            if name is not None and _free(host, port):
                self._lending = name
                break
            if name is not None:
                # Others listen, and the one that lent has just gone: another of them is about to.
                name.close()
            time.sleep(_AGAIN_S)
        return _made(host, port)

    def _lend(self, own: socket.socket) -> None:
        with own:
            while self._lending is None and not self._closed.wait(_TAKE_OVER_S):
                self._lending = _named(self._name)
            lending = self._lending
            if lending is None:
                return
            with lending:
                while not self._closed.is_set():
                    try:
                        asking, _ = lending.accept()
                    except OSError:
                        return
                    with asking, contextlib.suppress(OSError):
                        if _user(asking) == os.getuid():
                            socket.send_fds(asking, [b"x"], [own.fileno()])


def _named(name: str) -> socket.socket | None:
    """The name, if nobody has it."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        found.bind(name)
        found.listen(64)
    except OSError:
        found.close()
        return None
    return found


def _borrowed(name: str) -> socket.socket | None:
    """The socket that another replica lends."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(2)
        try:
            asking.connect(name)
            if _user(asking) != os.getuid():
                return None
            _, lent, _, _ = socket.recv_fds(asking, 1, 1)
        except OSError:
            return None
    return socket.socket(fileno=lent[0]) if lent else None


def _user(connected: socket.socket) -> int:
    """The user at the other end."""
    size = struct.calcsize("3i")
    _, user, _ = array.array("i", connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return user


def _free(host: str, port: int) -> bool:
    """Whether nobody listens there."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _made(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener
