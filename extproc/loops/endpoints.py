"""Where a pool's endpoints are at this moment: listed, in a file that is followed, or behind a name.

A source that fails keeps what it said last. A file counts once two looks in a row found it the same: one that is
being written is a valid list of fewer endpoints at some moment, and half a pool would be gone.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping

from msgspec.structs import replace

from extproc import yaml_text
from extproc.errors import ConfigError
from extproc.model.topology import Endpoint
from extproc.pools import MAX_ENDPOINTS, Pool, parse_endpoints, unique

logger = logging.getLogger("extproc.loops.endpoints")

LOOK_S = 1.0
RESOLVE_S = 2.0

Resolve = Callable[[str], Awaitable[list[str]]]
"""A name's addresses; raises OSError where there are none."""

ReadFile = Callable[[str], bytes]


class Endpoints:
    """Used from one event loop. `changed` is called after `current` changed."""

    def __init__(
        self,
        *,
        resolve: Resolve,
        read: ReadFile,
        changed: Callable[[], None],
        failed: Callable[[str, str], None] = lambda pool, reason: None,
    ) -> None:
        self._resolve = resolve
        self._read = read
        self._changed = changed
        self._failed = failed
        self._pools: tuple[Pool, ...] = ()
        self._files: dict[str, tuple[bytes, tuple[Endpoint, ...]]] = {}
        self._seen: dict[str, bytes] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._told: dict[str, str] = {}
        self.current: Mapping[str, tuple[Endpoint, ...]] = {}

    async def configure(self, pools: Iterable[Pool]) -> None:
        """From here on these pools; returns once every source was asked once."""
        self._pools = tuple(pools)
        await self.look(settled=True)

    async def run(self, interval_s: float = LOOK_S) -> None:
        """Look at files and names until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            await self.look()

    async def look(self, *, settled: bool = False) -> None:
        """Once at every source. `settled`: take a file as it is."""
        pools = self._pools
        hosts = sorted({host for pool in pools for host in _hosts(pool)})
        await asyncio.gather(*(self._lookup(host) for host in hosts))
        for pool in pools:
            if pool.endpoints_file is not None:
                await self._look_at_file(pool.name, pool.endpoints_file, settled=settled)
        if pools is not self._pools:  # configured anew meanwhile
            return
        current = {pool.name: self._endpoints(pool) for pool in pools}
        if current != self.current:
            self.current = current
            self._changed()

    async def _lookup(self, host: str) -> None:
        try:
            async with asyncio.timeout(RESOLVE_S):
                found = await self._resolve(host)
        except OSError as error:  # TimeoutError is one
            self._tell(host, f"{host} not found: {error.strerror or type(error).__name__}")
            return
        self._told.pop(host, None)
        self._names[host] = tuple(sorted(set(found))[:MAX_ENDPOINTS])

    async def _look_at_file(self, pool: str, path: str, *, settled: bool) -> None:
        try:
            content = await asyncio.to_thread(self._read, path)
        except OSError as error:
            self._tell(pool, f"{path}: {error.strerror or error}")
            return
        same = self._seen.get(path) == content
        self._seen[path] = content
        known = self._files.get(path)
        if (not same and not settled) or (known is not None and known[0] == content):
            return
        try:
            endpoints = await asyncio.to_thread(_parsed, content)
        except ConfigError as error:
            self._tell(pool, f"{path}: {'; '.join(map(str, error.problems[:5]))}")
            return
        self._told.pop(pool, None)
        self._files[path] = (content, endpoints)

    def _tell(self, what: str, message: str) -> None:
        """One row of failures is one line."""
        self._failed(what, message)
        if self._told.get(what) != message:
            self._told[what] = message
            logger.warning("endpoints of %s stay as they were: %s", what, message)

    def _endpoints(self, pool: Pool) -> tuple[Endpoint, ...]:
        if pool.endpoints_file is not None:
            listed: tuple[Endpoint, ...] = self._files.get(pool.endpoints_file, (b"", ()))[1]
        elif pool.endpoints_dns is not None:
            listed = (_of_dns(pool),)
        else:
            listed = pool.listed()
        return unique(placed for each in listed for placed in self._placed(each))

    def _placed(self, endpoint: Endpoint) -> Iterable[Endpoint]:
        """One per address: Envoy's endpoint assignments take no names."""
        if is_ip(endpoint.address):
            return (endpoint,)
        found = self._names.get(endpoint.address, ())
        return tuple(_at(endpoint, ip) for ip in found)


def _hosts(pool: Pool) -> Iterable[str]:
    if pool.endpoints_dns is not None:
        return (pool.endpoints_dns.host,)
    return (each.address for each in pool.listed() if not is_ip(each.address))


def _of_dns(pool: Pool) -> Endpoint:
    dns = pool.endpoints_dns
    assert dns is not None
    metrics = None if dns.metrics_port is None else f"http://{dns.host}:{dns.metrics_port}/metrics"
    return Endpoint(dns.host, dns.http_port, dns.grpc_port, metrics)


def _at(endpoint: Endpoint, ip: str) -> Endpoint:
    """The endpoint at one of its name's addresses; its metrics are there too."""
    metrics = endpoint.metrics_url
    if metrics is not None:
        metrics = metrics.replace(f"//{endpoint.address}", f"//[{ip}]" if ":" in ip else f"//{ip}", 1)
    return replace(endpoint, address=ip, hostname=endpoint.address, metrics_url=metrics)


def _parsed(content: bytes) -> tuple[Endpoint, ...]:
    return parse_endpoints(yaml_text.mapping(content))


def is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
