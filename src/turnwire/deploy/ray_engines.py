"""Engines that Ray places, and how gateways find them.

    serve run --name engines turnwire.deploy.ray_engines:engines command='vllm serve MODEL --port {port}' gpus=1
    serve run --name turnwire turnwire.deploy.ray:direct engines=engines store=redis://redis:6379/0 seal_key=...

Promise: each replica is one engine server, started by its command on a free port of its machine and ended with the
replica; Ray replaces one whose server has ended. The workers of a gateway that names the application are the engines
that run, a few seconds after they come and go; a turn on one that goes is moved as from any worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shlex
import socket
from typing import Any

import aiohttp
import msgspec

import ray
from ray import serve
from turnwire.gateway.settings import Settings
from turnwire.gateway.setup.worker_list import apply_engines
from turnwire.gateway.turns.runtime import ModelRuntime

__all__ = ["EngineReplica", "PlacedEngines", "engines"]

log = logging.getLogger("turnwire.ray")

_DEPLOYMENT = "engine"


def engines(flags: dict[str, Any]) -> serve.Application:
    """Engine servers. `command` starts one, with `{port}` and `{host}` in it; `kind` is what it speaks (vllm),
    `replicas` their number, `gpus` and `cpus` what each needs, `start_timeout` how long it may load, in seconds."""
    needs = {"num_gpus": float(flags.get("gpus", 0)), "num_cpus": float(flags.get("cpus", 1))}
    return (
        serve.deployment(EngineReplica)
        .options(
            name=_DEPLOYMENT,
            num_replicas=int(flags.get("replicas", 1)),
            ray_actor_options=needs,
            graceful_shutdown_wait_loop_s=0.5,
            graceful_shutdown_timeout_s=EngineReplica.LEAVE_S + 20,
            health_check_period_s=2,
        )
        .bind(flags["command"], flags.get("kind", "vllm"), float(flags.get("start_timeout", 1800)))
    )


class EngineReplica:
    """One engine server."""

    # How long a replica that Ray stops goes on, so that gateways learn of it and turns end, in seconds.
    LEAVE_S = 20.0

    async def __init__(self, command: str, kind: str, start_timeout: float) -> None:  # type: ignore[misc]  # Ray awaits it
        host = ray.util.get_node_ip_address()
        with socket.socket() as found:
            found.bind((host, 0))
            port = found.getsockname()[1]
        self._address = f"{kind}:http://{host}:{port}"
        self._process = await asyncio.create_subprocess_exec(*shlex.split(command.format(host=host, port=port)))
        try:
            async with asyncio.timeout(start_timeout):
                await self._answers(f"http://{host}:{port}/health")
        except BaseException:
            await self._ended()
            raise

    async def _answers(self, url: str) -> None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            while self._process.returncode is None:
                with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                    async with session.get(url) as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(0.5)
        raise RuntimeError(f"the engine ended with {self._process.returncode} before it answered")

    async def address(self) -> str:
        """Where its engine is, as a gateway takes it."""
        return self._address

    async def check_health(self) -> None:
        """Ray replaces a replica whose engine has ended."""
        if self._process.returncode is not None:
            raise RuntimeError(f"the engine has ended with {self._process.returncode}")

    async def __del__(self) -> None:
        """Ray stops this replica, and has stopped telling gateways of it: their turns end first."""
        if self._process.returncode is None:
            await asyncio.sleep(self.LEAVE_S)
        await self._ended()

    async def _ended(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(10):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()


class PlacedEngines:
    """The engines of an application, as a gateway sees them."""

    # How often they are asked for, in seconds.
    LOOK_S = 2.0

    def __init__(self, application: str) -> None:
        self._handle = serve.get_deployment_handle(_DEPLOYMENT, application)

    async def addresses(self) -> list[str]:
        """Where they are. Raises where one that runs does not answer."""
        found = await self._handle.broadcast("address").results_async(timeout_s=10)
        return sorted(found)

    async def first(self) -> list[str]:
        """The same, once there are some."""
        while True:
            try:
                if found := await self.addresses():
                    return found
            except Exception as error:
                log.info("no engine is known yet: %s", error)
            await asyncio.sleep(self.LOOK_S)

    async def keep(self, runtimes: list[ModelRuntime], settings: Settings) -> None:
        """Bring the workers to the engines that run, again and again."""
        while True:
            await asyncio.sleep(self.LOOK_S)
            try:
                found = await self.addresses()
            except Exception as error:
                # One that ends just now does not answer; the next look is without it.
                log.info("engines were not looked up: %s", error)
                continue
            if found:
                await apply_engines(runtimes, msgspec.structs.replace(settings, engine=",".join(found)))
