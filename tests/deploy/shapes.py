"""JSON schemas of the resources that Kubernetes itself does not know, no wider than what the manifests use.

Derived from the resources' definitions: field names, types, enumerations and patterns; an unknown field is an error, as
an API server with strict validation has it.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string", "minLength": 1}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}
DURATION: Schema = {"type": "string", "pattern": r"^([0-9]{1,5}(h|m|s|ms)){1,4}$"}
LABELS: Schema = {"type": "object", "additionalProperties": TEXT}
ANYTHING: Schema = {"type": "object"}


def of(required: str = "", /, **properties: Schema) -> Schema:
    """An object of these fields and no other; `required` by name."""
    return {"type": "object", "properties": properties, "required": required.split(), "additionalProperties": False}


def many(items: Schema, least: int = 1) -> Schema:
    return {"type": "array", "items": items, "minItems": least}


def one_of(*values: str) -> Schema:
    return {"enum": list(values)}


def resource(version: str, kind: str, **fields: Schema) -> Schema:
    metadata = of("name", name=TEXT, labels=LABELS)
    return of("apiVersion kind", apiVersion=one_of(version), kind=one_of(kind), metadata=metadata, **fields)


CONTEXT = one_of("ANY", "SIDECAR_INBOUND", "SIDECAR_OUTBOUND", "GATEWAY")
FILTER = of("name", name=TEXT, subFilter=of("name", name=TEXT))
MATCH = of(
    "context",
    context=CONTEXT,
    listener=of(portNumber=PORT, filterChain=of(destinationPort=PORT, filter=FILTER)),
    routeConfiguration=of(portNumber=PORT, name=TEXT),
)
OPERATION = one_of("MERGE", "ADD", "REMOVE", "INSERT_BEFORE", "INSERT_AFTER", "INSERT_FIRST", "REPLACE")
PATCH = of(
    "applyTo match patch",
    applyTo=one_of("CLUSTER", "NETWORK_FILTER", "HTTP_FILTER", "ROUTE_CONFIGURATION", "VIRTUAL_HOST"),
    match=MATCH,
    patch=of("operation value", operation=OPERATION, value=ANYTHING),
)
STRING_MATCH = of(exact=TEXT, prefix=TEXT, regex=TEXT)
ISTIO_ROUTE = of(
    "route",
    name=TEXT,
    match=many(of(uri=STRING_MATCH, headers={"type": "object", "additionalProperties": STRING_MATCH})),
    route=many(of("destination", destination=of("host", host=TEXT, port=of("number", number=PORT)))),
    timeout=DURATION,
)

TARGETS = many(
    of("group kind name", group=one_of("gateway.networking.k8s.io"), kind=one_of("Gateway", "HTTPRoute"), name=TEXT)
)
BODY = of(body=one_of("Streamed", "Buffered", "BufferedPartial", "FullDuplexStreamed"), attributes=many(TEXT))
EXT_PROC = of(
    "backendRefs",
    backendRefs={**many(of("name port", name=TEXT, port=PORT)), "maxItems": 1},
    failOpen={"type": "boolean"},
    messageTimeout=DURATION,
    processingMode=of(allowModeOverride={"type": "boolean"}, request=BODY, response=BODY),
    metadata=of(writableNamespaces=many(TEXT), accessibleNamespaces=many(TEXT)),
)
ROUTE_MATCH = of(
    path=of("type value", type=one_of("Exact", "PathPrefix", "RegularExpression"), value=TEXT),
    headers=many(of("name value", name=TEXT, value=TEXT, type=one_of("Exact", "RegularExpression"))),
)
ROUTE_RULE = of(matches=many(ROUTE_MATCH), backendRefs=many(of("name port", name=TEXT, port=PORT)))

SCHEMAS: dict[str, Schema] = {
    "EnvoyFilter": resource(
        "networking.istio.io/v1alpha3",
        "EnvoyFilter",
        spec=of("configPatches", workloadSelector=of("labels", labels=LABELS), configPatches=many(PATCH)),
    ),
    "VirtualService": resource(
        "networking.istio.io/v1",
        "VirtualService",
        spec=of("hosts http", hosts=many(TEXT), gateways=many(TEXT), http=many(ISTIO_ROUTE)),
    ),
    "EnvoyExtensionPolicy": resource(
        "gateway.envoyproxy.io/v1alpha1",
        "EnvoyExtensionPolicy",
        spec=of("targetRefs", targetRefs=TARGETS, extProc=many(EXT_PROC)),
    ),
    "BackendTrafficPolicy": resource(
        "gateway.envoyproxy.io/v1alpha1",
        "BackendTrafficPolicy",
        spec=of(
            "targetRefs",
            targetRefs=TARGETS,
            timeout=of(http=of(requestTimeout=DURATION, connectionIdleTimeout=DURATION)),
        ),
    ),
    "ClientTrafficPolicy": resource(
        "gateway.envoyproxy.io/v1alpha1",
        "ClientTrafficPolicy",
        spec=of(
            "targetRefs",
            targetRefs=TARGETS,
            headers=of(earlyRequestHeaders=of(remove=many(TEXT))),
            connection=of(bufferLimit={"type": ["integer", "string"]}),
        ),
    ),
    "HTTPRoute": resource(
        "gateway.networking.k8s.io/v1",
        "HTTPRoute",
        spec=of("parentRefs rules", parentRefs=many(of("name", name=TEXT)), rules=many(ROUTE_RULE)),
    ),
    "PodMonitor": resource(
        "monitoring.coreos.com/v1",
        "PodMonitor",
        spec=of(
            "selector podMetricsEndpoints",
            selector=of("matchLabels", matchLabels=LABELS),
            podMetricsEndpoints=many(
                of(
                    "port",
                    port=TEXT,
                    path=TEXT,
                    interval=DURATION,
                    scrapeTimeout=DURATION,
                    relabelings=many(of(targetLabel=TEXT, replacement=TEXT)),
                )
            ),
        ),
    ),
    "Kustomization": of(
        "apiVersion kind resources",
        apiVersion=one_of("kustomize.config.k8s.io/v1beta1"),
        kind=one_of("Kustomization"),
        resources=many(TEXT),
        images=many(of("name", name=TEXT, newName=TEXT, newTag=TEXT)),
    ),
}
