"""The connection, frame by frame: what is read, what is answered, and who is shown the door."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.codec import http2
from extproc.codec.http2 import MAX_CONTROL, PREFACE, STREAM_WINDOW, Connection
from extproc.codec.http2_events import Broken, Ended, Event, Opened, Received, Reset
from extproc.codec.http2_frames import (
    ACK,
    CONTINUATION,
    DATA,
    ENABLE_PUSH,
    END_HEADERS,
    END_STREAM,
    FRAME_BYTES,
    GOAWAY,
    HAS_PRIORITY,
    HEADER_TABLE_SIZE,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    MAX_CONCURRENT_STREAMS,
    MAX_FRAME_BYTES,
    MAX_FRAME_SIZE,
    MAX_HEADER_LIST_SIZE,
    MAX_STREAM_ID,
    MAX_WINDOW,
    PADDED,
    PING,
    PRIORITY,
    PUSH_PROMISE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Code,
    block,
    uint32,
)
from extproc.codec.http2_frames import settings as settings_frame
from extproc.codec.http2_headers import MAX_HEADER_BYTES
from tests.codec.http2_peer import (
    FIELDS,
    NO_SETTINGS,
    REQUEST,
    Frame,
    fed,
    headers,
    met,
    padded,
    parse,
    raw,
    told,
)

BLOCK = b"\x88"
TRAILERS = block([(b"grpc-status", b"0")])
OPENED = Opened(1, dict(FIELDS))
PINGED = raw(PING, 0, 0, b"12345678")


def data(content: bytes, stream: int = 1, flags: int = 0) -> bytes:
    return raw(DATA, flags, stream, content)


def update(more: int, stream: int = 0) -> bytes:
    return raw(WINDOW_UPDATE, 0, stream, uint32(more))


def asking(*pairs: tuple[int, int], streams: int = 1) -> Connection:
    """Streams 1, 3, 5, ... are open."""
    connection = met(*pairs)
    for number in range(streams):
        assert connection.receive(headers(2 * number + 1)) == [Opened(2 * number + 1, dict(FIELDS))]
    return connection


def broken(connection: Connection, sent: bytes) -> Broken:
    """It ends the connection, with a farewell and nothing behind it."""
    *_, last = connection.receive(sent)
    assert isinstance(last, Broken)
    farewell = told(connection)[-1]
    assert farewell.kind == GOAWAY
    assert farewell.payload[4:] == uint32(last.code)
    assert connection.receive(PREFACE + NO_SETTINGS + headers(99)) == []
    connection.respond(1, BLOCK)
    connection.send(1, b"more")
    connection.finish(1, TRAILERS)
    connection.leave()
    assert connection.take() == b""
    return last


def body(frames: list[Frame], stream: int = 1) -> bytes:
    return b"".join(each.payload for each in frames if each.kind == DATA and each.stream == stream)


# --- the beginning


def test_we_speak_first() -> None:
    said, granted = told(Connection())
    assert (said.kind, said.flags, said.stream) == (SETTINGS, 0, 0)
    assert [
        (said.payload[at + 1], int.from_bytes(said.payload[at + 2 : at + 6], "big")) for at in (0, 6, 12, 18)
    ] == [
        (HEADER_TABLE_SIZE, 0),
        (MAX_CONCURRENT_STREAMS, http2.MAX_STREAMS),
        (INITIAL_WINDOW_SIZE, STREAM_WINDOW),
        (MAX_HEADER_LIST_SIZE, MAX_HEADER_BYTES),
    ]
    assert granted == Frame(WINDOW_UPDATE, 0, 0, uint32(MAX_WINDOW - 65_535))


@pytest.mark.parametrize("cut", range(len(PREFACE) + len(NO_SETTINGS) + 1))
def test_a_preface_in_two_pieces(cut: int) -> None:
    connection = Connection()
    connection.take()
    assert fed(connection, PREFACE + NO_SETTINGS, [cut]) == []
    assert told(connection) == [Frame(SETTINGS, ACK, 0, b"")]


def test_a_preface_byte_by_byte() -> None:
    connection = Connection()
    sent = PREFACE + NO_SETTINGS + headers()
    assert fed(connection, sent, list(range(len(sent)))) == [OPENED]


@pytest.mark.parametrize(
    "sent",
    [b"GET / HTTP/1.1\r\n\r\n", b"P ", b"\0", b"\x16\x03\x01", PREFACE[:-1] + b"x", PREFACE[:5] + PREFACE],
)  # fmt: skip
def test_what_is_no_http2(sent: bytes) -> None:
    assert broken(Connection(), sent) == Broken(Code.PROTOCOL_ERROR, "no HTTP/2")


def test_a_wrong_preface_shows_at_its_first_wrong_byte() -> None:
    for at in range(len(PREFACE)):
        connection = Connection()
        assert connection.receive(PREFACE[:at]) == []
        assert len(connection.receive(bytes((PREFACE[at] ^ 1,)))) == 1


def test_nothing_received_means_nothing() -> None:
    connection = Connection()
    assert connection.receive(b"") == []
    assert connection.receive(PREFACE) == []
    assert connection.receive(b"") == []


# --- frames


def conversation() -> bytes:
    """Everything a client says."""
    return b"".join(
        (
            settings_frame((ENABLE_PUSH, 0), (INITIAL_WINDOW_SIZE, 100_000), (99, 5)),
            headers(1),
            data(b"one"),
            PINGED,
            raw(PRIORITY, 0, 3, bytes(5)),
            raw(HEADERS, 0, 3, REQUEST[:10]),
            raw(CONTINUATION, 0, 3, REQUEST[10:20]),
            raw(CONTINUATION, END_HEADERS, 3, REQUEST[20:]),
            update(1000),
            update(1000, 1),
            raw(DATA, PADDED, 1, padded(b"two", 4)),
            raw(99, 255, 7, b"of a later day"),
            raw(RST_STREAM, 0, 3, uint32(Code.CANCEL)),
            headers(5, END_HEADERS | END_STREAM),
            raw(HEADERS, END_HEADERS | END_STREAM, 1, block([(b"a", b"trailer")])),
            raw(GOAWAY, 0, 0, bytes(8)),
        )
    )


MEANT = [
    OPENED,
    Received(1, b"one"),
    Opened(3, dict(FIELDS)),
    Received(1, b"two"),
    Reset(3),
    Opened(5, dict(FIELDS)),
    Ended(5),
    Ended(1),
]


def test_frames_cut_anywhere_mean_the_same() -> None:
    sent = PREFACE + conversation()
    for cut in range(len(sent) + 1):
        connection = Connection()
        connection.take()
        assert fed(connection, sent, [cut]) == MEANT, cut
        assert told(connection) == [Frame(SETTINGS, ACK, 0, b""), Frame(PING, ACK, 0, b"12345678")]


def test_every_byte_alone_means_the_same() -> None:
    sent = PREFACE + conversation()
    assert fed(Connection(), sent, list(range(len(sent)))) == MEANT


def test_the_highest_bit_of_a_stream_means_nothing() -> None:
    assert met().receive(raw(HEADERS, END_HEADERS, 1 | 1 << 31, REQUEST)) == [OPENED]


def test_the_longest_frame() -> None:
    connection = asking()
    assert connection.receive(data(bytes(FRAME_BYTES))) == [Received(1, bytes(FRAME_BYTES))]


def test_a_frame_too_long_shows_at_its_head() -> None:
    head = raw(DATA, 0, 1, bytes(FRAME_BYTES + 1))[:9]
    assert broken(asking(), head) == Broken(Code.FRAME_SIZE_ERROR, "a frame of 16385 bytes")


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (raw(PUSH_PROMISE, END_HEADERS, 1, uint32(2) + REQUEST), Code.PROTOCOL_ERROR),
        (raw(PING, 0, 0, bytes(7)), Code.FRAME_SIZE_ERROR),
        (raw(PING, 0, 1, bytes(8)), Code.FRAME_SIZE_ERROR),
        (raw(SETTINGS, 0, 0, bytes(5)), Code.FRAME_SIZE_ERROR),
        (raw(SETTINGS, ACK, 0, bytes(6)), Code.FRAME_SIZE_ERROR),
        (raw(SETTINGS, 0, 1, b""), Code.FRAME_SIZE_ERROR),
        (raw(RST_STREAM, 0, 1, bytes(3)), Code.FRAME_SIZE_ERROR),
        (raw(RST_STREAM, 0, 0, bytes(4)), Code.PROTOCOL_ERROR),
        (raw(RST_STREAM, 0, 9, bytes(4)), Code.PROTOCOL_ERROR),
        (raw(WINDOW_UPDATE, 0, 0, bytes(5)), Code.FRAME_SIZE_ERROR),
        (update(1, 9), Code.PROTOCOL_ERROR),
        (update(1, 2), Code.PROTOCOL_ERROR),
        (update(0), Code.PROTOCOL_ERROR),
        (update(0, 1), Code.PROTOCOL_ERROR),
        (data(b"x", 9), Code.PROTOCOL_ERROR),
        (data(b"x", 2), Code.PROTOCOL_ERROR),
        (data(b"x", 0), Code.PROTOCOL_ERROR),
        (headers(0), Code.PROTOCOL_ERROR),
        (headers(2), Code.PROTOCOL_ERROR),
        (raw(CONTINUATION, END_HEADERS, 1, b""), Code.PROTOCOL_ERROR),
        (headers(3, END_HEADERS, b"\xff\xff"), Code.COMPRESSION_ERROR),
        (raw(HEADERS, END_HEADERS | HAS_PRIORITY, 3, bytes(4)), Code.FRAME_SIZE_ERROR),
        (raw(HEADERS, END_HEADERS | PADDED, 3, b""), Code.PROTOCOL_ERROR),
        (raw(HEADERS, END_HEADERS | PADDED, 3, b"\x05abcd"), Code.PROTOCOL_ERROR),
        (raw(DATA, PADDED, 1, b""), Code.PROTOCOL_ERROR),
        (raw(DATA, PADDED, 1, b"\x01"), Code.PROTOCOL_ERROR),
        (raw(DATA, PADDED, 1, b"\x05abcd"), Code.PROTOCOL_ERROR),
    ],
    ids=lambda given: given.name if isinstance(given, Code) else given[3:].hex(),
)
def test_what_breaks_a_connection(sent: bytes, code: Code) -> None:
    assert broken(asking(), sent).code is code


def test_what_came_before_the_break_is_still_answered() -> None:
    connection = met()
    opened, received, ended, last = connection.receive(
        headers() + data(b"x", flags=END_STREAM) + bytes(9) * 2 + PREFACE
    )
    assert [opened, received, ended] == [OPENED, Received(1, b"x"), Ended(1)]
    assert isinstance(last, Broken)
    connection.respond(1, BLOCK)
    connection.send(1, b"answer")
    connection.finish(1, TRAILERS)
    assert [each.kind for each in told(connection)] == [HEADERS, DATA, HEADERS, GOAWAY]
    assert connection.streams == 0


# --- settings, pings


def test_settings_are_acknowledged_before_they_are_made_use_of() -> None:
    """Until then, the peer keeps to what it said before: more is a breach."""
    connection = asking((INITIAL_WINDOW_SIZE, 10))
    connection.send(1, bytes(40_000))
    assert [len(each.payload) for each in told(connection)] == [10]
    connection.receive(settings_frame((MAX_FRAME_SIZE, 30_000), (INITIAL_WINDOW_SIZE, 30_010)))
    acknowledged, sent = told(connection)
    assert (acknowledged.kind, acknowledged.flags) == (SETTINGS, ACK)
    assert (sent.kind, len(sent.payload)) == (DATA, 30_000)


def test_an_acknowledgement_is_not_acknowledged() -> None:
    connection = met()
    assert connection.receive(raw(SETTINGS, ACK, 0, b"") + raw(PING, ACK, 0, bytes(8))) == []
    assert connection.take() == b""


def test_a_ping_comes_back() -> None:
    connection = met()
    assert connection.receive(PINGED) == []
    assert told(connection) == [Frame(PING, ACK, 0, b"12345678")]


@pytest.mark.parametrize("value", [0, FRAME_BYTES - 1, MAX_FRAME_BYTES + 1, MAX_WINDOW])
def test_a_frame_size_out_of_range(value: int) -> None:
    assert broken(met(), settings_frame((MAX_FRAME_SIZE, value))).code is Code.PROTOCOL_ERROR


@pytest.mark.parametrize("value", [FRAME_BYTES, MAX_FRAME_BYTES])
def test_a_frame_size_in_range(value: int) -> None:
    connection = asking((MAX_FRAME_SIZE, value), (INITIAL_WINDOW_SIZE, MAX_WINDOW))
    connection.receive(update(MAX_WINDOW - 65_535))
    connection.send(1, bytes(MAX_FRAME_BYTES + 1))
    assert max(len(each.payload) for each in told(connection)) == value


def test_a_window_out_of_range() -> None:
    assert broken(met(), settings_frame((INITIAL_WINDOW_SIZE, 1 << 31))).code is Code.FLOW_CONTROL_ERROR


def test_a_larger_initial_window_lets_out_what_waits() -> None:
    connection = asking((INITIAL_WINDOW_SIZE, 4), streams=2)
    connection.send(1, b"abcdefgh")
    connection.send(3, b"ABCDEFGH")
    assert [(each.stream, each.payload) for each in told(connection)] == [(1, b"abcd"), (3, b"ABCD")]
    connection.receive(settings_frame((INITIAL_WINDOW_SIZE, 6)))
    assert [(each.stream, each.payload) for each in told(connection)[1:]] == [(1, b"ef"), (3, b"EF")]


def test_a_smaller_initial_window_is_owed() -> None:
    connection = asking((INITIAL_WINDOW_SIZE, 10))
    connection.send(1, b"0123456789abcdef")
    connection.receive(settings_frame((INITIAL_WINDOW_SIZE, 4)))
    assert body(told(connection)) == b"0123456789"
    connection.receive(update(6, 1))
    assert told(connection) == [], "it stands at nought now"
    connection.receive(update(2, 1))
    assert body(told(connection)) == b"ab"
    connection.receive(settings_frame((INITIAL_WINDOW_SIZE, 100)))
    assert body(told(connection)) == b"cdef"


def test_the_last_of_repeated_settings_counts() -> None:
    connection = asking((INITIAL_WINDOW_SIZE, 50), (INITIAL_WINDOW_SIZE, 3))
    connection.send(1, b"abcdef")
    assert body(told(connection)) == b"abc"


def test_initial_windows_overflow() -> None:
    connection = asking()
    connection.receive(update(MAX_WINDOW - 65_535, 1))
    assert broken(connection, settings_frame((INITIAL_WINDOW_SIZE, 65_536))).code is Code.FLOW_CONTROL_ERROR


@pytest.mark.parametrize("stream", [0, 1])
def test_updates_overflow(stream: int) -> None:
    connection = asking()
    assert connection.receive(update(MAX_WINDOW - 65_535, stream)) == []
    assert broken(connection, update(1, stream)).code is Code.FLOW_CONTROL_ERROR


@pytest.mark.parametrize("asked", [PINGED, NO_SETTINGS], ids=["pings", "settings"])
def test_a_peer_that_asks_and_never_reads(asked: bytes) -> None:
    connection = met()
    for _ in range(MAX_CONTROL // 100):
        assert connection.receive(asked * 100) == []
    assert broken(connection, asked).code is Code.ENHANCE_YOUR_CALM


def test_a_peer_that_asks_and_reads() -> None:
    connection = met()
    for _ in range(3):
        assert connection.receive(PINGED * MAX_CONTROL) == []
        assert len(told(connection)) == MAX_CONTROL


# --- what the peer sends


def test_padding_counts_and_is_left_out() -> None:
    connection = asking()
    sent = raw(DATA, PADDED | END_STREAM, 1, padded(b"x", 255))
    assert connection.receive(sent) == [Received(1, b"x"), Ended(1)]


def test_a_frame_of_padding_alone() -> None:
    assert asking().receive(raw(DATA, PADDED, 1, padded(b"", 255))) == []


@pytest.mark.parametrize("flags", [0, PADDED, HAS_PRIORITY, PADDED | HAS_PRIORITY])
def test_headers_with_padding_and_priority(flags: int) -> None:
    payload = bytes(5 if flags & HAS_PRIORITY else 0) + REQUEST
    payload = padded(payload, 9) if flags & PADDED else payload
    assert met().receive(raw(HEADERS, END_HEADERS | flags, 1, payload)) == [OPENED]


def test_empty_data_says_nothing_but_the_end() -> None:
    assert asking().receive(data(b"") + data(b"", flags=END_STREAM)) == [Ended(1)]


def test_a_stream_window_is_given_back_at_its_half() -> None:
    connection = asking()
    size, updates = 10_000, []
    for sent in range(size, 3 * STREAM_WINDOW, size):
        connection.receive(data(bytes(size)))
        updates += [(sent, *each[2:]) for each in told(connection)]
    assert [(stream, int.from_bytes(more, "big")) for _, stream, more in updates] == [(1, 530_000)] * 5
    assert [before for before, *_ in updates] == [530_000 * times for times in range(1, 6)]


def test_what_ends_a_stream_gives_nothing_back() -> None:
    connection = asking()
    for _ in range(32):
        connection.receive(data(bytes(FRAME_BYTES)))
    assert told(connection) == []
    connection.receive(data(b"x", flags=END_STREAM))
    assert told(connection) == []


def test_more_than_a_stream_was_granted() -> None:
    connection = asking()
    connection._streams[1].granted = 10
    assert broken(connection, data(bytes(11))).code is Code.FLOW_CONTROL_ERROR


def test_more_than_the_connection_was_granted() -> None:
    connection = asking()
    connection._granted = 10
    assert broken(connection, data(bytes(11))).code is Code.FLOW_CONTROL_ERROR


def test_the_connections_window_is_given_back_for_streams_that_are_gone() -> None:
    connection = asking()
    connection.finish(1, TRAILERS)
    connection.take()
    connection._granted = (MAX_WINDOW >> 1) + 5
    assert connection.receive(data(bytes(4))) == []
    assert told(connection) == []
    assert connection.receive(data(bytes(2))) == []
    assert told(connection) == [Frame(WINDOW_UPDATE, 0, 0, uint32(MAX_WINDOW - (MAX_WINDOW >> 1) + 1))]


def test_data_after_the_end_of_a_stream() -> None:
    connection = asking()
    connection.receive(data(b"", flags=END_STREAM))
    assert broken(connection, data(b"x")).code is Code.STREAM_CLOSED


def test_trailers_end_a_stream() -> None:
    trailers = raw(HEADERS, END_HEADERS | END_STREAM, 1, block([(b"a", b"b")]))
    connection = asking()
    assert connection.receive(trailers) == [Ended(1)]
    assert broken(connection, trailers).code is Code.PROTOCOL_ERROR


def test_headers_amid_a_stream() -> None:
    assert broken(asking(), headers()).code is Code.PROTOCOL_ERROR


def test_streams_come_in_order() -> None:
    """Trailers of one that is answered look alike, but for their end."""
    connection = met()
    connection.receive(headers(5))
    assert connection.receive(headers(3, END_HEADERS | END_STREAM)) == []
    assert broken(connection, headers(3)).code is Code.PROTOCOL_ERROR


def test_a_stream_that_is_answered_hears_nothing_more() -> None:
    connection = asking()
    connection.respond(1, BLOCK)
    connection.finish(1, TRAILERS)
    assert connection.streams == 0
    late = data(b"x") + update(5, 1) + headers(1, END_HEADERS | END_STREAM) + raw(RST_STREAM, 0, 1, bytes(4))
    assert connection.receive(late) == []
    *_, end, reset = told(connection)
    assert end == Frame(HEADERS, END_HEADERS | END_STREAM, 1, TRAILERS)
    assert reset == Frame(RST_STREAM, 0, 1, uint32(Code.NO_ERROR))


def test_a_stream_that_has_ended_is_not_reset() -> None:
    connection = asking()
    connection.receive(data(b"", flags=END_STREAM))
    connection.finish(1, TRAILERS)
    assert told(connection) == [Frame(HEADERS, END_HEADERS | END_STREAM, 1, TRAILERS)]


def test_a_stream_that_is_reset_says_nothing_more() -> None:
    connection = asking((INITIAL_WINDOW_SIZE, 2))
    connection.send(1, b"abc")
    connection.finish(1, TRAILERS)
    connection.take()
    assert connection.receive(raw(RST_STREAM, 0, 1, uint32(Code.CANCEL))) == [Reset(1)]
    assert connection.streams == 0
    connection.respond(1, BLOCK)
    connection.send(1, b"x")
    connection.finish(1, TRAILERS)
    connection.receive(update(5) + settings_frame((INITIAL_WINDOW_SIZE, 9)))
    assert [each.kind for each in told(connection)] == [SETTINGS]


def test_more_streams_than_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "MAX_STREAMS", 2)
    connection = asking(streams=2)
    assert connection.receive(headers(5) + data(b"x", 5) + headers(5, END_HEADERS | END_STREAM)) == []
    assert told(connection) == [Frame(RST_STREAM, 0, 5, uint32(Code.REFUSED_STREAM))]
    connection.finish(1, TRAILERS)
    assert connection.receive(headers(7)) == [Opened(7, dict(FIELDS))]


def test_refusals_nobody_reads_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "MAX_STREAMS", 0)
    asked = b"".join(headers(number) for number in range(1, 2 * MAX_CONTROL + 3, 2))
    assert broken(met(), asked).code is Code.ENHANCE_YOUR_CALM


# --- header blocks in pieces


@pytest.mark.parametrize(
    "between",
    [data(b"x"), PINGED, NO_SETTINGS, headers(3), raw(99, 0, 0, b""), update(1)],
    ids=["data", "ping", "settings", "headers", "unknown", "update"],
)
def test_nothing_comes_between_pieces_of_a_block(between: bytes) -> None:
    assert broken(met(), raw(HEADERS, 0, 1, REQUEST[:9]) + between).reason == "headers cut short"


def test_a_continuation_of_another_stream() -> None:
    sent = raw(HEADERS, 0, 1, REQUEST[:9]) + raw(CONTINUATION, END_HEADERS, 3, REQUEST[9:])
    assert broken(met(), sent).reason == "a continuation of nothing"


def test_an_empty_last_piece() -> None:
    assert met().receive(raw(HEADERS, 0, 1, REQUEST) + raw(CONTINUATION, END_HEADERS, 1, b"")) == [OPENED]


def test_an_empty_first_piece() -> None:
    assert met().receive(raw(HEADERS, 0, 1, b"") + raw(CONTINUATION, END_HEADERS, 1, REQUEST)) == [OPENED]


def test_empty_pieces_bring_nothing_on() -> None:
    sent = raw(HEADERS, 0, 1, REQUEST) + raw(CONTINUATION, 0, 1, b"")
    assert broken(met(), sent).code is Code.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("size", [1, 1000, FRAME_BYTES])
def test_pieces_without_end(size: int) -> None:
    connection = met()
    events = connection.receive(raw(HEADERS, 0, 1, b""))
    for _ in range(MAX_HEADER_BYTES // size):
        events += connection.receive(raw(CONTINUATION, 0, 1, bytes(size)))
    assert events == []
    assert broken(connection, raw(CONTINUATION, 0, 1, bytes(size))).code is Code.ENHANCE_YOUR_CALM


def test_what_ends_with_the_headers_ends_though_they_come_in_pieces() -> None:
    sent = raw(HEADERS, END_STREAM, 1, REQUEST[:9]) + raw(CONTINUATION, END_HEADERS, 1, REQUEST[9:])
    assert met().receive(sent) == [OPENED, Ended(1)]


# --- what we send


def test_an_answer() -> None:
    connection = asking()
    connection.respond(1, BLOCK)
    connection.send(1, b"one")
    connection.send(1, b"two")
    connection.finish(1, TRAILERS)
    assert told(connection) == [
        Frame(HEADERS, END_HEADERS, 1, BLOCK),
        Frame(DATA, 0, 1, b"one"),
        Frame(DATA, 0, 1, b"two"),
        Frame(HEADERS, END_HEADERS | END_STREAM, 1, TRAILERS),
        Frame(RST_STREAM, 0, 1, uint32(Code.NO_ERROR)),
    ]


def test_an_answer_larger_than_a_frame() -> None:
    connection = asking()
    content = bytes(range(250)) * 200
    connection.send(1, content)
    sent = told(connection)
    assert [len(each.payload) for each in sent] == [FRAME_BYTES, FRAME_BYTES, FRAME_BYTES, 50_000 - 3 * FRAME_BYTES]
    assert body(sent) == content


def test_an_answer_larger_than_its_windows_goes_on_by_itself() -> None:
    connection = asking()
    content = bytes(range(250)) * 4000
    connection.send(1, content)
    connection.finish(1, TRAILERS)
    sent = told(connection)
    assert len(body(sent)) == 65_535
    while connection.streams:
        connection.receive(update(70_000, 1))
        assert told(connection) == [], "the connection's window is used up"
        connection.receive(update(70_000))
        more = told(connection)
        assert len(body(more)) == min(70_000, len(content) - len(body(sent)))
        sent += more
    assert body(sent) == content
    assert [each.kind for each in sent[-3:]] == [DATA, HEADERS, RST_STREAM]


def test_the_connections_window_goes_to_who_waits_longest() -> None:
    connection = asking(streams=3)
    connection.send(1, b"a" * 65_530)
    connection.send(3, b"b" * 10)
    connection.send(5, b"c" * 10)
    connection.send(3, b"B" * 10)
    connection.finish(3, TRAILERS)
    assert body(told(connection), 3) == b"b" * 5
    connection.receive(update(10))
    assert [(each.stream, each.payload) for each in told(connection)] == [(3, b"bbbbbBBBBB")]
    connection.receive(update(10))
    first, trailers, reset, last = told(connection)
    assert (first.stream, first.payload) == (3, b"BBBBB")
    assert (trailers.stream, trailers.kind, reset.kind) == (3, HEADERS, RST_STREAM)
    assert (last.stream, last.payload) == (5, b"ccccc")


def test_a_stream_that_waits_for_itself_holds_up_no_other() -> None:
    connection = asking((INITIAL_WINDOW_SIZE, 2), streams=2)
    connection.send(1, b"abcd")
    connection.send(3, b"AB")
    connection.finish(3, TRAILERS)
    assert [each.stream for each in told(connection)] == [1, 3, 3, 3]
    connection.receive(update(1, 1))
    assert [(each.stream, each.payload) for each in told(connection)] == [(1, b"c")]


@pytest.mark.parametrize("first", [b"", b"abc"], ids=["nothing", "all"])
def test_nothing_to_send_waits_for_nothing(first: bytes) -> None:
    connection = asking((INITIAL_WINDOW_SIZE, 3))
    connection.send(1, first)
    connection.send(1, b"")
    connection.receive(settings_frame((INITIAL_WINDOW_SIZE, 0)))
    connection._window = 0
    connection.send(1, b"")
    connection.finish(1, TRAILERS)
    assert [each.kind for each in told(connection) if each.payload][-2:] == [HEADERS, RST_STREAM]
    assert connection.streams == 0
    assert connection.receive(update(5) + settings_frame((INITIAL_WINDOW_SIZE, 100))) == []


def test_what_is_finished_stays_so() -> None:
    connection = asking((INITIAL_WINDOW_SIZE, 1))
    connection.send(1, b"ab")
    connection.finish(1, TRAILERS)
    connection.finish(1, BLOCK)
    connection.send(1, b"c")
    connection.receive(update(9, 1))
    sent = told(connection)
    assert body(sent) == b"ab"
    assert [each.payload for each in sent if each.kind == HEADERS] == [TRAILERS]


def test_a_peer_that_ends_while_its_trailers_wait_is_not_reset() -> None:
    connection = asking((INITIAL_WINDOW_SIZE, 1))
    connection.send(1, b"ab")
    connection.finish(1, TRAILERS)
    assert connection.receive(data(b"", flags=END_STREAM) + update(1, 1)) == [Ended(1)]
    assert [each.kind for each in told(connection)] == [DATA, DATA, HEADERS]


@pytest.mark.parametrize("size", [0, 4095])
@pytest.mark.parametrize("waits", [False, True])
def test_a_smaller_table_is_agreed_to_in_the_next_block_of_headers(size: int, waits: bool) -> None:
    """RFC 7541, 4.2: a decoder may take its absence for an error."""
    connection = asking((INITIAL_WINDOW_SIZE, 1), streams=2)
    connection.send(1, b"ab" if waits else b"a")
    connection.finish(1, TRAILERS)
    connection.receive(settings_frame((HEADER_TABLE_SIZE, size)))
    connection.respond(3, BLOCK)
    connection.finish(3, TRAILERS)
    connection.receive(update(9, 1))
    blocks = [(each.stream, each.payload) for each in told(connection) if each.kind == HEADERS]
    agreed = [(3, b"\x20" + BLOCK), (3, TRAILERS)]
    assert blocks == ([*agreed, (1, TRAILERS)] if waits else [(1, TRAILERS), *agreed])


@pytest.mark.parametrize("size", [4096, 65_536])
def test_a_table_that_is_not_smaller_needs_no_word(size: int) -> None:
    connection = asking((HEADER_TABLE_SIZE, size))
    connection.finish(1, TRAILERS)
    assert told(connection)[0].payload == TRAILERS


def test_a_stream_nobody_knows() -> None:
    connection = met()
    connection.respond(1, BLOCK)
    connection.send(1, b"x")
    connection.finish(1, TRAILERS)
    assert connection.take() == b""


def test_leaving_lets_everything_go_on() -> None:
    connection = asking()
    connection.leave()
    assert told(connection) == [Frame(GOAWAY, 0, 0, uint32(MAX_STREAM_ID) + uint32(Code.NO_ERROR))]
    assert connection.receive(headers(3)) == [Opened(3, dict(FIELDS))]
    connection.finish(1, TRAILERS)
    assert [each.kind for each in told(connection)] == [HEADERS, RST_STREAM]


def test_what_is_not_sent_yet_is_counted() -> None:
    connection = met()
    assert connection.unsent == 0
    connection.receive(PINGED * 3)
    assert connection.unsent == 3
    connection.take()
    assert connection.unsent == 0


# --- whatever comes

KINDS = st.integers(0, 11)
PAYLOADS = st.one_of(
    st.binary(max_size=20),
    st.just(REQUEST),
    st.builds(lambda cut: REQUEST[:cut], st.integers(0, len(REQUEST))),
    st.builds(lambda cut: REQUEST[cut:], st.integers(0, len(REQUEST))),
    st.builds(uint32, st.integers(0, MAX_WINDOW)),
    st.lists(st.tuples(st.integers(0, 7), st.sampled_from([0, 1, 20_000, 1 << 31])), max_size=3).map(
        lambda pairs: settings_frame(*pairs)[9:]
    ),
)
FRAMES = st.builds(raw, KINDS, st.integers(0, 255), st.integers(0, 9), PAYLOADS)
SENT = st.lists(st.one_of(FRAMES, FRAMES, FRAMES, st.just(headers(1)), st.just(headers(3)), st.binary(max_size=30)))


def answer(connection: Connection, event: Event) -> None:
    """As a server would: some at once, some at the end, some in vain."""
    if isinstance(event, Opened) and event.stream != 3:
        connection.respond(event.stream, BLOCK)
    elif isinstance(event, Received):
        connection.send(event.stream, event.data * 3000)
    elif isinstance(event, Ended):
        connection.finish(event.stream, TRAILERS)


def spoken(connection: Connection, sent: bytes, cuts: list[int], answering: bool) -> tuple[list[Event], bytes]:
    events: list[Event] = []
    out = b""
    for begin, end in pairwise([0, *sorted(cuts), len(sent)]):
        found = connection.receive(sent[begin:end])
        for event in found if answering else ():
            answer(connection, event)
        events += found
        out += connection.take()
    return events, out


@given(st.binary(max_size=100))
def test_any_bytes_are_survived(sent: bytes) -> None:
    for connection in (Connection(), met(), asking(streams=3)):
        spoken(connection, sent, [len(sent) // 2], answering=True)


@settings(max_examples=300)
@given(SENT)
def test_any_frames_are_survived(parts: list[bytes]) -> None:
    events, out = spoken(asking(streams=2), b"".join(parts), [], answering=True)
    assert not any(isinstance(event, Broken) for event in events[:-1])
    farewells = [each for each in parse(out) if each.kind == GOAWAY]
    assert len(farewells) == sum(isinstance(event, Broken) for event in events)


@settings(max_examples=300)
@given(SENT, st.data())
def test_any_frames_mean_the_same_in_any_pieces(parts: list[bytes], chosen: st.DataObject) -> None:
    sent = PREFACE + b"".join(parts)
    cuts = chosen.draw(st.lists(st.integers(0, len(sent)), max_size=8))
    assert spoken(Connection(), sent, cuts, answering=False) == spoken(Connection(), sent, [], answering=False)


VALID = st.lists(
    st.one_of(
        st.builds(data, st.binary(max_size=9), st.sampled_from([1, 3, 5])),
        st.builds(update, st.integers(1, 99_999), st.sampled_from([0, 1, 3, 5, 7])),
        st.builds(lambda size: settings_frame((INITIAL_WINDOW_SIZE, size)), st.integers(0, 99_999)),
        st.just(PINGED),
    ),
    max_size=30,
)


@given(VALID, st.data())
def test_a_conversation_goes_the_same_way_in_any_pieces(parts: list[bytes], chosen: st.DataObject) -> None:
    opening = b"".join(headers(number) for number in (1, 3, 5, 7))
    ends = b"".join(data(b"", number, END_STREAM) for number in (5, 1, 3))
    sent = (
        opening + b"".join(parts) + ends + settings_frame((INITIAL_WINDOW_SIZE, MAX_WINDOW >> 1)) + update(1 << 30)
    )
    cuts = chosen.draw(st.lists(st.integers(0, len(sent)), max_size=8))
    (events, whole), (again, pieces) = (spoken(met(), sent, each, answering=True) for each in ([], cuts))
    assert again == events
    assert by_stream(pieces) == by_stream(whole)


def by_stream(out: bytes) -> dict[int, list[tuple[int, int, bytes]]]:
    """When an answer is written decides how its body is cut, and what of another stream stands before it."""
    found: dict[int, list[tuple[int, int, bytes]]] = {}
    for each in parse(out):
        known = found.setdefault(each.stream, [])
        if each.kind == DATA and known and known[-1][0] == DATA:
            known[-1] = (DATA, 0, known[-1][2] + each.payload)
        else:
            known.append((each.kind, each.flags, each.payload))
    return found
