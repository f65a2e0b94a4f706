"""Header blocks: what is remembered is never told of a table that has changed since."""

from __future__ import annotations

import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.codec import http2_headers
from extproc.codec.http2_frames import Code, Fault, block
from extproc.codec.http2_headers import MAX_HEADER_BYTES, MEMORY, HeaderBlocks
from tests.codec.http2_peer import FIELDS, REQUEST

SHRUNK = b"\x20"
GROWN = b"\x3f\xe1\x1f"
"""Table size updates: to nothing, and to 4,096."""

FIRST_OF_TABLE = b"\xbe"
"""The newest field of the table."""


def plain() -> HeaderBlocks:
    """Its peer has done without a table from the first block on."""
    blocks = HeaderBlocks()
    assert blocks.read(SHRUNK) == {}
    return blocks


def indexed(name: bytes, value: bytes) -> bytes:
    """A field that the table keeps."""
    return b"\x40" + block([(name, value)])[1:]


def reason(blocks: HeaderBlocks, sent: bytes) -> str:
    with pytest.raises(Fault) as caught:
        blocks.read(sent)
    assert caught.value.code is Code.COMPRESSION_ERROR
    return caught.value.reason


def test_a_block() -> None:
    assert HeaderBlocks().read(REQUEST) == dict(FIELDS)
    assert HeaderBlocks().read(b"") == {}


def test_the_last_of_a_repeated_name() -> None:
    assert HeaderBlocks().read(block([(b"a", b"1"), (b"b", b"2"), (b"a", b"3")])) == {b"a": b"3", b"b": b"2"}


def test_names_and_values_are_any_bytes() -> None:
    assert HeaderBlocks().read(block([(b"\xff", b"\x00\xfe"), (b"", b"")])) == {b"\xff": b"\x00\xfe", b"": b""}


def test_equal_blocks_are_decoded_once() -> None:
    blocks = plain()
    assert blocks.read(REQUEST) is blocks.read(bytes(bytearray(REQUEST)))


def test_nothing_is_remembered_while_there_is_a_table() -> None:
    blocks = HeaderBlocks()
    assert blocks.read(REQUEST) is not blocks.read(REQUEST)
    assert blocks.read(SHRUNK + REQUEST) is not blocks.read(REQUEST), "before the first, there was one"


def test_an_index_means_what_the_table_holds_now() -> None:
    blocks = HeaderBlocks()
    for value in (b"1", b"2"):
        assert blocks.read(indexed(b"a", value)) == {b"a": value}
        assert blocks.read(FIRST_OF_TABLE) == {b"a": value}


def test_a_table_that_is_gone() -> None:
    blocks = HeaderBlocks()
    blocks.read(indexed(b"a", b"1"))
    assert "InvalidTableIndex" in reason(blocks, SHRUNK + FIRST_OF_TABLE)


def test_a_field_that_no_table_has_room_for() -> None:
    blocks = plain()
    for _ in range(3):
        assert blocks.read(indexed(b"a", b"1")) == {b"a": b"1"}
    reason(blocks, FIRST_OF_TABLE)


def test_a_table_that_comes_back_is_filled_by_what_is_remembered() -> None:
    blocks = plain()
    known = blocks.read(indexed(b"a", b"1"))
    assert blocks.read(indexed(b"a", b"1")) is known
    assert blocks.read(GROWN) == {}
    assert blocks.read(indexed(b"a", b"1")) == known
    assert blocks.read(FIRST_OF_TABLE) == {b"a": b"1"}
    assert blocks.read(SHRUNK) == {}
    assert blocks.read(indexed(b"a", b"1")) is known
    reason(blocks, FIRST_OF_TABLE)


def test_a_table_that_comes_and_goes_within_one_block() -> None:
    blocks = plain()
    sent = GROWN + SHRUNK + indexed(b"a", b"1")
    assert blocks.read(sent) is blocks.read(sent)
    reason(blocks, FIRST_OF_TABLE)


