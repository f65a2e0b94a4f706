"""What Envoy is told, as plain JSON-shaped values: clusters, endpoint assignments, routes, runtime, bootstrap.

Here: shapes by Envoy's names. Not here: protobuf, sockets, and why a weight is what it is.
"""
