"""A Ray with the gateway on it, as a process that can be measured from outside.

    python -m benchmarks.ray.serving WAY PORT REPLICAS SETTINGS

WAY is `direct` or `app`, SETTINGS a JSON object. Promise: it serves until it is told to end; Ray's processes are its
own children, so that their CPU time can be read with its own.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import ray
from ray import serve


def main(arguments: list[str]) -> None:
    way, port, replicas, settings = arguments
    os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    from turnwire.deploy.ray import app, direct

    count = int(replicas)
    ray.init(num_cpus=count + 1, include_dashboard=False, object_store_memory=100_000_000, configure_logging=False)
    if way == "direct":
        serve.start(proxy_location="Disabled")
    else:
        serve.start(http_options={"host": "127.0.0.1", "port": int(port)})
    flags = {**json.loads(settings), "replicas": count, "port": int(port)}
    if way == "direct":
        serve.run(direct(flags), name="turnwire", route_prefix=None)
    else:
        serve.run(app(flags), name="turnwire", route_prefix="/")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        signal.pause()
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main(sys.argv[1:])
