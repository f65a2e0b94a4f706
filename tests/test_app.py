"""Where settings come from while the process runs, and a whole sidecar that starts and ends."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest

from extproc.app import ConfigSource, Sidecar, state_directory
from extproc.errors import CannotStart, ConfigError
from tests.ports import free_port


def source(tmp_path: Path, text: str) -> ConfigSource:
    file = tmp_path / "extproc.yaml"
    file.write_text(text)
    return ConfigSource(file)


def test_without_a_file_the_shipped_defaults_hold() -> None:
    assert ConfigSource(None).settings.inference_params.max_tokens.default == 256


def test_a_changed_secret_is_a_changed_content(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    config = source(tmp_path, f"trust: {{tokens: [{{file: {token}}}]}}")
    before = config.read()
    assert config.read() == before
    token.write_text("two")
    assert config.read() != before
    token.unlink()
    assert config.read() != before


def test_what_needs_a_restart_waits_and_the_rest_is_in_force(tmp_path: Path) -> None:
    config = source(tmp_path, "limits: {max_keys: 100}")
    changed = b"limits: {max_keys: 200}\ninference_params: {max_tokens: {default: 99}}"
    built = config.build(changed, 2)
    assert (built.generation, built.limits.max_keys) == (2, 100)
    assert built.parameters.inference_params.max_tokens.default == 99
    assert config.waiting == ("limits",)
    config.build(b"limits: {max_keys: 100}", 3)
    assert config.waiting == ()


def test_a_missing_secret_is_a_mistake_with_its_place(tmp_path: Path) -> None:
    config = source(tmp_path, "trust: {tokens: [{env: NO_SUCH_VARIABLE_HERE}]}")
    with pytest.raises(ConfigError, match=r"trust\.tokens\.0: environment variable NO_SUCH_VARIABLE_HERE"):
        config.build(config.read(), 1)


def test_a_state_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotStart, match="cannot make the state directory"):
        state_directory(tmp_path / "file" / "below")


async def test_a_sidecar_starts_serves_and_ends(tmp_path: Path) -> None:
    port = free_port()
    config = source(tmp_path, f"listeners: {{admin: '127.0.0.1:{port}'}}\nshutdown_grace_s: 0")
    async with Sidecar(config, tmp_path) as listening, aiohttp.ClientSession() as http:
        assert listening.ext_proc == f"unix:{tmp_path / 'extproc.sock'}"
        async with http.get(f"http://{listening.admin}/readyz") as answer:
            assert answer.status == 200
        async with http.get(f"http://{listening.admin}/snapshot") as answer:
            assert (await answer.json())["generation"] == 1
    with pytest.raises(aiohttp.ClientConnectorError):
        async with aiohttp.ClientSession() as http:
            await http.get(f"http://127.0.0.1:{port}/readyz")


async def test_what_fails_to_start_leaves_nothing_open(tmp_path: Path) -> None:
    port = free_port()
    (tmp_path / "extproc.sock").write_text("no socket")
    config = source(tmp_path, f"listeners: {{admin: '127.0.0.1:{port}'}}")
    with pytest.raises(CannotStart, match="is no socket"):
        async with Sidecar(config, tmp_path):
            pass
    (tmp_path / "extproc.sock").unlink()
    async with Sidecar(config, tmp_path) as listening:
        assert listening.admin.endswith(str(port))
