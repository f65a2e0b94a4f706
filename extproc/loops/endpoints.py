"""Where a pool's endpoints are at this moment: listed, in a file that is followed, or behind a name.

A source that fails keeps what it said last. A file replaces what it said before once two looks in a row found it
the same: while it is written it is a valid list of fewer endpoints at some moment, and half a pool would be gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from itertools import chain
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import replace

from extproc import yaml_text
from extproc.errors import ConfigError
from extproc.model.names import Engine
from extproc.model.topology import Endpoint, authority, is_ip
from extproc.pools import MAX_ENDPOINTS, Pool, metrics_url, parse_endpoints, unique

logger = logging.getLogger("extproc.loops.endpoints")

LOOK_S = 1.0
NAMES_S = 5.0
"""A file that did not change costs a read, a name a question to a server of others."""

RESOLVE_S = 2.0
RESOLVED_AT_ONCE = 16

Resolve = Callable[[str], Awaitable[list[str]]]
"""A name's addresses; raises OSError where there are none."""

ReadFile = Callable[[str], bytes]


class _File(Struct):
    """`content` is what `endpoints` were read from; `seen` what was there at the last look; `broken` why not."""

    seen: bytes | None = None
    content: bytes | None = None
    endpoints: tuple[Endpoint, ...] = ()
    broken: tuple[bytes | None, str] = (None, "")


class Endpoints:
    """Used from one event loop. `changed` is called after `current` changed, `failed` after each failed look."""

    def __init__(
        self,
        *,
        resolve: Resolve,
        read: ReadFile,
        changed: Callable[[], None],
        failed: Callable[[str, str], None] = lambda source, reason: None,
    ) -> None:
        self._resolve = resolve
        self._read = read
        self._changed = changed
        self._failed = failed
        self._pools: tuple[Pool, ...] = ()
        self._names_s = NAMES_S
        self._listed: dict[str, tuple[Endpoint, ...]] = {}
        self._files: dict[str, _File] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._failing: dict[str, int] = {}
        self._told: dict[str, str] = {}
        self._last: dict[tuple[str, Engine], tuple[Endpoint, ...]] = {}
        self._looking = asyncio.Lock()
        self._slots = asyncio.Semaphore(RESOLVED_AT_ONCE)
        self.current: Mapping[str, tuple[Endpoint, ...]] = {}

    async def configure(self, pools: Iterable[Pool], *, names_s: float = NAMES_S) -> None:
        """From here on these pools, and names every `names_s`; returns once every source was asked once."""
        self._pools, self._names_s = tuple(pools), names_s
        self._listed = {pool.name: _listed(pool) for pool in self._pools}
        await self.look(first=True)

    async def run(self, interval_s: float = LOOK_S) -> None:
        """Look at files every `interval_s`, and at names when it is their time, until cancelled."""
        waited_s = 0.0
        while True:
            await asyncio.sleep(interval_s)
            waited_s += interval_s
            if names := waited_s >= self._names_s:
                waited_s = 0.0
            try:
                await self.look(names=names)
            except Exception:
                logger.exception("endpoints stay as they were: a bug")

    async def look(self, *, names: bool = True, first: bool = False) -> None:
        """Once at every file, and at every name unless only those without an address are asked for.

        `first`: take a file that was never read as it is.
        """
        async with self._looking:  # two looks at one moment would be the same content twice
            pools = self._pools
            self._forget(pools)
            await asyncio.gather(*(self._look_at_file(path, first=first) for path in self._files))
            await asyncio.gather(*map(self._lookup, self._due(names=names)))
            if pools is not self._pools:  # configured anew meanwhile
                return
            self._last = {(pool.name, pool.engine): self._found(pool) for pool in pools}
            current = {name: found for (name, _), found in self._last.items()}
            if current != self.current:
                self.current = current
                self._changed()

    def _forget(self, pools: tuple[Pool, ...]) -> None:
        """What no pool asks for any more."""
        paths = {pool.endpoints_file: None for pool in pools if pool.endpoints_file is not None}
        self._files = {path: self._files.get(path) or _File() for path in paths}
        hosts = self._hosts()
        self._names = {host: found for host, found in self._names.items() if host in hosts}
        self._failing = {host: count for host, count in self._failing.items() if host in hosts}
        self._told = {what: told for what, told in self._told.items() if what in hosts or what in paths}

    def _hosts(self) -> set[str]:
        """Names to look up, also those that stand in files."""
        given = chain(*self._listed.values(), *(file.endpoints for file in self._files.values()))
        return {each.address for each in given if not is_ip(each.address)}

    def _due(self, *, names: bool) -> list[str]:
        """Those that failed more often come later: names that hang are not in the way of the others."""
        due = [host for host in self._hosts() if names or host not in self._names]
        return sorted(due, key=lambda host: (self._failing.get(host, 0), host))

    async def _lookup(self, host: str) -> None:
        asked = False
        try:
            async with asyncio.timeout(RESOLVE_S), self._slots:
                asked = True
                found = preferred(await self._resolve(host))
        except (OSError, UnicodeError) as error:  # TimeoutError is an OSError; a label may be too long for a name
            if asked:
                self._not_found(host, getattr(error, "strerror", None) or type(error).__name__)
            return
        if not found:
            self._not_found(host, "no address")
            return
        self._told.pop(host, None)
        self._failing.pop(host, None)
        self._names[host] = found

    def _not_found(self, host: str, reason: str) -> None:
        self._failing[host] = self._failing.get(host, 0) + 1
        self._tell(host, f"not found: {reason}")

    async def _look_at_file(self, path: str, *, first: bool) -> None:
        file = self._files[path]
        try:
            content = await asyncio.to_thread(self._read, path)
        except OSError as error:
            self._tell(path, error.strerror or type(error).__name__)
            return
        same, file.seen = file.seen == content, content
        if not same and not (first and file.content is None):
            return
        if content != file.content and content != file.broken[0]:
            await asyncio.to_thread(_take, file, content)
        if content == file.content:
            self._told.pop(path, None)
        else:
            self._tell(path, file.broken[1])

    def _tell(self, source: str, reason: str) -> None:
        """A row of failures is one line."""
        self._failed(source, reason)
        if self._told.get(source) != reason:
            self._told[source] = reason
            logger.warning("endpoints of %s stay as they were: %s", source, reason)

    def _found(self, pool: Pool) -> tuple[Endpoint, ...]:
        """No source says that there are none, so it failed where none are left."""
        return self._endpoints(pool) or self._last.get((pool.name, pool.engine), ())

    def _endpoints(self, pool: Pool) -> tuple[Endpoint, ...]:
        if pool.endpoints_file is not None:
            given = self._files[pool.endpoints_file].endpoints
        else:
            given = self._listed[pool.name]
        placed = unique(placed for each in given for placed in self._placed(each, pool.engine))
        return tuple(_one_each(placed[:MAX_ENDPOINTS]))

    def _placed(self, endpoint: Endpoint, engine: Engine) -> Iterable[Endpoint]:
        """One per address: Envoy's endpoint assignments take no names."""
        if is_ip(endpoint.address):
            return (endpoint,)
        return (_at(endpoint, ip, engine) for ip in self._names.get(endpoint.address, ()))


