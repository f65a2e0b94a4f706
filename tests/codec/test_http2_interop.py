"""The connection against a whole client of another make: `h2`, which keeps to the windows and takes a breach for an
error. Its tables are those of `hpack`."""

from __future__ import annotations

from collections import defaultdict

import h2.config
import h2.connection
import h2.events
import h2.settings
import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.codec import http2
from extproc.codec.grpc_messages import HEADERS, OK
from extproc.codec.http2 import Connection
from extproc.codec.http2_events import Broken, Ended, Event, Opened, Received, Reset
from extproc.codec.http2_frames import MAX_WINDOW
from tests.codec.http2_peer import FIELDS

CONTENT = bytes(number * number * 31 >> 5 & 255 for number in range(70_000))
TRAILER = (b"grpc-status", b"0")


class Client:
    """One that has said its settings, and notes by stream what it is told."""

    def __init__(self, **own: int) -> None:
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding=None))
        said = {SettingCodes[name]: value for name, value in own.items()}
        self.h2.local_settings = h2.settings.Settings(
            client=True, initial_values={SettingCodes.ENABLE_PUSH: 0, **said}
        )
        self.h2.decoder.max_allowed_table_size = self.h2.local_settings.header_table_size
        self.h2.max_inbound_frame_size = self.h2.local_settings.max_frame_size
        self.h2.initiate_connection()
        self.cut_short = b""
        self.headers: dict[int, list[tuple[bytes, bytes]]] = {}
        self.trailers: dict[int, list[tuple[bytes, bytes]]] = {}
        self.bodies: dict[int, bytes] = defaultdict(bytes)
        self.resets: dict[int, int] = {}
        self.ended: set[int] = set()
        self.others: list[h2.events.Event] = []

    def receive(self, data: bytes) -> None:
        """Frame by frame: the library would read all of it under the settings that were in force before."""
        data, at = self.cut_short + data, 0
        while len(data) - at >= 9 and len(data) >= (end := at + 9 + int.from_bytes(data[at : at + 3], "big")):
            for event in self.h2.receive_data(data[at:end]):
                self.note(event)
            at = end
        self.cut_short = data[at:]

    def note(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.ResponseReceived():
                self.headers[event.stream_id] = event.headers
            case h2.events.DataReceived():
                assert event.stream_id not in self.trailers
                self.bodies[event.stream_id] += event.data
            case h2.events.TrailersReceived():
                self.trailers[event.stream_id] = event.headers
            case h2.events.StreamEnded():
                self.ended.add(event.stream_id)
            case h2.events.StreamReset():
                self.resets[event.stream_id] = event.error_code
            case _:
                self.others.append(event)

    def ask(self, stream: int, content: bytes | None = None, more: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        """With content, the whole of a request."""
        self.h2.send_headers(stream, [*FIELDS, *more])
        if content is not None:
            for at in range(0, len(content), 16_384):
                self.h2.send_data(stream, content[at : at + 16_384])
            self.h2.end_stream(stream)

    def told(self, kind: type[h2.events.Event]) -> list[h2.events.Event]:
        return [event for event in self.others if isinstance(event, kind)]


def echo(server: Connection, event: Event) -> None:
    if isinstance(event, Opened):
        server.respond(event.stream, HEADERS)
    elif isinstance(event, Received):
        server.send(event.stream, event.data)
    elif isinstance(event, Ended):
        server.finish(event.stream, OK)


def talk(client: Client, server: Connection, echoing: bool = True) -> list[Event]:
    """To and fro, until nobody has anything to say."""
    events = []
    while sent := client.h2.data_to_send():
        found = server.receive(sent)
        for event in found if echoing else ():
            echo(server, event)
        events += found
        client.receive(server.take())
    return events


def met(**own: int) -> tuple[Client, Connection]:
    client, server = Client(**own), Connection()
    assert talk(client, server) == []
    return client, server


def test_a_request_before_our_settings_are_read() -> None:
    """It is compressed with a table, and so is the next."""
    client, server = Client(), Connection()
    for number in (1, 3, 5):
        client.ask(number, b"hello %d" % number)
    events = talk(client, server)
    assert [event.headers for event in events if isinstance(event, Opened)] == [dict(FIELDS)] * 3
    assert client.bodies == {1: b"hello 1", 3: b"hello 3", 5: b"hello 5"}
    assert client.headers[1] == [(b":status", b"200"), (b"content-type", b"application/grpc")]
    assert client.trailers == {number: [TRAILER] for number in (1, 3, 5)}
    assert client.resets == {}


def test_requests_before_and_after_our_settings_are_read() -> None:
    client, server = Client(), Connection()
    client.ask(1, b"1")
    early = client.h2.data_to_send()
    client.receive(server.take())
    client.ask(3, b"3")
    late = client.h2.data_to_send()
    for number in (5, 7):
        client.ask(number, b"%d" % number)
    for sent in (early, late, client.h2.data_to_send()):
        for event in server.receive(sent):
            echo(server, event)
            assert not isinstance(event, Opened) or event.headers == dict(FIELDS)
    client.receive(server.take())
    assert client.bodies == {1: b"1", 3: b"3", 5: b"5", 7: b"7"}
    assert server._headers._known, "without a table, equal headers are equal bytes"


def test_headers_that_change_from_request_to_request() -> None:
    client, server = met()
    for number in range(1, 101, 2):
        client.ask(number, b"", ((b"n", b"%d" % (number % 7)), (b"secret", b"x" * (number % 5))))
        opened = talk(client, server)[0]
        assert isinstance(opened, Opened)
        assert opened.headers == dict(FIELDS) | {b"n": b"%d" % (number % 7), b"secret": b"x" * (number % 5)}


@pytest.mark.parametrize("size", [0, 1, 100, 4095, 4096, 65_536])
def test_a_client_that_wants_a_table_of_another_size(size: int) -> None:
    client, server = met(HEADER_TABLE_SIZE=size)
    for number in (1, 3):
        client.ask(number, b"a")
        talk(client, server)
    assert client.trailers == {number: [TRAILER] for number in (1, 3)}


def test_a_client_that_makes_its_table_smaller_in_between() -> None:
    client, server = met()
    for number, size in enumerate((4096, 0, 50, 4096, 10)):
        client.h2.update_settings({SettingCodes.HEADER_TABLE_SIZE: size})
        for stream in (4 * number + 1, 4 * number + 3):
            client.ask(stream, b"a")
            talk(client, server)
            assert client.trailers[stream] == [TRAILER]
        assert client.h2.decoder.max_allowed_table_size == size


def test_headers_of_many_frames() -> None:
    client, server = met()
    more = tuple((b"n%d" % number, b"x" * 1000) for number in range(50))
    client.ask(1, b"", more)
    opened = talk(client, server)[0]
    assert isinstance(opened, Opened)
    assert opened.headers == dict(FIELDS) | dict(more)


def test_padding_priorities_and_trailers() -> None:
    client, server = met()
    client.h2.send_headers(1, FIELDS, priority_weight=5, priority_depends_on=0, priority_exclusive=True)
    client.h2.prioritize(1, weight=9)
    client.h2.send_data(1, b"one", pad_length=255)
    client.h2.send_data(1, b"two", pad_length=0)
    client.h2.send_headers(1, [(b"a", b"trailer")], end_stream=True)
    assert talk(client, server) == [Opened(1, dict(FIELDS)), Received(1, b"one"), Received(1, b"two"), Ended(1)]
    assert client.bodies[1] == b"onetwo"


def test_a_ping() -> None:
    client, server = met()
    client.h2.ping(b"12345678")
    talk(client, server)
    (answer,) = client.told(h2.events.PingAckReceived)
    assert answer.ping_data == b"12345678"


def test_an_answer_behind_which_the_client_still_talks() -> None:
    client, server = met()
    client.ask(1)
    client.h2.send_data(1, b"first")
    talk(client, server)
    server.finish(1, OK)
    client.h2.send_data(1, b"late")
    assert talk(client, server) == []
    assert (client.trailers, client.ended) == ({1: [TRAILER]}, {1})
    assert client.resets == {1: ErrorCodes.NO_ERROR}


def test_a_stream_the_client_resets() -> None:
    client, server = met()
    client.ask(1)
    talk(client, server)
    client.h2.reset_stream(1)
    server.send(1, b"on its way")
    client.receive(server.take())
    assert talk(client, server) == [Reset(1)]
    assert client.bodies == {}
    client.ask(3, b"fine")
    talk(client, server)
    assert client.bodies[3] == b"fine"


def test_streams_that_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http2, "MAX_STREAMS", 1)
    client, server = met()
    client.ask(1)
    client.ask(3)
    assert talk(client, server) == [Opened(1, dict(FIELDS))]
    assert client.resets == {3: ErrorCodes.REFUSED_STREAM}


def test_a_farewell() -> None:
    client, server = met()
    server.leave()
    client.receive(server.take())
    (told,) = client.told(h2.events.ConnectionTerminated)
    assert (told.error_code, told.last_stream_id) == (ErrorCodes.NO_ERROR, (1 << 31) - 1)


def test_a_breach_is_told() -> None:
    client, server = met()
    client.ask(1, b"x")
    events = server.receive(client.h2.data_to_send() + b"\0\0\1\0\0\0\0\0\1x")
    for event in events:
        echo(server, event)
    assert isinstance(events[-1], Broken)
    client.receive(server.take())
    assert client.bodies == {1: b"x"}
    (told,) = client.told(h2.events.ConnectionTerminated)
    assert (told.error_code, told.last_stream_id) == (ErrorCodes.STREAM_CLOSED, 1)


def test_a_window_that_grows_with_what_is_written_already() -> None:
    """The answer comes in the same bytes as the acknowledgement: behind it, not before."""
    client, server = met(INITIAL_WINDOW_SIZE=5)
    client.ask(1, b"a" * 60_000)
    talk(client, server)
    assert client.bodies[1] == b"aaaaa"
    client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 60_000, SettingCodes.MAX_FRAME_SIZE: 50_000})
    talk(client, server)
    assert client.bodies[1] == b"a" * 60_000
    assert client.trailers == {1: [TRAILER]}


