"""The same resources as files, from which an Envoy can boot while nobody answers.

Envoy follows them by watching for renames, so each file is written beside its place and renamed into it. No fsync:
a file lost with the power is written again by the next start, and until then an Envoy has an older one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from extproc.model.xds import Kind, Resource, Resources, assignment_name

log = logging.getLogger("extproc.xds_files")

FOLDER = "xds"
"""In the state directory."""


class XdsFiles:
    """Keeps `<folder>/{cds,rds,rtds}.json` and `<folder>/eds/<assignment>.json`. Used by one thread at a time.

    Envoy reads exactly one resource from each but `cds.json`: one route configuration, one runtime layer.
    """

    def __init__(self, folder: Path, *, on_failure: Callable[[], None] = lambda: None) -> None:
        self._folder = folder.absolute()
        self._on_failure = on_failure
        self._written: dict[Path, bytes] = {}
        self._complaint: str | None = None

    def write(self, resources: Resources) -> None:
        """Write what changed, in an order in which every file that is named is there. Never raises OSError.

        No clusters at all are not written: Envoy would drop all it has.
        """
        if not resources.of(Kind.CDS):
            return
        try:
            self._write(resources)
        except OSError as error:
            self._failed(error)
        else:
            self._complaint = None

    def assignment(self, name: str) -> Path:
        """Where the endpoint assignment of that name stands."""
        return self._folder / "eds" / f"{quote(name, safe='')}.json"

    def _write(self, resources: Resources) -> None:
        (self._folder / "eds").mkdir(parents=True, exist_ok=True)
        assignments = _with_empty(resources)
        for name, assignment in assignments.items():
            self._put(self.assignment(name), _response(Kind.EDS, [assignment]))
        clusters = [self._by_file(name, each) for name, each in resources.of(Kind.CDS).items()]
        self._put(self._folder / "cds.json", _response(Kind.CDS, clusters))
        for kind, name in ((Kind.RDS, "rds.json"), (Kind.RTDS, "rtds.json")):
            if resources.of(kind):
                self._put(self._folder / name, _response(kind, resources.of(kind).values()))
        self._sweep({self.assignment(name) for name in assignments})

    def _put(self, path: Path, content: bytes) -> None:
        if path not in self._written and path.exists():
            self._written[path] = path.read_bytes()
        if self._written.get(path) == content:
            return
        beside = path.with_name(f".{path.name}.new")
        beside.write_bytes(content)
        beside.replace(path)
        self._written[path] = content

    def _sweep(self, wanted: set[Path]) -> None:
        """Assignments no cluster asks for any more, also those of an earlier run."""
        for path in (self._folder / "eds").glob("*.json"):
            if path not in wanted:
                path.unlink(missing_ok=True)
                self._written.pop(path, None)

    def _by_file(self, name: str, cluster: Resource) -> Resource:
        """The cluster with its endpoints in a file."""
        if (asked := assignment_name(name, cluster)) is None:
            return cluster
        path = self.assignment(asked)
        source = {"path": str(path), "watched_directory": {"path": str(path.parent)}}
        config = {**(cluster.get("eds_cluster_config") or {}), "eds_config": _file_source(source)}
        return {**cluster, "eds_cluster_config": config}

    def _failed(self, error: OSError) -> None:
        """One continuous failure is one line."""
        self._on_failure()
        complaint = f"{error.filename or self._folder}: {error.strerror or error}"
        if complaint != self._complaint:
            self._complaint = complaint
            log.error("files for Envoy not written, the old ones stay: %s", complaint)


def _file_source(source: Mapping[str, Any]) -> dict[str, Any]:
    return {"path_config_source": source, "resource_api_version": "V3"}


def _with_empty(resources: Resources) -> Mapping[str, Resource]:
    """Every assignment a cluster asks for, an empty one where there is none."""
    found = resources.of(Kind.EDS)
    asked = [assignment_name(name, cluster) for name, cluster in resources.of(Kind.CDS).items()]
    return {name: found.get(name, {"cluster_name": name}) for name in asked if name is not None}


def _response(kind: Kind, resources: Iterable[Resource]) -> bytes:
    """A DiscoveryResponse as JSON; its version is of the content, so that the same again is nothing new."""
    body = msgspec.json.encode(list(_typed(kind, resources)))
    version = blake2b(body, digest_size=8).hexdigest()
    return b'{"version_info":"%s","resources":%s}\n' % (version.encode(), body)


def _typed(kind: Kind, resources: Iterable[Resource]) -> Iterator[dict[str, Any]]:
    for resource in resources:
        yield {"@type": kind.value, **resource}
