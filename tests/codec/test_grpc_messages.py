"""Messages out of pieces, and the trailers of a call."""

from __future__ import annotations

from urllib.parse import unquote

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.codec import grpc_messages as grpc
from extproc.codec.grpc_messages import MAX_TEXT, GrpcFault, Messages, framed, status

MOST = 1000


def fed(sent: bytes, cuts: list[int], most: int = MOST) -> tuple[list[bytes], int | None, int]:
    """What comes out of the pieces: messages, the status of a fault, and what waits for more."""
    messages, found, at = Messages(most), [], 0
    for cut in [*sorted(cuts), len(sent)]:
        try:
            for message in messages.feed(sent[at:cut]):
                found.append(message)  # noqa: PERF402 - what comes before a fault counts
        except GrpcFault as fault:
            return found, fault.status, 0
        at = cut
    return found, None, messages.pending


SAID = [b"one", b"", b"three" * 30, b"four"]
SENT = b"".join(map(framed, SAID))


def test_a_message() -> None:
    assert fed(framed(b"a"), []) == ([b"a"], None, 0)
    assert fed(framed(b""), []) == ([b""], None, 0)
    assert fed(b"", []) == ([], None, 0)


def test_messages_cut_anywhere() -> None:
    for one in range(len(SENT) + 1):
        for other in range(one, len(SENT) + 1, 7):
            assert fed(SENT, [one, other]) == (SAID, None, 0), (one, other)


def test_messages_byte_by_byte() -> None:
    assert fed(SENT, list(range(len(SENT)))) == (SAID, None, 0)


def test_what_is_cut_short_is_pending() -> None:
    lengths = [len(framed(b"abc")[:size]) for size in range(8)]
    assert [fed(framed(b"x") + framed(b"abc")[:size], []) for size in lengths] == [
        ([b"x"], None, size) for size in lengths
    ]
    assert [fed(framed(b"abc")[:size], list(range(size))) for size in lengths] == [
        ([], None, size) for size in lengths
    ]


@given(st.lists(st.binary(max_size=30), max_size=6), st.data())
def test_messages_in_any_pieces(said: list[bytes], chosen: st.DataObject) -> None:
    sent = b"".join(map(framed, said))
    end = chosen.draw(st.integers(0, len(sent)))
    cuts = chosen.draw(st.lists(st.integers(0, end), max_size=8))
    found, fault, pending = fed(sent[:end], cuts)
    assert fault is None
    assert found == said[: len(found)]
    assert b"".join(map(framed, found)) == sent[: end - pending]
    assert len(found) == len(said) or pending < 5 + len(said[len(found)])


@given(st.binary(max_size=60), st.data())
def test_any_bytes_mean_the_same_in_any_pieces(sent: bytes, chosen: st.DataObject) -> None:
    sent = sent.replace(b"\x01", b"\0")
    cuts = chosen.draw(st.lists(st.integers(0, len(sent)), max_size=8))
    assert fed(sent, cuts, most=20) == fed(sent, [], most=20)


@pytest.mark.parametrize(
    ("prefix", "code"),
    [
        (b"\0\0\0\x03\xe8", None),
        (b"\0\0\0\x03\xe9", grpc.RESOURCE_EXHAUSTED),
        (b"\0\xff\xff\xff\xff", grpc.RESOURCE_EXHAUSTED),
        (b"\0\x01\0\0\0", grpc.RESOURCE_EXHAUSTED),
        (b"\x01\0\0\0\x01", grpc.UNIMPLEMENTED),
        (b"\xff\xff\xff\xff\xff", grpc.UNIMPLEMENTED),
        (b"GET /", grpc.UNIMPLEMENTED),
    ],
    ids=lambda given: given.hex() if isinstance(given, bytes) else str(given),
)
@pytest.mark.parametrize("before", [b"", framed(b"a")], ids=["first", "second"])
def test_what_a_prefix_says_is_refused_before_the_message_comes(
    prefix: bytes, code: int | None, before: bytes
) -> None:
    said = [b"a"] if before else []
    for cut in range(len(before + prefix) + 1):
        assert fed(before + prefix, [cut]) == (said, code, 0 if code else 5)
        assert fed(before + prefix + b"more", [cut]) == (said, code, 0 if code else 9)


def test_a_fault_says_what_is_wrong() -> None:
    with pytest.raises(GrpcFault, match="a message of 1001 bytes, allowed: 1000"):
        Messages(MOST).feed(framed(bytes(1001)))
    with pytest.raises(GrpcFault, match="compressed messages are not read"):
        Messages(MOST).feed(b"\1" + framed(b"")[1:])


@pytest.mark.parametrize("size", [1, 16, 4096])
def test_a_message_is_read_once_it_is_whole(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for every piece again."""
    read: list[int] = []
    whole = Messages._whole
    monkeypatch.setattr(Messages, "_whole", lambda self: read.append(self.pending) or whole(self))
    sent = framed(bytes(100_000))
    assert fed(sent, list(range(0, len(sent), size)), most=100_000) == ([bytes(100_000)], None, 0)
    assert read == [len(sent)]


def test_four_mebibytes_in_pieces_of_sixteen() -> None:
    """A copy for every piece would take minutes."""
    sent = framed(bytes(1 << 22))
    messages, found = Messages(1 << 22), []
    for at in range(0, len(sent), 16):
        found += messages.feed(sent[at : at + 16])
    assert found == [bytes(1 << 22)]
    assert messages.pending == 0


def test_many_messages_in_one_piece() -> None:
    assert fed(framed(b"x") * 10_000, []) == ([b"x"] * 10_000, None, 0)


# --- what goes out


def test_a_message_as_it_goes_out() -> None:
    assert framed(b"abc") == b"\0\0\0\0\3abc"
    assert framed(bytes(1 << 16))[:5] == b"\0\0\1\0\0"


def read(block: bytes) -> list[tuple[bytes, bytes]]:
    return [tuple(field) for field in hpack.Decoder().decode(block, raw=True)]


def test_headers_and_trailers_as_hpack_reads_them() -> None:
    assert read(grpc.HEADERS) == [(b":status", b"200"), (b"content-type", b"application/grpc")]
    assert read(grpc.OK) == read(status(0, "is not said")) == [(b"grpc-status", b"0")]
    assert read(status(13, "internal error")) == [(b"grpc-status", b"13"), (b"grpc-message", b"internal error")]
    assert read(grpc.HEADERS + status(12)) == [*read(grpc.HEADERS), (b"grpc-status", b"12"), (b"grpc-message", b"")]


@given(st.text(st.characters(codec=None), max_size=150) | st.text(st.sampled_from("aé%\n€ \ud800"), max_size=150))
def test_a_text_is_printable_and_reads_as_it_was(text: str) -> None:
    (_, told), *_ = read(status(3, text))[1:]
    assert len(told) <= MAX_TEXT
    assert all(0x20 <= byte < 0x7F for byte in told)
    whole = text.encode(errors="replace").decode()
    assert whole.startswith(unquote(told.decode(), errors="strict"))
    assert len(told) > MAX_TEXT - 12 or unquote(told.decode()) == whole


def test_a_text_is_cut() -> None:
    assert read(status(3, "x" * 300))[1] == (b"grpc-message", b"x" * MAX_TEXT)
