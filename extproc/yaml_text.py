"""A YAML text as a plain mapping, with every mistake of the text itself as a problem.

PyYAML takes the last of two equal keys without a word; here each such key is a mistake, told with its path.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from extproc.errors import ConfigError, Problem

MAX_BYTES = 1 << 20
"""A larger text is refused unread. Of a str the characters count."""

_LOADER: type[yaml.SafeLoader | yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml where PyYAML has it."""


def mapping(text: bytes | str) -> dict[str, Any]:
    """The text's top-level mapping, {} for an empty one; ConfigError says what is wrong and where."""
    if len(text) > MAX_BYTES:
        raise ConfigError((Problem("", "larger than 1 MiB"),))
    try:
        tree, repeated = _read(text)
    except yaml.YAMLError as error:
        raise ConfigError((Problem("", f"not YAML: {_where(error)}"),)) from None
    except RecursionError:
        raise ConfigError((Problem("", "not YAML: nested too deeply"),)) from None
    except (ValueError, TypeError):
        raise ConfigError((Problem("", "not YAML: a value is not what its form says"),)) from None
    if repeated:
        raise ConfigError(repeated)
    if tree is None:
        return {}
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise ConfigError((Problem("", "allowed: a mapping of keys"),))
    return tree


def _read(text: bytes | str) -> tuple[Any, tuple[Problem, ...]]:
    """What the text says, and its repeated keys: looked for first, since constructing merges mappings in place."""
    loader = _LOADER(text)
    try:
        node = loader.get_single_node()
        repeated = tuple(_repeated(node, (), set()))
        return (None if node is None else loader.construct_document(node)), repeated
    finally:
        loader.dispose()


def _repeated(node: yaml.Node | None, path: tuple[str, ...], seen: set[int]) -> Iterator[Problem]:
    """Every key that stands twice in one mapping. A node that several aliases name is looked at once."""
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _repeated(item, (*path, str(index)), seen)
    if isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            if name in keys:
                line = key.start_mark.line + 1
                yield Problem(".".join((*path, name)), f"the key stands twice (line {line})")
            keys.add(name)
            yield from _repeated(value, (*path, name), seen)


def _where(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    problem = getattr(error, "problem", None) or "unreadable"
    return where + problem.replace("in this context", "here")  # libyaml's words, then PyYAML's
