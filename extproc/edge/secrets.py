"""Reads the values behind secret references. A missing one is a config mistake that names the reference only."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from extproc.errors import ConfigError, Problem
from extproc.settings import SecretRef, Secrets, Settings


def read(settings: Settings, environ: Mapping[str, str] = os.environ) -> Secrets:
    """All secrets of the settings; ConfigError names every reference that gives none."""
    problems: list[Problem] = []

    def collect(path: str, references: Iterable[SecretRef]) -> list[bytes]:
        found = []
        for index, reference in enumerate(references):
            value, why = _value(reference, environ)
            if why:
                problems.append(Problem(f"{path}.{index}", why))
            found.append(value)
        return found

    if settings.webhook is not None:
        collect("webhook.url", [settings.webhook.url])
        collect("webhook.token", [settings.webhook.token] if settings.webhook.token else [])
    secrets = Secrets(
        tokens=collect("trust.tokens", settings.trust.tokens),
        tenant_keys=collect("tenants.keys", settings.tenants.keys),
    )
    if problems:
        raise ConfigError(tuple(problems))
    return secrets


def webhook(settings: Settings, environ: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """URL and token of the webhook, "" for what there is none of."""
    config = settings.webhook
    if config is None:
        return "", ""
    url = _value(config.url, environ)[0]
    token = b"" if config.token is None else _value(config.token, environ)[0]
    return url.decode(errors="replace"), token.decode(errors="replace")


def files(settings: Settings) -> tuple[Path, ...]:
    """The files that secrets come from: their content decides as the config's own does."""
    references = (*settings.trust.tokens, *settings.tenants.keys)
    return tuple(Path(reference.file) for reference in references if reference.file is not None)


def _value(reference: SecretRef, environ: Mapping[str, str]) -> tuple[bytes, str]:
    """(the value, what is wrong with it or "")."""
    if reference.env is not None:
        what = f"environment variable {reference.env}"
        return _given(os.fsencode(environ.get(reference.env, "")), what)
    what = f"file {reference.file}"
    try:
        return _given(Path(reference.file or "").read_bytes(), what)
    except OSError as error:
        return b"", f"{what}: {error.strerror}"
    except ValueError:
        return b"", f"{what!r}: no path can be this"


def _given(value: bytes, what: str) -> tuple[bytes, str]:
    stripped = value.strip()
    return stripped, "" if stripped else f"{what} is empty or not set"
