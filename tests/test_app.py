"""Where settings come from while the process runs, and a whole sidecar that starts and ends."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

import aiohttp
import pytest

from extproc.app import Sidecar, state_directory
from extproc.codec.workers import snapshot_of
from extproc.config_source import ConfigSource
from extproc.errors import CannotStart, ConfigError
from extproc.request.classify.intent import nobody
from extproc.request.classify.weights import encode
from extproc.worker import Worker
from extproc.worker import _built as worker_built
from tests.ports import free_port
from tests.request.classify.models import small


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


@pytest.mark.parametrize("text", ["", " \n\t\n"])
def test_a_file_that_lost_its_content_changes_nothing(tmp_path: Path, text: str) -> None:
    config = source(tmp_path, "limits: {max_keys: 100}")
    config.build(config.read(), 1)
    assert config.path is not None
    config.path.write_text(text)
    with pytest.raises(ConfigError, match="is empty"):
        config.build(config.read(), 2)
    assert config.settings.limits.max_keys == 100
    config.path.write_text("{}")
    config.build(config.read(), 2)


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


@pytest.mark.parametrize("text", ["", "workers: 2"])
async def test_what_workers_of_before_wrote_is_added(tmp_path: Path, text: str) -> None:
    """Also where there are none any more."""
    left = tmp_path / "audit.worker-3-0.jsonl"
    left.write_text('{"request_id": 1}\n')
    config = source(tmp_path, f"{text}\nlisteners: {{admin: '127.0.0.1:{free_port()}'}}\nshutdown_grace_s: 0")
    async with Sidecar(config, tmp_path), asyncio.timeout(10):
        while left.exists():
            await asyncio.sleep(0.005)
    assert (tmp_path / "audit.jsonl").read_text() == '{"request_id": 1}\n'


async def test_with_workers_it_is_ready_when_the_first_of_them_is(tmp_path: Path) -> None:
    port = free_port()
    config = source(tmp_path, f"workers: 2\nlisteners: {{admin: '127.0.0.1:{port}'}}\nshutdown_grace_s: 0")
    sidecar, stop = Sidecar(config, tmp_path), asyncio.Event()
    async with aiohttp.ClientSession() as http, sidecar as listening, asyncio.TaskGroup() as group:
        assert listening.ext_proc == "unix:extproc-1.sock, unix:extproc-2.sock"
        async with http.get(f"http://127.0.0.1:{port}/readyz") as answer:
            assert (answer.status, (await answer.text()).strip()) == (503, "no worker is ready")
        group.create_task(Worker(2, tmp_path).run(stop))
        await sidecar.served()
        async with http.get(f"http://127.0.0.1:{port}/readyz") as answer:
            assert answer.status == 200
        stop.set()


def test_how_many_workers_are_automatic_is_settled_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a worker that is started again would look for another address than Envoy knows."""
    cores = [3]
    monkeypatch.setattr("extproc.deployment._cpus", lambda: cores[0])
    config = source(tmp_path, "workers: auto")
    assert config.settings.workers == 3
    cores[0] = 5
    config.build(b"workers: auto", 2)
    assert (config.settings.workers, config.waiting) == (3, ("workers",))
    assert snapshot_of(config.told())[0].workers == 3


def with_model(tmp_path: Path, data: bytes, more: str = "") -> ConfigSource:
    (tmp_path / "m.npz").write_bytes(data)
    return source(tmp_path, f"intent: {{model: {tmp_path / 'm.npz'}{more}}}")


def test_another_model_is_another_content_and_workers_are_told_which(tmp_path: Path) -> None:
    config = with_model(tmp_path, encode(small()))
    before = config.read()
    config.build(before, 1)
    assert config.read() == before
    told, _ = snapshot_of(config.told())
    assert told.intent.sha256 == hashlib.sha256(encode(small())).hexdigest()
    (tmp_path / "m.npz").write_bytes(encode(small(scale=0.03)))
    assert config.read() != before
    (tmp_path / "m.npz").unlink()
    assert config.read() != before


@pytest.mark.parametrize("more", ["", f", sha256: '{'0' * 64}'"])
def test_a_model_that_is_none_or_another_one_is_a_mistake(tmp_path: Path, more: str) -> None:
    config = with_model(tmp_path, encode(small()) if more else b"nothing", more)
    with pytest.raises(ConfigError, match=r"intent\.sha256: the file's" if more else r"intent\.model: .*no intent"):
        config.build(config.read(), 1)


def test_a_worker_whose_file_is_another_one_says_so(tmp_path: Path) -> None:
    config = with_model(tmp_path, encode(small()))
    config.build(config.read(), 1)
    told = config.told()
    (tmp_path / "m.npz").write_bytes(encode(small(scale=0.03)))
    with pytest.raises(ConfigError, match=r"intent\.sha256"):
        worker_built(told, None, nobody)


def test_switched_off_no_model_is_read(tmp_path: Path) -> None:
    config = source(tmp_path, "intent: {enabled: false, model: /nowhere}")
    assert len(config.build(config.read(), 1).classifiers) == 2
    with pytest.raises(ConfigError, match=r"intent\.model: /nowhere: No such file"):
        source(tmp_path, "intent: {model: /nowhere}").build(b"intent: {model: /nowhere}", 1)
