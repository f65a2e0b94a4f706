"""Prometheus and Alertmanager beside `extproc up`: their configs out of ours, and the two as child processes."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import yaml
from msgspec import Struct

from extproc.alerts import INHIBIT
from extproc.cli import alert_rules, processes
from extproc.edge.grpc_server import check_free
from extproc.errors import CannotStart
from extproc.model.topology import host_port
from extproc.pools import metrics_url
from extproc.settings import Settings

FOLDER = "observability"
SCRAPE_EVERY = "5s"
KEPT = "6h"
PROMETHEUS = ("prometheus",)
ALERTMANAGER = ("prometheus-alertmanager", "alertmanager")
"""Debian's name, and everybody else's."""


class Addresses(Struct, frozen=True):
    """`host:port` each; `webhook` is a URL, "" = alerts are shown and sent nowhere."""

    prometheus: str
    alertmanager: str
    webhook: str = ""


def prometheus_config(settings: Settings, addresses: Addresses, rules: Path) -> dict[str, Any]:
    """Scrapes the sidecar, and what engines show of themselves; stand-in engines have a page too."""
    jobs = [{"job_name": "extproc", "static_configs": [{"targets": [str(settings.listeners.admin)]}]}]
    pages = {metrics_url(each, pool.engine) for pool in settings.pools for each in pool.listed()}
    jobs += [_engine(number, urlsplit(page)) for number, page in enumerate(sorted(pages), 1)]
    return {
        "global": {"scrape_interval": SCRAPE_EVERY, "evaluation_interval": SCRAPE_EVERY},
        "rule_files": [str(rules)],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [addresses.alertmanager]}]}]},
        "scrape_configs": jobs,
    }


def _engine(number: int, page: SplitResult) -> dict[str, Any]:
    return {
        "job_name": f"engine-{number}",
        "scheme": page.scheme,
        "metrics_path": page.path,
        "static_configs": [{"targets": [page.netloc]}],
    }


def alertmanager_config(webhook: str) -> dict[str, Any]:
    """Grouped by alert and sent soon: this is a desk, not a fleet."""
    receiver: dict[str, Any] = {"name": "everything"}
    if webhook:
        receiver["webhook_configs"] = [{"url": webhook, "send_resolved": True}]
    route = {
        "receiver": "everything",
        "group_by": ["alertname"],
        "group_wait": "2s",
        "group_interval": "10s",
        "repeat_interval": "4h",
    }
    return {"route": route, "receivers": [receiver], "inhibit_rules": [INHIBIT]}


def program(names: tuple[str, ...], what: str) -> str:
    """Its path; CannotStart says which package has it."""
    for name in names:
        if found := shutil.which(name):
            return found
    raise CannotStart(f"--observability needs {what}: install the Debian package {names[0]}")


@contextlib.asynccontextmanager
async def running(
    settings: Settings, addresses: Addresses, state_dir: Path
) -> AsyncIterator[dict[str, asyncio.subprocess.Process]]:
    """Both, answering. Their data is in the state directory."""
    manager, prometheus = program(ALERTMANAGER, "Alertmanager"), program(PROMETHEUS, "Prometheus")
    if addresses.webhook and not urlsplit(addresses.webhook).netloc:
        raise CannotStart(f"--alerts-to {addresses.webhook}: allowed: a URL")
    for option, address in (("--prometheus", addresses.prometheus), ("--alertmanager", addresses.alertmanager)):
        place = host_port(address)
        if place is None:
            raise CannotStart(f"{option} {address}: allowed: HOST:PORT")
        check_free(*place, "--observability")
    folder = state_dir / FOLDER
    folder.mkdir(exist_ok=True)
    files = {name: folder / f"{name}.yml" for name in ("rules", "alertmanager", "prometheus")}
    files["rules"].write_text(alert_rules.text(settings.alerts), encoding="utf-8")
    files["alertmanager"].write_text(yaml.safe_dump(alertmanager_config(addresses.webhook)), encoding="utf-8")
    files["prometheus"].write_text(
        yaml.safe_dump(prometheus_config(settings, addresses, files["rules"])), encoding="utf-8"
    )
    managing = (
        manager,
        f"--config.file={files['alertmanager']}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address={addresses.alertmanager}",
        "--cluster.listen-address=",
        "--log.level=warn",
    )
    watching = (
        prometheus,
        f"--config.file={files['prometheus']}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--storage.tsdb.retention.time={KEPT}",
        f"--web.listen-address={addresses.prometheus}",
        "--log.level=warn",
    )
    async with (
        processes.child("Alertmanager", *managing) as one,
        processes.child("Prometheus", *watching) as other,
    ):
        found = {"Alertmanager": one, "Prometheus": other}
        for (name, process), address in zip(
            found.items(), (addresses.alertmanager, addresses.prometheus), strict=True
        ):
            await processes.answers(name, process, address, "/-/ready")
        yield found
