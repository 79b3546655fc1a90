"""The answer to a driver's first question, in the Native format of the revision it asks in.

clickhouse-go and Grafana's plugin ask it in a newer revision than the engine writes, and then use the revision they are
told. They are told 0, the plain one, which the engine does write.
"""

HELLO = b"SELECT displayName(), version(), revision(), timezone()"

_BLOCK_INFO_SINCE = 51903
_SERIALIZATION_KIND_SINCE = 54454


def hello_block(*, display_name: str, version: str, timezone: str, revision: int) -> bytes:
    """One Native block of one row: the engine's names, and 0 as its revision."""
    columns = (
        ("displayName()", "String", _string(display_name)),
        ("version()", "String", _string(version)),
        ("revision()", "UInt32", (0).to_bytes(4, "little")),
        ("timezone()", "String", _string(timezone)),
    )
    block = bytearray()
    if revision >= _BLOCK_INFO_SINCE:
        # Field 1: not an overflow block; field 2: bucket -1; 0 ends the fields.
        block += b"\x01\x00\x02\xff\xff\xff\xff\x00"
    block += bytes((len(columns), 1))
    for name, kind, value in columns:
        block += _string(name) + _string(kind)
        if revision >= _SERIALIZATION_KIND_SINCE:
            block += b"\x00"
        block += value
    return bytes(block)


def _string(text: str) -> bytes:
    data = text.encode()
    assert len(data) < 128, "a length of one byte"
    return bytes((len(data),)) + data
