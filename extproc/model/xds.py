"""What Envoy is given over xDS, what it asks for and how it answers, by type; state of the world."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
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
