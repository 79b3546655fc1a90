"""What agents listen to beside the log: questions for output. Any bytes are a question or no question, in words."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tenure.runtime.log_stream import OFFSET_MAX, PIECE_BYTES_MAX, STREAMS, decode_request

GOOD = b'{"run":"j1.1","replica":0,"stream":"stdout","offset":0,"limit":10,"tail_bytes":0}'


@given(st.binary(max_size=80) | st.integers(0, len(GOOD)).map(lambda end: GOOD[:end]))
@example(GOOD[:-1] + b',"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
@example(GOOD.replace(b'"offset":0', b'"offset":' + b"9" * 400))
@example(GOOD.replace(b'"limit":10', b'"limit":-1'))
@example(GOOD.replace(b'"stdout"', b'"../../etc/passwd"'))
@example(GOOD.replace(b'"replica":0', b'"replica":1e3'))
def test_any_bytes_are_a_request_or_refused(data: bytes) -> None:
    try:
        request = decode_request(data)
    except ValueError as refusal:
        assert "\n" not in str(refusal)
        return
    assert request.stream in STREAMS
    assert 0 <= request.offset <= OFFSET_MAX
    assert 0 <= request.limit <= PIECE_BYTES_MAX


@pytest.mark.parametrize("field", ["offset", "tail_bytes", "replica"])
def test_numbers_that_no_file_has_are_refused(field: str) -> None:
    data = GOOD.replace(f'"{field}":0'.encode(), f'"{field}":{OFFSET_MAX + 1}'.encode())
    with pytest.raises(ValueError, match="too large"):
        decode_request(data)
