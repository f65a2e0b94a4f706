"""Secrets behind references, and what is said where one gives nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from extproc.edge import secrets
from extproc.errors import ConfigError
from extproc.settings import Settings, load


def settings(tokens: list[dict[str, str]], keys: list[dict[str, str]] | None = None) -> Settings:
    return load(yaml.safe_dump({"trust": {"tokens": tokens}, "tenants": {"keys": keys or []}}))


def problems(given: Settings, environ: dict[str, str] | None = None) -> dict[str, str]:
    with pytest.raises(ConfigError) as refusal:
        secrets.read(given, environ or {})
    return {problem.path: problem.message for problem in refusal.value.problems}


def test_none() -> None:
    found = secrets.read(settings([]), {})
    assert (found.tokens, found.tenant_keys) == ([], [])


def test_in_the_order_of_the_references(tmp_path: Path) -> None:
    (tmp_path / "t").write_bytes(b" from-file\xff \n")
    given = settings([{"env": "B"}, {"file": str(tmp_path / "t")}, {"env": "A"}], [{"env": "A"}])
    found = secrets.read(given, {"A": "a", "B": "\tb é\n"})
    assert found.tokens == ["b é".encode(), b"from-file\xff", b"a"]
    assert found.tenant_keys == [b"a"]


@pytest.mark.parametrize("value", [None, "", "  \n"])
def test_an_empty_variable(value: str | None) -> None:
    environ = {} if value is None else {"CALLER": value}
    assert problems(settings([{"env": "CALLER"}]), environ) == {
        "trust.tokens.0": "environment variable CALLER is empty or not set"
    }


def test_files_that_give_nothing(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"\n")
    given = settings(
        [{"file": str(tmp_path / "none")}, {"file": str(tmp_path / "empty")}],
        [{"file": str(tmp_path)}, {"env": "X"}],
    )
    assert problems(given) == {
        "trust.tokens.0": f"file {tmp_path}/none: No such file or directory",
        "trust.tokens.1": f"file {tmp_path}/empty is empty or not set",
        "tenants.keys.0": f"file {tmp_path}: Is a directory",
        "tenants.keys.1": "environment variable X is empty or not set",
    }


def test_a_found_secret_is_in_no_problem() -> None:
    found = problems(settings([{"env": "GOOD"}, {"env": "BAD"}]), {"GOOD": "s3cret"})
    assert "s3cret" not in repr(found)


def test_a_variable_may_hold_any_bytes() -> None:
    """The environment keeps bytes that are no UTF-8 as surrogates."""
    found = secrets.read(settings([{"env": "A"}]), {"A": os.fsdecode(b"\xff\xfe")})
    assert found.tokens == [b"\xff\xfe"]


def test_a_path_that_can_be_none_is_a_problem_and_no_crash() -> None:
    assert list(problems(settings([{"file": "a\0b"}]))) == ["trust.tokens.0"]


def test_the_files_that_decide() -> None:
    given = settings([{"env": "A"}, {"file": "/run/a"}], [{"file": "/run/b"}])
    assert secrets.files(given) == (Path("/run/a"), Path("/run/b"))
    assert secrets.files(settings([])) == ()
