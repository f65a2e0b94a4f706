"""Chat requests of an exact size, the same bytes in every run: several turns, unicode, escapes, parameters.

The last user turn names an order, so that a rule matches and every kind of change happens: temperature
lowered, top_p coupled to it, the length cut, a priority added.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import cycle

SIZES: dict[str, int] = {"2 KB": 2 * 1024, "100 KB": 100 * 1024, "1 MB": 1024 * 1024}

PATH = "/v1/chat/completions"

QUESTION = 'Where is my order #12345678? 我的订单号 12345678，昨天就说 "今天送到" — still nothing 😕'

TURN_BYTES = 4096
"""Longest turn: what people paste into a chat. Never more than a quarter of the body."""

_SENTENCES = (
    "The parcel left the warehouse on Tuesday, and the tracking page has not moved since.\n",
    'The courier wrote "delivered to a neighbour", but none of them has it — I asked all three.\n',
    "您好，我想确认一下配送进度，谢谢。如果今天还送不到，请帮我改成自提。\n",
    "Größe M passt leider nicht; könnten Sie mir Größe L schicken? Vielen Dank für die schnelle Hilfe!\n",
    'Here is what the app shows:\t{"state": "in_transit", "eta": null, "path": "C:\\\\orders\\\\list"}\n',
    "注文の状況を教えてください 📦 よろしくお願いします。\n",
)

_SYSTEM = "You are the shop's assistant. Be brief, be polite, never invent a delivery date."


@dataclass(frozen=True, slots=True)
class Body:
    """One body under load; `label` is how tables call its size."""

    label: str
    data: bytes


def body(label: str) -> Body:
    return Body(label, chat(SIZES[label]))


def chat(size: int) -> bytes:
    """A chat request of exactly `size` bytes."""
    shortest = len(_encoded([_turn("user", "")]))
    missing = size - shortest
    turns = _history(missing, min(TURN_BYTES, size // 4))
    bare = _encoded([*turns, _turn("user", "")])
    padding = size - len(bare)
    if padding < 0:
        raise ValueError(f"a chat request of this kind has more than {size} bytes")
    data = _encoded([*turns, _turn("user", " " * padding)])
    assert len(data) == size, "padding is one byte a character"
    return data


def _history(room: int, longest: int) -> list[dict[str, str]]:
    """User and assistant turns of together at most `room` encoded bytes."""
    turns: list[dict[str, str]] = []
    sentences = cycle(_SENTENCES)
    roles = cycle(("user", "assistant"))
    sentence = next(sentences)
    while room > 0:
        role, text, used = next(roles), "", len(_json(_turn("assistant", ""))) + 1
        while used + len(_json(sentence)) <= min(room, longest):
            text += sentence
            used += len(_json(sentence)) - 2
            sentence = next(sentences)
        if not text:
            break
        turns.append(_turn(role, text))
        room -= used
    return turns


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _encoded(turns: list[dict[str, str]]) -> bytes:
    """As the usual clients send it: compact, unicode as it is. The last turn gets the question."""
    *history, last = turns
    return _json(
        {
            "model": "llama-70b-chat",
            "messages": [_turn("system", _SYSTEM), *history, _turn("user", QUESTION + last["content"])],
            "temperature": 0.9,
            "max_tokens": 1024,
            "stream": False,
            "user": "customer-4711",
        }
    )


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
