"""The answer reader: any cut of the bytes is the same answer, and every malformed form is an error at once."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from turnwire.engines.http.answer import Answer, MalformedAnswer

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def read(data: bytes, cuts: list[int], *, closed: bool = False) -> tuple[int, bytes, bool, bool]:
    answer = Answer()
    body = b"".join(answer.feed(data[start:end]) for start, end in pairwise([0, *cuts, len(data)]))
    if closed:
        answer.close()
    return answer.status, body, answer.over, answer.reusable


ANSWERS: dict[str, tuple[bytes, bool, tuple[int, bytes, bool, bool]]] = {
    "chunked": (CHUNKED + b"5\r\nhello\r\nA\r\n, world!!!\r\n0\r\n\r\n", False, (200, b"hello, world!!!", True, True)),
    "chunk extensions": (CHUNKED + b"3 ;a=b\r\nabc\r\n2;x\r\nde\r\n0\r\n\r\n", False, (200, b"abcde", True, True)),
    "trailer": (CHUNKED + b"1\r\na\r\n0\r\nX-Sum: 7\r\nY: z\r\n\r\n", False, (200, b"a", True, True)),
    "still coming": (CHUNKED + b"5\r\nhel", False, (200, b"hel", False, True)),
    "sized": (b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone", False, (404, b"gone", True, True)),
    "empty": (b"HTTP/1.1 500 x\r\ncontent-length: 0\r\n\r\n", False, (500, b"", True, True)),
    "no reason": (b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", False, (200, b"ok", True, True)),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", False, (204, b"", True, True)),
    "until close": (b"HTTP/1.1 200 OK\r\nX: y\r\n\r\nall of it", True, (200, b"all of it", True, False)),
    "version 1.0": (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", False, (200, b"ok", True, False)),
    "not kept": (
        b"HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 2\r\n\r\nok",
        False,
        (200, b"ok", True, False),
    ),
    "early hints": (
        b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + CHUNKED + b"1\r\na\r\n0\r\n\r\n",
        False,
        (200, b"a", True, True),
    ),
    "more than asked for": (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP", False, (200, b"ok", True, False)),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_any_cut_is_the_same_answer(name: str) -> None:
    data, closed, wanted = ANSWERS[name]
    assert read(data, [], closed=closed) == wanted
    assert read(data, list(range(1, len(data))), closed=closed) == wanted
    dice = random.Random(name)
    for _ in range(200):
        cuts = sorted(dice.sample(range(len(data) + 1), 3))
        assert read(data, cuts, closed=closed) == wanted, cuts


def test_a_size_line_that_is_cut_after_a_whole_chunk_is_held() -> None:
    data = CHUNKED + b"3\r\nabc\r\n5;x\r\nhello\r\n0\r\n\r\n"
    head = len(CHUNKED)
    assert read(data, [head, head + len(b"3\r\nabc\r\n5;")]) == (200, b"abchello", True, True)


def test_chunks_after_a_cut_one_are_the_same_however_many() -> None:
    events = [b"data: %d\n\n" % number * (number % 3 + 1) for number in range(300)]
    data = CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events) + b"0\r\n\r\n"
    for size in (7, 64, 1000):
        assert read(data, list(range(size, len(data), size))) == (200, b"".join(events), True, True)


def outcome(data: bytes, cuts: list[int]) -> tuple[bytes, bool, bool]:
    """The body as far as it can be read, whether it then is malformed, and whether it is complete."""
    answer, body = Answer(), b""
    try:
        for start, end in pairwise([0, *cuts, len(data)]):
            body += answer.feed(data[start:end])
    except MalformedAnswer as error:
        return body + error.before, True, answer.over
    return body, False, answer.over


def test_many_events_with_one_byte_changed_are_read_as_byte_by_byte() -> None:
    events = [b"data: %d\n\n" % (7**number) for number in range(12)]
    whole = b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events)
    dice = random.Random(0)
    failed = 0
    for _ in range(3000):
        at, wrong = dice.randrange(len(whole)), dice.choice((b"", b"\r", b"\n", b"0", b"a", b"\r\n", b"\n\n", b"x"))
        data = CHUNKED + whole[:at] + wrong + whole[at + dice.randrange(2) :] + b"0\r\n\r\n"
        expected = outcome(data, list(range(1, len(data))))
        assert outcome(data, [len(CHUNKED)]) == expected, (at, wrong)
        failed += expected[1]
    assert 1000 < failed < 3000


def test_a_head_with_one_byte_changed_is_read_as_byte_by_byte() -> None:
    head = (
        b"HTTP/1.1 200 OK\r\nDate: Mon, 1 Jan\r\nContent-Type:\ttext/event-stream \r\nConnection: keep-alive\r\n"
        b"Content-Length: 5\r\nX: \xe9\r\nX: z\r\n\r\n"
    )
    dice = random.Random(0)
    failed = 0
    for _ in range(3000):
        at, wrong = dice.randrange(len(head)), dice.choice((b"", b"\r", b"\n", b"\0", b":", b" ", b"\r\n", b"1", b"x"))
        data = head[:at] + wrong + head[at + dice.randrange(2) :] + b"hello"
        whole = headed(data, [0])
        assert whole == headed(data, list(range(len(data)))), (at, wrong)
        failed += whole is None
    assert 500 < failed < 2500


def headed(data: bytes, cuts: list[int]) -> tuple[int, dict[str, str], bool, bool] | None:
    """What the answer's head says, and whether the answer is complete; None if it is malformed."""
    answer = Answer()
    try:
        for start, end in pairwise([*cuts, len(data)]):
            answer.feed(data[start:end])
    except MalformedAnswer:
        return None
    return answer.status, answer.headers, answer.reusable, answer.over


