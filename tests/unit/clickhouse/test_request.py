"""Requests as they come over a connection, and the encodings of their bodies."""

import gzip
import io
import zlib
from email.message import Message

import lz4.frame
import pytest
from backports import zstd

from services.clickhouse.encoding import choose, decode, encoder
from services.clickhouse.request import Body, read_request
from services.clickhouse.trouble import DatabaseError

PLAIN = bytes(range(256)) * 3000


def headers(**values: str) -> Message:
    message = Message()
    for name, value in values.items():
        message[name.replace("_", "-")] = value
    return message


def body(data: bytes, *, bytes_max: int = 10_000_000, **values: str) -> Body:
    return Body(headers(**values), io.BufferedReader(io.BytesIO(data)), bytes_max=bytes_max)


def request(query_string: str = "", *, method: str = "POST", data: bytes = b"", **values: str):
    values = {"X_ClickHouse_Key": "token", "Content_Length": str(len(data)), **values}
    return read_request(
        method=method, query_string=query_string, headers=headers(**values), body=body(data, **values), token="token"
    )


def test_a_body_ends_where_its_length_says():
    read = body(b"abcdef", Content_Length="4")
    assert b"".join(read.pieces) == b"abcd"
    assert read.is_read


def test_chunks_with_extensions_and_trailers():
    stream = io.BufferedReader(io.BytesIO(b"3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nnext"))
    read = Body(headers(Transfer_Encoding="chunked"), stream, bytes_max=100)
    assert b"".join(read.pieces) == b"abc0123456789"
    assert stream.read() == b"next"


@pytest.mark.parametrize("data", [b"5\r\nabc", b"zz\r\n", b"-1\r\n", b"3\r\nabc\r\n", b""])
def test_a_chunked_body_that_is_cut_off_is_the_clients_leaving(data):
    with pytest.raises(ConnectionError):
        list(body(data, Transfer_Encoding="chunked").pieces)


def test_a_body_that_unpacks_to_too_much_is_refused_early():
    bomb = gzip.compress(b"\0" * 50_000_000)
    read = body(bomb, bytes_max=1_000_000, Content_Length=str(len(bomb)), Content_Encoding="gzip")
    seen = 0
    with pytest.raises(DatabaseError, match="TOO_MANY_BYTES"):
        for piece in read.pieces:
            seen += len(piece)
    assert seen <= 1_000_000


def test_draining_stops_at_its_limit():
    assert body(b"x" * 100, Content_Length="100").drain(100)
    assert not body(b"x" * 1_000_000, Content_Length="1000000").drain(100)


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("lz4", lz4.frame.compress), ("zstd", zstd.compress), ("gzip", gzip.compress), ("deflate", zlib.compress)],
)
def test_frames_one_after_the_other_in_pieces_of_any_size(encoding, pack, size):
    data = pack(PLAIN[:500]) + pack(PLAIN[500:] if size > 1 else PLAIN[500:900])
    pieces = (data[start : start + size] for start in range(0, len(data), size))
    assert b"".join(decode(pieces, encoding)) == (PLAIN if size > 1 else PLAIN[:900])


@pytest.mark.parametrize("encoding", ["lz4", "zstd", "gzip", "deflate"])
def test_what_is_packed_here_unpacks_to_the_same(encoding):
    packer = encoder(encoding)
    packed = [packer.compress(PLAIN), packer.compress(b""), packer.compress(b"end"), packer.flush()]
    assert b"".join(decode(iter(packed), encoding)) == PLAIN + b"end"
    empty = encoder(encoding).flush()
    assert b"".join(decode(iter([empty]), encoding)) == b""


def test_the_first_known_encoding_is_chosen():
    assert choose("br, zstd;q=0.5, gzip") == "zstd"
    assert choose("br") is None
    assert choose("") is None


def test_parameters_settings_and_the_rest_are_told_apart():
    read = request("query=SELECT+1&database=d&max_threads=2&param_x=a%09b&query_id=q&wait_end_of_query=1&session_id=s")
    assert (read.query, read.database, read.query_id, read.collect) == (b"SELECT 1", "d", "q", True)
    assert dict(read.settings) == {"max_threads": "2"}
    assert dict(read.parameters) == {"x": "a\tb"}


def test_get_reads_only():
    assert request("query=SELECT+1", method="GET").settings["readonly"] == "2"
    assert request("readonly=1", method="GET").settings["readonly"] == "1"
    assert "readonly" not in request().settings


def test_a_form_brings_its_fields():
    form = b'--b\r\nContent-Disposition: form-data; name="query"\r\n\r\nSELECT {x:String}\r\n'
    form += b'--b\r\nContent-Disposition: form-data; name="param_x"\r\n\r\na\r\n--b--\r\n'
    read = request(data=form, Content_Type="multipart/form-data; boundary=b")
    assert (read.query, dict(read.parameters)) == (b"SELECT {x:String}", {"x": "a"})
    file = b'--b\r\nContent-Disposition: form-data; name="t"; filename="t.tsv"\r\n\r\n1\r\n--b--\r\n'
    with pytest.raises(DatabaseError, match="NOT_IMPLEMENTED"):
        request(data=file, Content_Type="multipart/form-data; boundary=b")


@pytest.mark.parametrize(
    ("query_string", "name"),
    [
        ("compress=1", "NOT_IMPLEMENTED"),
        ("query_id=a%0d%0ab", "BAD_ARGUMENTS"),
        ("query_id=a%26max_threads=1", "BAD_ARGUMENTS"),
        ("default_format=a%0d%0ab", "BAD_ARGUMENTS"),
        ("a%3D1,b=2", "BAD_ARGUMENTS"),
        ("param_a%3D1=2", "BAD_ARGUMENTS"),
        ("client_protocol_version=x", "BAD_ARGUMENTS"),
    ],
)
def test_bad_parameters_are_refused_by_name(query_string, name):
    with pytest.raises(DatabaseError, match=name):
        request(query_string)


@pytest.mark.parametrize("value", ["Basic !!!", "Basic dG9rZW4=", "Bearer nottoken", "Digest x", ""])
def test_other_authorizations_are_refused(value):
    with pytest.raises(DatabaseError, match="AUTHENTICATION_FAILED"):
        request(X_ClickHouse_Key="", Authorization=value)
