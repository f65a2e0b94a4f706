"""Discovery requests to values, pushes to discovery responses."""

from __future__ import annotations

from google.protobuf.any_pb2 import Any

from extproc.codec.wire import discovery_pb2 as pb
from extproc.model.xds import Kind, Push, Subscribe

METHOD_SERVICE = "envoy.service.discovery.v3.AggregatedDiscoveryService"
METHOD_NAME = "StreamAggregatedResources"

_KINDS: dict[str, Kind] = {str(kind): kind for kind in Kind}


def request(message: bytes) -> Subscribe:
    """One serialized DiscoveryRequest; DecodeError of protobuf for bytes that are none."""
    read = pb.DiscoveryRequest.FromString(message)
    return Subscribe(
        kind=_KINDS.get(read.type_url),
        names=frozenset(read.resource_names),
        nonce=read.response_nonce,
        version=read.version_info,
        error=read.error_detail.message if read.HasField("error_detail") else None,
        node_id=read.node.id,
        node_cluster=read.node.cluster,
        type_url=read.type_url,
    )


def response(push: Push) -> bytes:
    """A serialized DiscoveryResponse."""
    resources = [Any(type_url=push.kind, value=resource.body) for resource in push.resources.values()]
    message = pb.DiscoveryResponse(
        version_info=push.version, resources=resources, type_url=push.kind, nonce=push.nonce
    )
    return message.SerializeToString()