def preferred(found: Iterable[str]) -> tuple[str, ...]:
    """IPv4 where there is any: the other family of `localhost` is an address that most engines don't listen at."""
    every = sorted(set(found))
    return tuple([each for each in every if ":" not in each] or every)[:MAX_ENDPOINTS]


def _listed(pool: Pool) -> tuple[Endpoint, ...]:
    """What stands in the config itself; of a name, the one endpoint that is at each of its addresses."""
    dns = pool.endpoints_dns
    if dns is None:
        return pool.listed()
    metrics = None if dns.metrics_port is None else f"http://{dns.host}:{dns.metrics_port}/metrics"
    return (Endpoint(dns.host.strip("[]"), dns.http_port, dns.grpc_port, metrics),)


def _at(endpoint: Endpoint, ip: str, engine: Engine) -> Endpoint:
    """The endpoint at one of its name's addresses; its metrics are there too."""
    metrics = _moved(metrics_url(endpoint, engine), endpoint.address, ip)
    return replace(endpoint, address=ip, hostname=endpoint.address, metrics_url=metrics)


def _moved(url: str, name: str, ip: str) -> str:
    """The same URL at an address. As it is where it names another host, and over TLS: certificates are of names."""
    parts = urlsplit(url)
    if parts.scheme != "http" or parts.hostname != name.lower():
        return url
    user, at, _ = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}{at}{authority(ip, parts.port)}").geturl()


def _one_each(endpoints: Iterable[Endpoint]) -> Iterator[Endpoint]:
    """Each address and gRPC port once as well: the first that is given keeps it."""
    seen: set[tuple[str, int]] = set()
    for each in endpoints:
        if each.grpc_port is None:
            yield each
            continue
        place = (each.address, each.grpc_port)
        yield replace(each, grpc_port=None) if place in seen else each
        seen.add(place)


def _take(file: _File, content: bytes) -> None:
    try:
        file.endpoints = parse_endpoints(yaml_text.mapping(content))
    except ConfigError as error:
        file.broken = (content, "; ".join(map(str, error.problems[:5])))
    else:
        file.content, file.broken = content, (None, "")
