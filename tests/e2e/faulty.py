"""Stand-in engines that fail when they are told to, and what a sidecar says of it."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from tests.e2e.asking import CHAT, Answer, ask, chat
from tests.e2e.running import TOKENS, Assembly, Engine, Sidecar, following_envoy, write_config

QUICK = {
    "min_requests": 20,
    "open_s": 1.0,
    "max_open_s": 2.0,
    "jitter_share": 0.0,
    "probes": 5,
    "bad_probes": 0,
    "half_open_s": 5.0,
}
"""Of a breaker: the rules are those of the product, the times are shorter."""


class FaultyEngine(Engine):
    """The stand-in with its faults."""

    def fail(self, **faults: Any) -> None:
        self._faults("PUT", json.dumps(faults).encode())

    def heal(self) -> None:
        self._faults("DELETE", None)

    def _faults(self, method: str, body: bytes | None) -> None:
        request = urllib.request.Request(f"{self.url}/__faults", data=body, method=method)
        with urllib.request.urlopen(request, timeout=5) as answer:
            assert answer.status == 200


class Guarded(Assembly):
    """Sidecar and Envoy before pools of the test's own."""

    def __init__(self, pools: list[dict[str, Any]], **changes: Any) -> None:
        super().__init__("guarded-")
        try:
            (self.folder / "token").write_text(TOKENS[0])
            breakers = {name: dict(QUICK) for name in ("pool", "parameters", "fallback")}
            breakers["window_s"] = 10  # type: ignore[assignment]
            protection = {"interval_s": 0.1, "breakers": breakers}
            self.tree = {
                "pools": pools,
                "trust": {"tokens": [{"file": str(self.folder / "token")}]},
                "protection": _laid(protection, changes.pop("protection", {})),
                **changes,
            }
            self.config = self.folder / "extproc.yaml"
            write_config(self.config, self.tree)
            self.state_dir = self.folder / "state"
            self.state_dir.mkdir()
            self.sidecar = Sidecar(self.config, self.state_dir)
            self._stops.append(self.sidecar.stop)
            self.envoy = following_envoy(self.config, self.state_dir)
            self._stops.append(self.envoy.stop)
        except BaseException:
            self.stop()
            raise

    @property
    def port(self) -> int:
        return self.envoy.port

    def __enter__(self) -> Self:
        return self

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.sidecar.admin("/status"))
        return found

    def breaker(self, name: str) -> str:
        return str(next(each["state"] for each in self.status()["breakers"] if each["name"] == name))

    def incidents(self) -> list[dict[str, Any]]:
        """The oldest first."""
        found: list[dict[str, Any]] = json.loads(self.sidecar.admin("/events"))
        return found[::-1]


def _laid(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        known = result.get(key)
        result[key] = _laid(known, value) if isinstance(known, Mapping) and isinstance(value, Mapping) else value
    return result


def served_by(answer: Answer) -> str:
    """`ok`, or the status, and why a light pool answered."""
    reason = (answer.values("x-llm-fallback") or [""])[0]
    return f"{answer.status} {reason}".strip()


def ask_many(port: int, count: int, *, clients: int = 4, text: str = "What is new?", **given: Any) -> list[Answer]:
    """So many requests by so many clients."""
    with ThreadPoolExecutor(clients) as pool:
        return list(pool.map(lambda _: ask(port, CHAT, chat(text), **given), range(count)))


@contextmanager
def steady(send: Callable[[], str], *, clients: int = 2) -> Iterator[Counter[str]]:
    """Requests one after the other by each client while the block runs; what came of them."""
    came: Counter[str] = Counter()
    ended, lock = threading.Event(), threading.Lock()

    def run() -> None:
        while not ended.is_set():
            result = send()
            with lock:
                came[result] += 1

    threads = [threading.Thread(target=run) for _ in range(clients)]
    for each in threads:
        each.start()
    try:
        yield came
    finally:
        ended.set()
        for each in threads:
            each.join(30)


def engine(folder: Path) -> FaultyEngine:
    folder.mkdir(exist_ok=True)
    return FaultyEngine(folder)
