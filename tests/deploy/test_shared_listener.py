"""Replicas of one machine that share a listening socket: what waits there survives whoever goes."""

from __future__ import annotations

import os
import socket
import sys
import time

import pytest

from turnwire.deploy.shared_listener import SharedListener

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs abstract socket names")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def same(one: SharedListener, other: SharedListener) -> bool:
    return os.fstat(one.socket.fileno()).st_ino == os.fstat(other.socket.fileno()).st_ino


def gone(listener: SharedListener) -> None:
    listener.close()
    listener.socket.close()


def test_who_goes_leaves_what_waits_to_the_others() -> None:
    port = free_port()
    first, second = SharedListener("127.0.0.1", port), SharedListener("127.0.0.1", port)
    assert same(first, second)
    with socket.create_connection(("127.0.0.1", port), 5) as client:
        gone(first)
        accepted, _ = second.socket.accept()
        with accepted:
            accepted.sendall(b"here")
            assert client.recv(4) == b"here"
    # The second lends now: not at once, but before the next gives up asking.
    third = SharedListener("127.0.0.1", port)
    assert same(second, third)
    gone(second)
    gone(third)
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.05)
    raise AssertionError("the port is still open")


def test_a_port_that_another_program_has_is_an_error() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(OSError, match="in use"):
            SharedListener("127.0.0.1", other.getsockname()[1])
