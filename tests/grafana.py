"""What Grafana would not understand in a dashboard, by the types of its own SDK.

The SDK's models read anything: a field they do not know is dropped in silence, and a value is kept whatever its type.
So a dashboard is read into them, written again to see what got lost, and each field is held against its annotation.
"""

from __future__ import annotations

import enum
import json
import types
import typing
from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.cog.runtime import Runtime, UnknownDataquery
from grafana_foundation_sdk.models.dashboard import Dashboard, DataSourceRef

NULLABLE = {"value"}  # the first threshold has none: it begins at minus infinity

register_default_plugins()


def faults(made: dict[str, Any]) -> list[str]:
    """Each with its path; none for a dashboard that Grafana reads as it is meant."""
    found = [*_faults_of(Dashboard, made, "")]
    for at, panel in enumerate(made["panels"]):
        path = f".panels[{at}]"
        if panel.get("type") not in Runtime().panelcfg_variants:
            found.append(f"{path}.type: no panel is called {panel.get('type')!r}")
        for number, target in enumerate(panel.get("targets", ())):
            found += _faults_of(DataSourceRef, target.get("datasource"), f"{path}.targets[{number}].datasource")
    return found


def _faults_of(model: Any, given: Any, path: str) -> Iterator[str]:
    try:
        read = model.from_json(given)
    except (TypeError, AttributeError, KeyError, ValueError) as error:  # a string where a block should be
        yield f"{path}: not a {model.__name__}: {error}"
        return
    yield from _lost(given, json.loads(JSONEncoder().encode(read)), path)
    yield from _misfits(read, model, path)


def _lost(given: Any, written: Any, path: str) -> Iterator[str]:
    """What does not come back. The models add their defaults, so more may come back than was given."""
    if isinstance(given, dict) and isinstance(written, dict):
        for key, value in given.items():
            if key in written:
                yield from _lost(value, written[key], f"{path}.{key}")
            elif value is not None or key not in NULLABLE:
                yield f"{path}.{key}: unknown"
    elif isinstance(given, list) and isinstance(written, list) and len(given) == len(written):
        for at, (one, other) in enumerate(zip(given, written, strict=True)):
            yield from _lost(one, other, f"{path}[{at}]")
    elif (type(given), given) != (type(written), written):
        yield f"{path}: read as something else"


def _misfits(value: Any, hint: Any, path: str) -> Iterator[str]:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(value, UnknownDataquery):
        yield f"{path}: a query of no known data source"
    elif _modelled(type(value)) and (hint in {object, Any} or (isinstance(hint, type) and isinstance(value, hint))):
        hints = typing.get_type_hints(type(value))
        for name, field in vars(value).items():
            yield from _misfits(field, hints[name], f"{path}.{name.removesuffix('_val')}")
    elif origin in {typing.Union, types.UnionType}:
        tried = [list(_misfits(value, each, path)) for each in inner]
        if all(tried):
            yield from min(tried, key=_nearness)
    elif origin is list and isinstance(value, list):
        for at, each in enumerate(value):
            yield from _misfits(each, inner[0], f"{path}[{at}]")
    elif origin is dict and isinstance(value, dict):
        for key, each in value.items():
            yield from _misfits(each, inner[1], f"{path}.{key}")
    elif not _fits(value, hint, origin, inner):
        yield f"{path}: {value!r} is no {getattr(hint, '__name__', hint)}"


def _nearness(found: list[str]) -> int:
    """The branch of a union that got furthest in tells most."""
    return -max(len(each.partition(":")[0]) for each in found)


def _fits(value: Any, hint: Any, origin: Any, inner: tuple[Any, ...]) -> bool:
    if hint in {object, Any}:
        return True
    if origin is typing.Literal:
        return any(value == each and type(value) is type(each) for each in inner)
    if not isinstance(hint, type):
        return False
    if issubclass(hint, enum.Enum):
        return not isinstance(value, bool) and value in {each.value for each in hint}
    if hint is float:
        return type(value) in {int, float}
    return type(value) is hint


def _modelled(kind: type) -> bool:
    return kind.__module__.startswith("grafana_foundation_sdk.models.") and not issubclass(kind, enum.Enum)