def test_the_largest_windows() -> None:
    client, server = met(INITIAL_WINDOW_SIZE=MAX_WINDOW, MAX_FRAME_SIZE=(1 << 24) - 1)
    client.h2.increment_flow_control_window(MAX_WINDOW - 65_535)
    client.ask(1)
    talk(client, server)
    server.send(1, bytes(20 << 20))
    server.finish(1, OK)
    client.receive(server.take())
    assert len(client.bodies[1]) == 20 << 20


def test_much_in_both_directions() -> None:
    """Several times every window; the client gives back what it reads."""
    client, server = met()
    client.ask(1)
    content = CONTENT * 40
    talk(client, server)
    sent = 0
    while 1 not in client.ended:
        may = min(client.h2.local_flow_control_window(1), client.h2.max_outbound_frame_size, len(content) - sent)
        if may:
            client.h2.send_data(1, content[sent : sent + may])
            sent += may
            if sent == len(content):
                client.h2.end_stream(1)
        read = len(client.bodies[1])
        assert talk(client, server) or read < len(content), "somebody has to go on"
        if len(client.bodies[1]) > read:
            client.h2.acknowledge_received_data(len(client.bodies[1]) - read, 1)
    assert client.bodies[1] == content
    assert client.trailers == {1: [TRAILER]}


