import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.domain.ids import HostId, RunId
from tenure.runtime.log_stream import (
    PIECE_BYTES_MAX,
    LogPiece,
    LogRequest,
    LogsAway,
    decode_piece,
    decode_request,
    encode_piece,
    encode_request,
    encode_trouble,
    subject,
)

COUNT = st.integers(min_value=0, max_value=2**62)


@given(st.binary(max_size=2_000), COUNT, COUNT, st.booleans())
def test_a_piece_comes_back_as_it_was(data: bytes, offset: int, oldest: int, eof: bool) -> None:
    piece = LogPiece(data=data, offset=offset, next_offset=offset + len(data), oldest_offset=oldest, eof=eof)
    assert decode_piece(*encode_piece(piece)) == piece


def test_a_request_comes_back_with_its_limit_cut_to_what_a_reply_holds() -> None:
    request = LogRequest(run=RunId("j1.1"), replica=3, stream="stderr", offset=7, limit=10**9)
    assert decode_request(encode_request(request)) == LogRequest(
        run=RunId("j1.1"), replica=3, stream="stderr", offset=7, limit=PIECE_BYTES_MAX
    )


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"{}",
        b'{"run":"j1.1","replica":0,"stream":"secrets"}',
        b'{"run":"j1.1","replica":-1,"stream":"stdout"}',
        b'{"run":"j1.1","replica":0,"stream":"stdout","offset":-1}',
        b'{"run":"j1.1","replica":0,"stream":"stdout","limit":1.5}',
    ],
)
def test_damaged_requests_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a log request"):
        decode_request(data)


def test_trouble_reaches_the_reader_on_one_line() -> None:
    with pytest.raises(LogsAway, match=r"^no such run$"):
        decode_piece(*encode_trouble("no such\n run"))


@pytest.mark.parametrize("headers", [None, {}, {"offset": "x", "next": "1", "oldest": "0", "eof": "0"}])
def test_an_answer_that_makes_no_sense_is_said_so(headers: dict[str, str] | None) -> None:
    with pytest.raises(LogsAway, match="makes no sense"):
        decode_piece(b"", headers)


def test_each_host_has_its_own_subject() -> None:
    assert subject(cluster="h100", host=HostId("h001")) == "tenure-data.h100.logs.h001"
