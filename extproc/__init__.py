"""A sidecar beside Envoy that decides parameters, priority and destination of LLM requests.

Rooms stand in layers; a module imports only from layers below its own (see `pyproject.toml`,
`[tool.importlinter]`). Everything that decides is synchronous and takes `now`; everything that
touches a socket is thin.
"""

__version__ = "0.1.0"
