import pytest

from extproc.standin.echo import compose, count_words, granted_tokens


def test_the_line_names_parameters_and_decisions(request_of) -> None:
    body = b'{"priority": -10, "max_tokens": 120, "temperature": 0.3, "top_p": 0.85, "stream": false}'
    received = request_of(
        body, x_llm_pool="engine-1", x_llm_tier="strict", x_llm_version="7", x_llm_scenario="order_query"
    )
    assert compose(received).line == (
        "stand-in: temperature=0.3 max_tokens=120 top_p=0.85 priority=-10"
        " tier=strict scenario=order_query pool=engine-1 version=7"
    )


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b"", "no parameters"),
        (b"no json", "no parameters"),
        (b'{"n_predict": -1}', "max_tokens=-1"),
        (b'{"max_tokens": 90, "max_completion_tokens": 40}', "max_tokens=40"),
        (b'{"parameters": {"temperature": 0.5, "num_beams": 4}}', "temperature=0.5 beams=4"),
        (b'{"temperature": 0, "parameters": {"temperature": 0.5}}', "temperature=0"),
        (b'{"use_beam_search": true, "temperature": null}', "beams=true"),
    ],
)
def test_parameters_are_found_in_every_spelling(request_of, body: bytes, line: str) -> None:
    assert compose(request_of(body)).line == f"stand-in: {line}"


def test_a_header_that_shares_a_name_with_a_parameter_keeps_its_full_name(request_of) -> None:
    echo = compose(request_of(b'{"priority": 10}', x_llm_priority="critical"))
    assert echo.line == "stand-in: priority=10 x-llm-priority=critical"


def test_words_join_to_the_line(request_of) -> None:
    echo = compose(request_of(b'{"top_k": 4}', x_llm_reason="two words"))
    assert "".join(echo.words) == echo.line
    assert [word.strip() for word in echo.words] == ["stand-in:", "top_k=4", "reason=two", "words"]


@pytest.mark.parametrize(
    ("granted", "cut", "said"), [(1, True, 1), (2, False, 2), (100, False, 2), (0, True, 0), (-1, False, 2)]
)
def test_fewer_granted_tokens_than_words_is_a_cut(request_of, granted: int, cut: bool, said: int) -> None:
    echo = compose(request_of(b'{"max_tokens": %d}' % granted))
    assert (echo.cut, echo.completion_tokens, len(echo.words)) == (cut, said, 2)


def test_only_whole_numbers_grant() -> None:
    assert granted_tokens({"max_tokens": True, "n_predict": 7.5, "max_output_tokens": "9"}) is None
    assert granted_tokens({"max_tokens": 50, "request_output_len": 20}) == 20


def test_prompts_of_every_dialect_are_counted(request_of) -> None:
    body = b'{"system": "be brief", "messages": [{"content": "a b c"}, {"content": [{"text": "d e"}]}]}'
    assert compose(request_of(body)).prompt_tokens == 7
    assert compose(request_of(b'{"prompt": [[1, 2, 3], [4]]}')).prompt_tokens == 4


def test_counting_words_ends_in_any_depth() -> None:
    deep: object = "word"
    for _ in range(5000):
        deep = [deep]
    assert count_words(deep) == 0