@pytest.mark.parametrize("cuts", [[], [30]])
def test_blanks_end_where_a_value_begins_and_begin_where_it_ends(cuts: list[int]) -> None:
    value = b"a" + b" " * 30_000 + b"b"
    found = headed(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: \t" + value + b" \t\r\n\r\n", [0, *cuts])
    assert found is not None
    assert found[1]["x"] == value.decode()


def test_chunks_of_odd_spelling_are_not_looked_through_again_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0
    whole_events = Answer._whole_events

    def counting(self: Answer, data: bytes, parts: list[bytes], at: int) -> int:
        nonlocal looked
        looked += 1
        return whole_events(self, data, parts, at)

    monkeypatch.setattr(Answer, "_whole_events", counting)
    assert read(CHUNKED + b"0A\r\n0123456789\r\n" * 1000, [len(CHUNKED)])[1] == b"0123456789" * 1000
    assert looked == 1


MALFORMED = {
    "another protocol": b"SSH-2.0-x\r\n",
    "begins wrongly": b"HTTX",
    "version 2": b"HTTP/2 200\r\n",
    "no status": b"HTTP/1.1 OK\r\n",
    "status out of range": b"HTTP/1.1 999 x\r\n",
    "bare newline": b"HTTP/1.1 200 OK\n",
    "header without colon": b"HTTP/1.1 200 OK\r\nnonsense\r\n",
    "space before colon": b"HTTP/1.1 200 OK\r\nX : y\r\n",
    "folded header": b"HTTP/1.1 200 OK\r\nX: y\r\n z\r\n",
    "endless head": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 10_000,
    "endless header": b"HTTP/1.1 200 OK\r\nX: " + b"y" * 40_000,
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n",
    "length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    "length no number": b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
    "unknown coding": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
    "compressed": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n",
    "switched": b"HTTP/1.1 101 Switching\r\n\r\n",
    "endless hints": b"HTTP/1.1 103 x\r\n\r\n" * 9,
    "size no number": CHUNKED + b"xyz\r\n",
    "size with prefix": CHUNKED + b"0x5\r\nhello\r\n",
    "size with sign": CHUNKED + b"+5\r\nhello\r\n",
    "size with underscore": CHUNKED + b"1_0\r\n",
    "size negative": CHUNKED + b"-1\r\n",
    "size too large": CHUNKED + b"fffffffffffff\r\n",
    "size missing": CHUNKED + b"\r\nhello",
    "size ends in newline": CHUNKED + b"5\nhello",
    "endless extension": CHUNKED + b"5;" + b"x" * 5000,
    "chunk too long": CHUNKED + b"2\r\nhello\r\n",
    "garbage after a chunk": CHUNKED + b"2\r\nhe\r\r",
    "garbage in the trailer": CHUNKED + b"0\r\nnonsense\r\n",
    "newline in the trailer": CHUNKED + b"0\r\n\n",
    "endless trailer": CHUNKED + b"0\r\n" + b"X: y\r\n" * 10_000,
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_answer_is_an_error_without_waiting_for_more(name: str) -> None:
    data = MALFORMED[name]
    with pytest.raises(MalformedAnswer):
        read(data, [])
    with pytest.raises(MalformedAnswer):
        read(data, list(range(1, len(data))))


@pytest.mark.parametrize("cut", [0, 5, 20, len(CHUNKED), len(CHUNKED) + 1, len(CHUNKED) + 4, len(CHUNKED) + 8])
def test_an_answer_closed_before_its_end_is_not_complete(cut: int) -> None:
    answer = Answer()
    answer.feed((CHUNKED + b"5\r\nhello\r\n")[:cut])
    with pytest.raises(MalformedAnswer, match="closed"):
        answer.close()


def test_a_large_chunk_is_given_as_it_comes_and_not_held() -> None:
    answer = Answer()
    answer.feed(CHUNKED + b"f4240\r\n")
    given = [answer.feed(b"x" * 1000) for _ in range(1000)]
    assert all(len(part) == 1000 for part in given)
    assert answer.feed(b"\r\n0\r\n\r\n") == b""
    assert answer.over
