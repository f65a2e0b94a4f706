"""YAML texts: bounded in size and depth, read once, with every mistake told."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
import yaml

from extproc import yaml_text
from extproc.errors import ConfigError, Problem
from extproc.yaml_text import MAX_BYTES, mapping


def problems(text: bytes | str) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as raised:
        mapping(text)
    return raised.value.problems


def padded(size: int) -> bytes:
    return b"a: 1\n#".ljust(size, b"x")


def test_a_text_of_the_largest_size_is_read() -> None:
    assert mapping(padded(MAX_BYTES)) == {"a": 1}


@pytest.mark.parametrize("text", [padded(MAX_BYTES + 1), padded(MAX_BYTES + 1).decode(), b"[" * 10_000_000])
def test_a_larger_text_is_refused(text: bytes | str) -> None:
    assert problems(text) == (Problem("", "larger than 1 MiB"),)


@pytest.mark.parametrize("text", [b"", b"# nothing\n", b"---\n", b"null"])
def test_nothing_is_an_empty_mapping(text: bytes) -> None:
    assert mapping(text) == {}


def test_merged_mappings_may_share_keys() -> None:
    assert mapping("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}")["b"] == {"x": 3, "y": 2}


def test_a_repeated_key_is_found_beside_a_merge() -> None:
    text = "a: &a {x: 1}\nb: {<<: *a, x: 3, x: 4}"
    assert problems(text) == (Problem("b.x", "the key stands twice (line 2)"),)


DEEP = [b"a: " + b"[" * 1001, b"a: " + b"[" * 500_000, b"- " * 500_000, b"? " * 500_000]


@pytest.mark.parametrize("text", DEEP, ids=range(len(DEEP)))
def test_a_deep_text_is_a_mistake_in_a_thread_too(text: bytes) -> None:
    """A thread has a smaller stack."""
    found: list[Problem] = []
    thread = threading.Thread(target=lambda: found.extend(problems(text)))
    thread.start()
    thread.join()
    assert [problem.path for problem in found] == [""]
    assert problems(text)[0].message.startswith("not YAML: ")


def test_libyaml_is_used_where_it_is_there() -> None:
    assert yaml_text._LOADER is (yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader)


def test_without_libyaml_it_reads_the_same() -> None:
    script = """
import yaml
del yaml.CSafeLoader
from extproc.yaml_text import _LOADER, mapping
assert _LOADER is yaml.SafeLoader
assert mapping("a: &a {x: 1}\\nb: *a") == {"a": {"x": 1}, "b": {"x": 1}}
"""
    subprocess.run([sys.executable, "-c", script], check=True)
