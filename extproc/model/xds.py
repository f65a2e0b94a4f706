"""What Envoy is given over xDS, what it asks for and how it answers, by type; state of the world."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from msgspec import Struct

TYPE_PREFIX = "type.googleapis.com/"


class Kind(StrEnum):
    """A resource type by its URL. The order of the members is the order in which a change is pushed."""

    CDS = TYPE_PREFIX + "envoy.config.cluster.v3.Cluster"
    EDS = TYPE_PREFIX + "envoy.config.endpoint.v3.ClusterLoadAssignment"
    RDS = TYPE_PREFIX + "envoy.config.route.v3.RouteConfiguration"
    RTDS = TYPE_PREFIX + "envoy.service.runtime.v3.Runtime"


Resource = Mapping[str, Any]
"""One resource as Envoy's JSON (or YAML) has it, fields by their proto names. Never changed once handed over."""


class Resources(Struct, frozen=True):
    """Everything one Envoy is to know. `generation` grows with each one, from 1.

    `by_kind`: resources by name. The name is `name` in each of them, `cluster_name` in an endpoint assignment.
    """

    generation: int
    by_kind: Mapping[Kind, Mapping[str, Resource]]

    def of(self, kind: Kind) -> Mapping[str, Resource]:
        return self.by_kind.get(kind, {})


def assignment_name(name: str, cluster: Resource) -> str | None:
    """The endpoint assignment a cluster asks for; None where it is not of type EDS."""
    if cluster.get("type") not in ("EDS", 3):
        return None
    return (cluster.get("eds_cluster_config") or {}).get("service_name") or name


class EncodedResource(Struct, frozen=True):
    """One resource as it travels. `version` is a hash of its content, so that it outlives a restart.

    `source` is what it was made from.
    """

    version: str
    body: bytes
    source: Resource


class EncodedKind(Struct, frozen=True):
    """All resources of one kind by name; `version` is a hash of names and versions."""

    version: str = ""
    by_name: Mapping[str, EncodedResource] = {}


class Encoded(Struct, frozen=True):
    """Resources ready to be sent. Generation 0: there are none yet, and nobody is told anything.

    `assignments`: the endpoint assignment each EDS cluster asks for, by the cluster's name.
    """

    generation: int = 0
    by_kind: Mapping[Kind, EncodedKind] = {}
    assignments: Mapping[str, str] = {}

    def of(self, kind: Kind) -> EncodedKind:
        return self.by_kind.get(kind, EncodedKind())


NOTHING = Encoded()
"""Before the first resources exist."""


def version_of(versions: Mapping[str, str]) -> str:
    """One version for a set of resources, from the version of each by name."""
    digest = blake2b(digest_size=8)
    for name in sorted(versions):
        digest.update(f"{name}\0{versions[name]}\0".encode())
    return digest.hexdigest()


class Subscribe(Struct, frozen=True):
    """What one discovery request says: a subscription, and the answer to the push that `nonce` names.

    `names` empty: everything, where the kind allows it (CDS), or nothing any more. `kind` None: a type that is not
    served. `error`: why the push was refused, None where it was accepted. Envoy tells its `node_id` and
    `node_cluster` with the first request of a stream, later they may be "".
    """

    kind: Kind | None
    names: frozenset[str] = frozenset()
    nonce: str = ""
    version: str = ""
    error: str | None = None
    node_id: str = ""
    node_cluster: str = ""
    type_url: str = ""


class Push(Struct, frozen=True):
    """One discovery response: resources by name, under a version and a nonce of their own."""

    kind: Kind
    version: str
    nonce: str
    generation: int
    resources: Mapping[str, EncodedResource]


class Acknowledged(Struct, frozen=True):
    """Envoy works with this push."""

    push: Push


class Refused(Struct, frozen=True):
    """Envoy refused this push whole, and keeps what it had. `reason` in Envoy's words."""

    push: Push
    reason: str
