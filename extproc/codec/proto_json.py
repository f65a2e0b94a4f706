"""Envoy's JSON, as a configuration file has it, to Envoy's messages.

The rejected alternative, betterproto2's own `from_dict`, cannot find fields such as `consecutive_5xx`, truncates
1.5 to 1 where an integer is asked for, lets the last of two exclusive fields win, and names no place in its errors.
"""

from __future__ import annotations

import contextlib
import importlib
import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Callable, Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any, cast

import betterproto2 as proto
from envoy_data_plane.google import protobuf as google
from envoy_data_plane.message_pool import default_message_pool

from extproc.errors import OurFault, Problem
from extproc.model.xds import TYPE_PREFIX

_DURATION = re.compile(r"(-?\d{1,12}(?:\.\d{1,6}0{0,3})?)s")
_TYPE_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*\.[A-Z]\w*")
_INTEGERS: dict[str, range] = {
    **dict.fromkeys((proto.TYPE_UINT32, proto.TYPE_FIXED32), range(1 << 32)),
    **dict.fromkeys((proto.TYPE_UINT64, proto.TYPE_FIXED64), range(1 << 64)),
    **dict.fromkeys((proto.TYPE_INT32, proto.TYPE_SINT32, proto.TYPE_SFIXED32), range(-1 << 31, 1 << 31)),
    **dict.fromkeys((proto.TYPE_INT64, proto.TYPE_SINT64, proto.TYPE_SFIXED64), range(-1 << 63, 1 << 63)),
}


class CannotEncode(OurFault):
    """A resource that is not what its type asks for: where, and what is allowed there."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__("cannot_encode", f"{path}: {message}")
        self.problem = Problem(path, message)


def encode(type_name: str, value: object, path: str) -> bytes:
    """`value` as a message of that full name, such as `envoy.config.cluster.v3.Cluster`; else CannotEncode.

    Fields go by their proto names (`connect_timeout`), null is absent, `path` begins the places in errors.
    """
    return bytes(_message(message_class(type_name, path), value, path))


def message_class(type_name: str, path: str) -> type[proto.Message]:
    """The class of a full message name; importing its module registers it."""
    if _TYPE_NAME.fullmatch(type_name):
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(f"envoy_data_plane.{type_name.rpartition('.')[0]}")
    found = default_message_pool.url_to_type.get(TYPE_PREFIX + type_name)
    if found is None:
        raise CannotEncode(path, f"no message is called {type_name}")
    return found


def _message(cls: type[proto.Message], value: object, path: str) -> proto.Message:
    special = _SPECIAL.get(cls)
    if special is not None:
        return special(value, path)
    if not isinstance(value, Mapping):
        raise CannotEncode(path, f"expected an object ({cls.__name__})")
    fields: dict[str, Any] = {}
    groups: dict[str, str] = {}
    for key, item in value.items():
        name, at = _field_name(cls, key, path), f"{path}.{key}"
        meta = _metadata(cls).meta_by_field_name[name]
        if item is None and _metadata(cls).cls_by_field[name] is not google.Value:
            continue
        if meta.group and (other := groups.setdefault(meta.group, key)) != key:
            raise CannotEncode(at, f"excludes {other}")
        fields[name] = _field(cls, name, meta, item, at)
    try:
        return cls(**fields)
    except ValueError:  # pydantic's: what is left is text that is no UTF-8
        raise CannotEncode(path, f"not a valid {cls.__name__}") from None


def _metadata(cls: type[proto.Message]) -> proto.ProtoClassMetadata:
    return cast(Any, cls)._betterproto  # type: ignore[no-any-return]


def _field_name(cls: type[proto.Message], key: str, path: str) -> str:
    """As the class calls it: words of Python's own have an underscore behind them."""
    names = _metadata(cls).meta_by_field_name
    for name in (key, f"{key}_"):
        if name in names:
            return name
    raise CannotEncode(f"{path}.{key}", f"{cls.__name__} has no such field")


def _field(cls: type[proto.Message], name: str, meta: proto.FieldMetadata, value: object, path: str) -> Any:
    field_cls = _metadata(cls).cls_by_field[name]
    if meta.map_meta is not None:
        if not isinstance(value, Mapping):
            raise CannotEncode(path, "expected an object")
        value_cls = _metadata(cls).cls_by_field[f"{name}.value"]
        return {key: _single(meta.map_meta[1], value_cls, item, f"{path}[{key}]") for key, item in value.items()}
    if meta.repeated:
        if not isinstance(value, list | tuple):
            raise CannotEncode(path, "expected a list")
        return [_single(meta, field_cls, item, f"{path}[{at}]") for at, item in enumerate(value)]
    return _single(meta, field_cls, value, path)


