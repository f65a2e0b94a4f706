import json

from extproc.standin import memory
from extproc.standin.memory import Memory


def test_reports_are_kept_in_order_and_bounded(request_of, monkeypatch) -> None:
    monkeypatch.setattr(memory, "MAX_REPORTS", 3)
    kept = Memory()
    for number in range(5):
        kept.keep(request_of(path=f"/{number}"))
    assert [report["path"] for report in json.loads(kept.reports())] == ["/2", "/3", "/4"]


def test_the_last_bodies_are_held(request_of) -> None:
    kept = Memory()
    sent = [request_of(b"body %d" % number) for number in range(memory.MAX_BODIES + 1)]
    for received in sent:
        kept.keep(received)
    assert kept.body(sent[0].sha256) is None
    assert kept.body(sent[1].sha256) == b"body 1"
    assert kept.body(sent[-1].sha256) == sent[-1].body


def test_a_body_that_comes_again_is_young_again(request_of) -> None:
    kept = Memory(max_held_bytes=10)
    first, second, third = (request_of(body) for body in (b"1111", b"2222", b"3333"))
    for received in (first, second, first, third):
        kept.keep(received)
    assert [kept.body(r.sha256) for r in (first, second, third)] == [b"1111", None, b"3333"]


def test_a_body_too_large_is_reported_but_not_held(request_of, monkeypatch) -> None:
    monkeypatch.setattr(memory, "MAX_BODY_BYTES", 4)
    kept = Memory()
    kept.keep(request_of(b"12345"))
    assert kept.body(request_of(b"12345").sha256) is None
    assert json.loads(kept.reports())[0]["body_bytes"] == 5


def test_clear_forgets_both_and_frees_the_room(request_of) -> None:
    kept = Memory(max_held_bytes=4)
    kept.keep(request_of(b"1111"))
    assert kept.clear() == 1
    assert (kept.reports(), kept.body(request_of(b"1111").sha256)) == (b"[]", None)
    kept.keep(request_of(b"2222"))
    assert kept.body(request_of(b"2222").sha256) == b"2222"
