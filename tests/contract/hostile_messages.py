"""Messages that nobody in his right mind would send, made from the description of a message."""

import string
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import strategies as st

Field = FieldDescriptor
KNOWN = ("science/chem", "robotics", "science", "h000", "h001", "ana", "mia", "stdout", "H100", "true")
"""Words that mean something to the gateway under test."""
NASTY = (
    "",
    "\0",
    "a\0b",
    "../../etc/passwd",
    "/",
    "a" * 100_000,
    "\u202egnp.exe",
    "'; DROP TABLE x; --",
    "%s%n",
    "\n\r\t",
)
TEXTS = st.sampled_from(KNOWN) | st.sampled_from(NASTY) | st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
FLOATS = st.sampled_from((0.0, -0.0, -1.0, 1e-300, 1e308, float("inf"), float("nan"), 50.0)) | st.floats()
DEPTH_MAX = 4


def integers(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(2**bits), 2**bits - 1) if signed else (0, 2**bits - 1)
    return st.sampled_from((0, 1, 2, 8, max(low, -1), low, high)) | st.integers(low, high)


def messages(kind: Descriptor, *, depth: int = 0) -> st.SearchStrategy[Message]:
    """Messages of a kind, any part of which may be missing, wrong or much too large."""
    made = GetMessageClass(kind)
    if depth >= DEPTH_MAX:
        return st.builds(made)
    fields = {field.name: _values(field, depth=depth) for field in kind.fields}
    return st.fixed_dictionaries({}, optional=fields).map(lambda given: made(**given))


def _values(field: FieldDescriptor, *, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return st.dictionaries(_one(key, depth=depth), _one(value, depth=depth), max_size=3)
    one = _one(field, depth=depth)
    return st.lists(one, max_size=4) if field.is_repeated else one


def _one(field: FieldDescriptor, *, depth: int) -> st.SearchStrategy[Any]:
    match field.cpp_type:
        case Field.CPPTYPE_STRING if field.type == Field.TYPE_BYTES:
            return st.binary(max_size=64)
        case Field.CPPTYPE_STRING:
            return TEXTS
        case Field.CPPTYPE_BOOL:
            return st.booleans()
        case Field.CPPTYPE_INT32:
            return integers(31, signed=True)
        case Field.CPPTYPE_INT64:
            return integers(63, signed=True)
        case Field.CPPTYPE_UINT32:
            return integers(32, signed=False)
        case Field.CPPTYPE_UINT64:
            return integers(64, signed=False)
        case Field.CPPTYPE_FLOAT | Field.CPPTYPE_DOUBLE:
            return FLOATS
        case Field.CPPTYPE_ENUM:
            assert field.enum_type is not None
            return st.sampled_from([value.number for value in field.enum_type.values] + [-1, 99, 2**31 - 1])
        case Field.CPPTYPE_MESSAGE:
            return messages(field.message_type, depth=depth + 1)
    raise AssertionError(f"{field.full_name} is of a new sort")


def spoiled(data: bytes) -> st.SearchStrategy[bytes]:
    """The bytes of a message cut, changed, doubled, nested, or others altogether."""
    letters = st.sampled_from(string.printable.encode())
    return st.one_of(
        st.integers(0, max(0, len(data) - 1)).map(lambda end: data[:end]),
        st.tuples(st.integers(0, max(0, len(data) - 1)), letters).map(
            lambda at: data[: at[0]] + bytes([at[1]]) + data[at[0] + 1 :]
        ),
        st.just(data + data),
        st.just(data + b"\xff" * 12),
        st.sampled_from([b"\x0a" * 5_000, b"\x0b" * 5_000, b"\x0a\xff\xff\xff\xff\x0f", b"\x80" * 20]),
        st.binary(max_size=200),
    )