# --- anything in any order


class Model:
    """Both ends and what each has said; bytes are on the way until they are delivered."""

    def __init__(self) -> None:
        self.client, self.server = met(INITIAL_WINDOW_SIZE=1000)
        self.up = self.down = b""
        self.said: dict[int, bytes] = {}  # by the client
        self.queued: dict[int, bytes] = {}
        self.ending: set[int] = set()
        self.closed: set[int] = set()  # of those, whose end is sent
        self.reset: set[int] = set()  # by the client
        self.heard: dict[int, bytes] = {}
        self.over: set[int] = set()
        self.answered: dict[int, bytes] = {}
        self.finished: set[int] = set()

    # The client.

    def open(self) -> None:
        number = 2 * len(self.said) + 1
        self.client.ask(number)
        self.said[number] = self.queued[number] = b""

    def talking(self, number: int) -> bool:
        """Whether the client may say more."""
        known = number in self.said and number not in self.reset | self.ending
        return known and number not in self.client.ended

    def say(self, number: int, size: int) -> None:
        if self.talking(number):
            content = CONTENT[len(self.said[number]) :][:size]
            self.said[number] += content
            self.queued[number] += content
            self.pump()

    def end(self, number: int) -> None:
        if self.talking(number):
            self.ending.add(number)
            self.pump()

    def give_up(self, number: int) -> None:
        if self.talking(number):
            self.client.h2.reset_stream(number)
            self.reset.add(number)

    def pump(self) -> None:
        for number, waiting in self.queued.items():
            if number in self.reset | self.closed | self.client.ended:
                continue
            window = min(self.client.h2.local_flow_control_window(number), self.client.h2.max_outbound_frame_size)
            if waiting and window > 0:
                self.client.h2.send_data(number, waiting[:window])
                self.queued[number] = waiting[window:]
            if not self.queued[number] and number in self.ending:
                self.client.h2.end_stream(number)
                self.closed.add(number)
        self.up += self.client.h2.data_to_send()

    def widen(self, number: int, by: int) -> None:
        if number in self.said and number not in self.client.ended | self.reset:
            self.client.h2.increment_flow_control_window(by, number)
        self.client.h2.increment_flow_control_window(by // 2 + 1)

    def reset_window(self, size: int) -> None:
        self.client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: size})

    # The server.

    def answer(self, number: int, size: int) -> None:
        if number in self.heard and number not in self.finished:
            if number not in self.answered:
                self.server.respond(number, HEADERS)
            known = self.answered.get(number, b"")
            content = CONTENT[len(known) + number :][:size]
            self.answered[number] = known + content
            self.server.send(number, content)

    def finish(self, number: int) -> None:
        if number in self.answered and number not in self.finished:
            self.finished.add(number)
            self.server.finish(number, OK)

    # What lies between.

    def deliver_up(self, size: int) -> None:
        self.up += self.client.h2.data_to_send()
        for event in self.server.receive(self.up[:size]):
            match event:
                case Opened():
                    self.heard[event.stream] = b""
                case Received():
                    self.heard[event.stream] += event.data
                case Ended() | Reset():
                    assert event.stream not in self.over
                    self.over.add(event.stream)
                case _:
                    raise AssertionError(event)
        self.up = self.up[size:]

    def deliver_down(self, size: int) -> None:
        self.down += self.server.take()
        self.client.receive(self.down[:size])
        self.down = self.down[size:]
        self.pump()

    def check(self) -> None:
        for number, content in self.heard.items():
            assert self.said[number].startswith(content)
        for number, content in self.client.bodies.items():
            assert self.answered[number].startswith(content)
        assert self.client.ended <= self.finished

    def settle(self) -> None:
        """Everything is said, read and given back."""
        for _ in range(100):
            self.deliver_up(len(self.up) + 1_000_000)
            self.deliver_down(len(self.down) + 1_000_000)
            for number in self.heard:
                self.answer(number, 1)
                self.finish(number)
            for number in self.said:
                self.widen(number, 20_000)
            if not self.server.streams and not self.client.h2.open_outbound_streams:
                return
        raise AssertionError("somebody waits for ever")


