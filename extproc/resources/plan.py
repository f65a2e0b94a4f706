"""What a deployment decides about Envoy, as values. Defaults are the template's own."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from extproc.model.names import Engine


class Tcp(Struct, frozen=True):
    host: str
    port: int


class Pipe(Struct, frozen=True):
    """A unix socket."""

    path: str


class Served(Struct, frozen=True):
    """An endpoint as Envoy sees it. `weight` >= 1; a draining one gets no new request.

    `hostname` is the Host header it wants; empty keeps the client's.
    """

    host: str
    port: int
    weight: int = 1
    draining: bool = False
    hostname: str = ""


class EngineCluster(Struct, frozen=True):
    """Engine servers behind one cluster. `name` is what `x-llm-pool` says.

    `tls_name`: the name on their certificates; empty = no TLS. `http2` is for gRPC.
    """

    name: str
    engine: Engine
    endpoints: tuple[Served, ...]
    tls_name: str = ""
    http2: bool = False
    max_requests: int = 4096
    lb_policy: str = "LEAST_REQUEST"

    @property
    def rewrites_host(self) -> bool:
        """Over TLS the Host header is the name on the certificate, whichever endpoints there are at the moment."""
        return bool(self.tls_name) or any(each.hostname for each in self.endpoints)


class Plan(Struct, frozen=True, kw_only=True):
    """`engines` in order of preference: a family goes to the first that speaks it."""

    engines: tuple[EngineCluster, ...]
    ext_proc: tuple[Tcp | Pipe, ...]  # where the sidecar judges: one per data-plane process
    control: Tcp | Pipe = Pipe("/run/extproc/control.sock")  # where it tells Envoy what to know
    listener: Tcp = Tcp("127.0.0.1", 10000)
    admin: Tcp | Pipe = Tcp("127.0.0.1", 9901)
    fail_open: bool = True  # sidecar dead: pass untouched (true) or 503 (false)
    unknown_paths: Literal["pass", "reject"] = "reject"  # pass: to the first engine, unjudged
    max_body_bytes: int = 16 * 1024 * 1024  # the sidecar's limit; Envoy's lies a margin above
    extra_paths: tuple[str, ...] = ()  # exact, or a prefix ending in *; to the first engine, unjudged
    extra_allowed_headers: tuple[str, ...] = ()  # further request headers the sidecar may read
    usage: bool = False  # the observer that reads tokens of answers
    access_log_path: str = "/dev/stdout"
    ca_file: str = "/etc/ssl/certs/ca-certificates.crt"  # whom TLS engines are checked against
