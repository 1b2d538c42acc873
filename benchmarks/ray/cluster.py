"""A Ray of several nodes on this machine, and the gateway's replicas on it.

Promise: the nodes are those of Ray's own test utilities, each a raylet with workers of its own; everything ends with
the context.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from ray.cluster_utils import Cluster

import ray
from ray import serve

_ENVIRONMENT = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def nodes(count: int, cores: float = 2) -> Iterator[tuple[Cluster, int]]:
    """As many nodes, each with so many cores to give away; the port of Ray's proxy, which runs on the first."""
    os.environ |= _ENVIRONMENT
    given = {"num_cpus": cores, "object_store_memory": 100_000_000, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=given)
    try:
        for _ in range(count - 1):
            cluster.add_node(num_cpus=cores, object_store_memory=100_000_000)
        cluster.wait_for_nodes()
        ray.init(address=cluster.address, configure_logging=False, log_to_driver=False)
        port = free_port()
        serve.start(proxy_location="HeadOnly", http_options={"host": "127.0.0.1", "port": port})
        yield cluster, port
        serve.shutdown()
    finally:
        ray.shutdown()
        cluster.shutdown()


class Application(msgspec.Struct):
    """One application of a Serve config file: where it is built, with what, and as how many replicas; with `scaling`,
    so many at first."""

    way: str
    settings: dict[str, Any]
    replicas: int
    name: str = "turnwire"
    route: str | None = None
    deployment: str = "turnwire"
    scaling: dict[str, Any] | None = None

    def said(self) -> dict[str, Any]:
        """As the file says it."""
        many: dict[str, Any] = {"num_replicas": self.replicas}
        if self.scaling is not None:
            many = {"autoscaling_config": self.scaling}
        return {
            "name": self.name,
            "import_path": f"turnwire.deploy.{self.way}",
            "route_prefix": self.route,
            "args": self.settings,
            "deployments": [{"name": self.deployment, **many}],
        }


async def deploy(*applications: Application) -> None:
    """What `serve deploy` does with a file that says so: another number of replicas is no new version of them."""
    from ray.serve.schema import ServeDeploySchema

    said = ServeDeploySchema(applications=[application.said() for application in applications])
    await asyncio.to_thread(serve.context._get_global_client().deploy_apps, said)
    async with asyncio.timeout(180):
        while not all(map(_runs, applications)):  # noqa: ASYNC110
            await asyncio.sleep(0.5)


def _runs(application: Application) -> bool:
    known = serve.status().applications.get(application.name)
    if known is None or application.deployment not in known.deployments:
        return False
    if known.status == "DEPLOY_FAILED":
        raise RuntimeError(known.message)
    states = known.deployments[application.deployment].replica_states
    return known.status == "RUNNING" and states == {"RUNNING": application.replicas}


class Replicas:
    """What a storm needs of a gateway: its address, and the processes that serve."""

    def __init__(self, address: str) -> None:
        self.address = address

    def processes(self) -> list[int]:
        """The replicas' processes."""
        return [pid for pid in _descendants(os.getpid()) if _title(pid).startswith("ray::ServeReplica:turnwire")]

    def nodes(self) -> set[str]:
        """The nodes on which replicas run: each replica is a child of its node's raylet."""
        return {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1] for pid in self.processes()}

    async def number(self, count: int) -> None:
        """Wait until there are so many of them."""
        async with asyncio.timeout(180):
            while len(self.processes()) != count:  # noqa: ASYNC110
                await asyncio.sleep(0.2)


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in thread.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *_descendants(child)]
    return found


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