def _single(meta: proto.FieldMetadata, cls: type, value: object, path: str) -> Any:
    if meta.proto_type == proto.TYPE_MESSAGE:
        return _wrapped(meta.unwrap(), value, path) if meta.unwrap else _message(cls, value, path)
    if meta.proto_type == proto.TYPE_ENUM:
        return _enum(cast(type[proto.Enum], cls), value, path)
    return _scalar(meta.proto_type, value, path)


def _wrapped(cls: type[proto.Message], value: object, path: str) -> object:
    """A duration, or a bare value whose absence means something."""
    if cls is google.Duration:
        return _timedelta(value, path)
    if cls is google.Timestamp:
        raise CannotEncode(path, "points in time are not supported")
    if isinstance(value, Mapping) and value.keys() == {"value"}:  # Envoy reads this spelling as well
        value, path = value["value"], f"{path}.value"
    return _scalar(_metadata(cls).meta_by_field_name["value"].proto_type, value, path)


def _timedelta(value: object, path: str) -> timedelta:
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise CannotEncode(path, 'expected a duration such as "0.25s", no finer than a microsecond')
    return timedelta(microseconds=int(Decimal(found[1]) * 1_000_000))


def _enum(cls: type[proto.Enum], value: object, path: str) -> proto.Enum:
    renamed = cls.betterproto_renamed_proto_names_to_value()
    if isinstance(value, str):
        if value in renamed:
            return cls(renamed[value])
        if value in cls.__members__:
            return cls[value]
    elif type(value) is int and value in cls._value2member_map_:
        return cls(value)
    raise CannotEncode(path, f"expected one of {', '.join(cls.__members__)}")


def _scalar(kind: str, value: object, path: str) -> object:
    if kind in _INTEGERS:
        allowed = _INTEGERS[kind]
        if type(value) is not int or value not in allowed:
            raise CannotEncode(path, f"expected an integer from {allowed.start} to {allowed.stop - 1}")
        return value
    if kind in (proto.TYPE_FLOAT, proto.TYPE_DOUBLE):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise CannotEncode(path, "expected a number")
        return float(value)
    if kind == proto.TYPE_BYTES and isinstance(value, str):
        return _base64(value, path)
    expected = {proto.TYPE_BOOL: bool, proto.TYPE_STRING: str, proto.TYPE_BYTES: bytes}[kind]
    if not isinstance(value, expected):
        raise CannotEncode(path, f"expected a {expected.__name__}")
    return value


def _base64(value: str, path: str) -> bytes:
    try:
        return b64decode(value, validate=True)
    except NotBase64:
        raise CannotEncode(path, "expected base64") from None


def _any(value: object, path: str) -> proto.Message:
    """A message of any type, named by "@type"."""
    if not isinstance(value, Mapping) or not isinstance(url := value.get("@type"), str):
        raise CannotEncode(path, 'expected an object with "@type"')
    cls = message_class(url.rpartition("/")[2], f"{path}.@type")
    content: object = {key: item for key, item in value.items() if key != "@type"}
    if cls in _SPECIAL:
        content = value.get("value")
    return google.Any(type_url=url, value=bytes(_message(cls, content, path)))


def _struct(value: object, path: str) -> proto.Message:
    if not isinstance(value, Mapping):
        raise CannotEncode(path, "expected an object")
    return google.Struct(fields={key: _value(item, f"{path}.{key}") for key, item in value.items()})


def _list(value: object, path: str) -> proto.Message:
    if not isinstance(value, list | tuple):
        raise CannotEncode(path, "expected a list")
    return google.ListValue(values=[_value(item, f"{path}[{at}]") for at, item in enumerate(value)])


def _value(value: object, path: str) -> google.Value:
    """Any JSON value."""
    match value:
        case None:
            return google.Value(null_value=google.NullValue.NULL_VALUE)
        case bool():
            return google.Value(bool_value=value)
        case int() | float():
            return google.Value(number_value=float(value))
        case str():
            return google.Value(string_value=value)
        case list() | tuple():
            return google.Value(list_value=cast(google.ListValue, _list(value, path)))
        case _:
            return google.Value(struct_value=cast(google.Struct, _struct(value, path)))


def _duration(value: object, path: str) -> proto.Message:
    return google.Duration.from_timedelta(_timedelta(value, path))


_SPECIAL: dict[type[proto.Message], Callable[[object, str], proto.Message]] = {
    google.Any: _any,
    google.Struct: _struct,
    google.Value: _value,
    google.ListValue: _list,
    google.Duration: _duration,
}
