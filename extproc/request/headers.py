"""Request headers as the rules read them: by name, and only where there is exactly one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


class Headers:
    """Values by lower-case name. A repeated header is ambiguous, so `one` has no answer for it."""

    __slots__ = ("_repeated", "_values")

    def __init__(self, pairs: Iterable[tuple[str, bytes]]) -> None:
        pairs = tuple(pairs)
        self._values = dict(pairs)
        self._repeated: frozenset[str] = frozenset()
        if len(self._values) != len(pairs):
            counts = Counter(name for name, _ in pairs)
            self._repeated = frozenset(name for name, count in counts.items() if count > 1)

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def one(self, name: str) -> bytes | None:
        """The header's only value; None where it is absent or repeated."""
        return None if name in self._repeated else self._values.get(name)

    def text(self, name: str) -> str:
        """The only value as text; "" where it is absent or repeated. Bytes outside ASCII survive."""
        value = self.one(name)
        return value.decode("ascii", "surrogateescape").strip() if value else ""