def actions() -> st.SearchStrategy[list[tuple[object, ...]]]:
    number = st.sampled_from([1, 3, 5])
    size = st.sampled_from([0, 1, 10, 999, 1000, 1001, 20_000])
    piece = st.sampled_from([1, 8, 9, 10, 100, 17_000, 1_000_000])
    return st.lists(
        st.one_of(
            st.just(("open",)),
            st.tuples(st.just("say"), number, size),
            st.tuples(st.just("end"), number),
            st.tuples(st.just("answer"), number, size),
            st.tuples(st.just("finish"), number),
            st.tuples(st.just("widen"), number, st.integers(1, 3000)),
            st.tuples(st.just("reset_window"), st.sampled_from([0, 1, 500, 1000, 30_000])),
            st.tuples(st.just("deliver_up"), piece),
            st.tuples(st.just("deliver_up"), piece),
            st.tuples(st.just("deliver_down"), piece),
            st.tuples(st.just("deliver_down"), piece),
            st.tuples(st.just("give_up"), number),
        ),
        max_size=40,
    )


@settings(max_examples=300)
@given(actions())
def test_every_byte_arrives_once_and_in_order(todo: list[tuple[object, ...]]) -> None:
    model = Model()
    model.open()
    for name, *arguments in todo:
        if name != "open" or len(model.said) < 3:
            getattr(model, str(name))(*arguments)
        model.check()
    model.settle()
    model.check()
    assert model.said.keys() - model.reset <= model.client.ended
    for number in model.client.ended:
        assert model.client.bodies[number] == model.answered[number]
        assert model.client.trailers[number] == [TRAILER]
    for number in model.closed & model.over:
        assert model.heard[number] == model.said[number]
