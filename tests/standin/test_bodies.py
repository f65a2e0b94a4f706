import gzip
import math
import zlib

import pytest

from extproc.standin.bodies import decompress, parse


@pytest.mark.parametrize(
    ("content", "document"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b' \n{"a": 1, "a": 2}', {"a": 2}),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b'{"a": 9007199254740993}', {"a": 9007199254740993}),
        (b'{"a": "\xff"}', {"a": "\ufffd"}),
        (b'{"a": ["\\ud800"]}', {"a": ["?"]}),
        (b'{"a": 1e999}', {"a": math.inf}),
        (b"[1, 2]", {}),
        (b'{"a": ', {}),
        (b"\x89PNG\r\n", {}),
        (b"", {}),
        (b'{"a":' + b"[" * 100_000, {}),
    ],
)
def test_parse_never_raises(content: bytes, document: dict[str, object]) -> None:
    assert parse(content) == document


def test_nan_is_read_as_python_engines_do() -> None:
    assert math.isnan(parse(b'{"temperature": NaN}')["temperature"])


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("Deflate ", zlib.compress)])
def test_decompress(encoding, pack) -> None:
    assert decompress(pack(b"content"), encoding) == b"content"


@pytest.mark.parametrize("encoding", ["gzip", "br", "identity"])
def test_what_cannot_be_decompressed_stays(encoding: str) -> None:
    assert decompress(b"content", encoding) == b"content"