def test_a_remembered_block_that_makes_a_table_is_read_again() -> None:
    blocks = plain()
    for _ in range(2):
        assert blocks.read(GROWN + indexed(b"a", b"1")) == {b"a": b"1"}
        assert blocks.read(FIRST_OF_TABLE) == {b"a": b"1"}
        assert blocks.read(SHRUNK) == {}


def test_a_table_larger_than_any() -> None:
    assert reason(HeaderBlocks(), b"\x3f\xe2\x1f") == "headers cannot be read: InvalidTableSizeError"


def test_a_table_size_amid_a_block() -> None:
    reason(HeaderBlocks(), REQUEST + SHRUNK)


def test_only_so_many_are_remembered() -> None:
    blocks = plain()
    sent = [block([(b"n", b"%d" % number)]) for number in range(MEMORY + 1)]
    first = [blocks.read(each) for each in sent]
    again = [blocks.read(each) for each in sent]
    assert again == first
    assert [one is other for one, other in zip(first, again, strict=True)] == [True] * MEMORY + [False]


@pytest.mark.parametrize(
    "sent",
    [b"\x80", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff", b"\xff" * 5000, b"\x40", b"\0\x05abcd", b"\0\x01a", b"\0\x81\xff\0", b"\x3f", b"\0\x7f"],
    ids=["no_index", "long_number", "longer_number", "no_name", "short_name", "no_value", "huffman", "no_size", "no_length"],
)  # fmt: skip
def test_what_cannot_be_read(sent: bytes) -> None:
    assert reason(HeaderBlocks(), sent).startswith("headers cannot be read: ")
    assert reason(plain(), REQUEST + sent).startswith("headers cannot be read: ")


def test_what_cannot_be_read_is_not_told() -> None:
    assert "secret" not in reason(HeaderBlocks(), b"\0\x06secret\x7f")


def listing(size: int) -> bytes:
    """A list that counts as so many bytes: each field as 32 more than it has."""
    fields = size // 132
    rest = size - fields * 132 - 32
    return block([(b"n", bytes(99))] * fields + [(b"", bytes(rest))])


def test_a_list_as_long_as_is_told() -> None:
    assert len(HeaderBlocks().read(listing(MAX_HEADER_BYTES))) == 2
    assert reason(HeaderBlocks(), listing(MAX_HEADER_BYTES + 1)).endswith("OversizedHeaderListError")


def test_a_short_block_may_be_a_long_list() -> None:
    blocks = HeaderBlocks()
    blocks.read(indexed(b"n", bytes(126)))
    assert reason(blocks, FIRST_OF_TABLE * 1000).endswith("OversizedHeaderListError")


@given(st.lists(st.binary(max_size=12), max_size=4))
def test_any_bytes_are_headers_or_a_fault(sent: list[bytes]) -> None:
    for blocks in (HeaderBlocks(), plain()):
        for each in sent:
            try:
                found = blocks.read(each)
            except Fault as fault:
                assert fault.code is Code.COMPRESSION_ERROR
                break
            assert all(type(text) is bytes for field in found.items() for text in field)


FIELD = st.tuples(st.sampled_from([b":path", b"a", b"b"]), st.sampled_from([b"/", b"1", b"2" * 40]), st.booleans())
STEP = st.tuples(st.none() | st.sampled_from([0, 0, 40, 4096]), st.lists(FIELD, max_size=4), st.booleans())


@settings(max_examples=150)
@given(st.lists(STEP, max_size=12))
def test_headers_are_what_the_peer_encoded(
    steps: list[tuple[int | None, list[tuple[bytes, bytes, bool]], bool]],
) -> None:
    encoder, blocks = hpack.Encoder(), HeaderBlocks()
    for size, fields, huffman in steps:
        if size is not None:
            encoder.header_table_size = size
        sent = encoder.encode(fields, huffman=huffman)
        assert blocks.read(sent) == {name: value for name, value, _ in fields}


def test_the_peer_is_asked_for_lists_no_longer_than_are_read() -> None:
    assert HeaderBlocks()._decoder.max_header_list_size == http2_headers.MAX_HEADER_BYTES
