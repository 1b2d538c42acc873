"""One of several gateway processes, as its supervisor starts it: orders come on standard input, one report goes back.

Promise: it ends like a gateway that runs alone, and drains by itself when its supervisor is gone.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import msgspec

from turnwire.gateway.door.keys import KeysError
from turnwire.gateway.processes.siblings import Siblings
from turnwire.gateway.processes.supervisor import Orders, Report
from turnwire.gateway.server import StartInterrupted, run
from turnwire.gateway.setup.assembly import AssemblyError
from turnwire.gateway.stores.store import StoreError
from turnwire.gateway.telemetry.journal import start_log
from turnwire.gateway.telemetry.tracing import TracingError

__all__ = ["main"]


def main() -> None:
    """Serve as ordered."""
    os.umask(0o077)
    orders = msgspec.json.decode(sys.stdin.buffer.readline(), type=Orders)
    start_log(orders.settings.log_level, orders.settings.log_format)
    listener = socket.socket(fileno=orders.listener)
    siblings = Siblings(Path(orders.folder), orders.name)
    try:
        run(orders.settings, listener, announce=lambda line: _report(Report(ready=line)), siblings=siblings)
    except (AssemblyError, KeysError, StoreError, TracingError) as error:
        _report(Report(error=str(error)))
        sys.exit(1)
    except StartInterrupted:
        sys.exit(130)


def _report(report: Report) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
