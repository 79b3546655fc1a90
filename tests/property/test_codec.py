"""Every kind of fact goes to bytes and comes back the same, whatever is in it."""

import json

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import inspect

from tenure.events.catalogue import KINDS
from tenure.events.fact import Fact
from tenure.log import codec

INT64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
"""Without lone surrogates: those are no text that JSON could carry."""
SMALL = {"max_size": 3}


def values(kind: inspect.Type) -> st.SearchStrategy[object]:
    """All values of a type, as msgspec describes it."""
    match kind:
        case inspect.StrType():
            return TEXT
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return INT64
        case inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case inspect.NoneType():
            return st.none()
        case inspect.EnumType():
            return st.sampled_from(list(kind.cls))
        case inspect.VarTupleType():
            return st.lists(values(kind.item_type), **SMALL).map(tuple)
        case inspect.TupleType():
            return st.tuples(*(values(item) for item in kind.item_types))
        case inspect.ListType():
            return st.lists(values(kind.item_type), **SMALL)
        case inspect.DictType():
            return st.dictionaries(values(kind.key_type), values(kind.value_type), **SMALL)
        case inspect.UnionType():
            return st.one_of(*(values(item) for item in kind.types))
        case inspect.StructType() | inspect.DataclassType():
            fields = {field.name: values(field.type) for field in kind.fields}
            return st.fixed_dictionaries(fields).map(lambda given: kind.cls(**given))
    raise AssertionError(f"facts have a new sort of field: {kind}")


FACTS = st.one_of(*(values(inspect.type_info(kind)) for kind in KINDS.values()))


@given(fact=FACTS)
@settings(max_examples=400, deadline=None)
def test_a_fact_comes_back_as_it_was(fact: Fact) -> None:
    data = codec.encode(fact)
    back = codec.decode(data)
    assert type(back) is type(fact)
    assert back == fact
    assert codec.encode(back) == data


@given(fact=FACTS, more=st.dictionaries(TEXT.map("new_{}".format), st.integers(0, 9), max_size=3))
@settings(max_examples=100, deadline=None)
def test_fields_that_a_newer_version_adds_change_nothing(fact: Fact, more: dict[str, int]) -> None:
    newer = json.loads(codec.encode(fact)) | more
    assert codec.decode(msgspec.json.encode(newer)) == fact


@given(data=st.binary(max_size=60))
@settings(max_examples=200, deadline=None)
def test_arbitrary_bytes_are_a_fact_or_undecodable(data: bytes) -> None:
    try:
        fact = codec.decode(data)
    except codec.Undecodable:
        return
    assert codec.kind_name(fact) in KINDS
