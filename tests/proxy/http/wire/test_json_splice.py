"""One member is added to a JSON object or changed in it, and every other byte stays."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.http.wire import json_splice
from proxy.http.wire.json_splice import (
    add_member,
    check_repeated,
    dumps,
    json_object,
    object_without_repeats,
    replace_member,
)

# Written on purpose as no dumper of Python's would write it.
LEXEMES = ["1.0", "1E5", "-0", "1e-07", "12345678901234567890", '"\\u00e9"', '"\\/"', '"a\\"}{"']
SPACES = ["", " ", "\n", "\t", "\r\n  "]
BEFORE = ["", "\ufeff", " ", "\ufeff\n "]

spaces = st.sampled_from(SPACES)
keys = st.sampled_from(['"model"', '"a"', '"\\u0061"', '""', '"größe"', '"\\ud83d"'])
values = st.recursive(
    st.sampled_from([*LEXEMES, "null", "true", "{}", "[]", '"🙂"']),
    lambda inner: (
        st.builds("[{}{},{}]".format, inner, spaces, inner)
        | st.builds('{{"model":{}{},"b" :{}}}'.format, inner, spaces, inner)
    ),
    max_leaves=4,
)
members = st.builds("{}{}{}:{}{}{}".format, spaces, keys, spaces, spaces, values, spaces)


@st.composite
def objects(draw: st.DrawFn) -> bytes:
    inside = ",".join(draw(st.lists(members, max_size=5))) or draw(spaces)
    before, after = draw(st.sampled_from(BEFORE)), draw(spaces)
    return f"{before}{{{inside}}}{after}".encode()


def parsed(body: bytes) -> Any:
    return json.loads(body.decode("utf-8-sig"), parse_float=str, parse_int=str)


def pairs(body: bytes) -> Any:
    """Return the top-level members in order, including duplicates."""
    return json.JSONDecoder(object_pairs_hook=list).decode(body.decode("utf-8-sig").strip())


NEW = {"confidence": 0.25, "note": 'größer "}', "list": [1, {"model": None}]}


@given(objects())
def test_removing_what_was_added_gives_the_original(body: bytes) -> None:
    """The added member is one piece of the new bytes, without which they are the old ones."""
    spliced = add_member(body, "pinocchio", NEW)
    member = b'"pinocchio":' + dumps(NEW)
    assert spliced.count(member) == 1
    without = spliced.replace(b"," + member, b"", 1) if b"," + member in spliced else None
    assert body in (without, spliced.replace(member, b"", 1))


@given(objects())
def test_an_added_member_is_there_and_the_others_are_as_they_were(body: bytes) -> None:
    """The result is JSON with one more member, whatever numbers and keys it has."""
    spliced = add_member(body, "pinocchio", {"x": "1.0"})
    assert parsed(spliced) == {**parsed(body), "pinocchio": {"x": "1.0"}}
    assert pairs(spliced)[:-1] == pairs(body)


@given(objects())
def test_replacing_touches_the_values_of_that_name_only(body: bytes) -> None:
    """All top-level members of the name change, and no others, nested ones included."""
    spliced = replace_member(body, "model", "new")
    old, new = pairs(body), pairs(spliced)
    if any(key == "model" for key, _ in old):
        assert new == [(key, "new" if key == "model" else value) for key, value in old]
    else:
        assert new == [*old, ("model", "new")]


@given(objects())
def test_replacing_and_putting_back_gives_the_original(body: bytes) -> None:
    """Replacing a name and putting the old one back gives the original bytes."""
    if sum(key == "model" for key, _ in pairs(body)) != 1:
        return
    spliced = replace_member(body, "model", "@@@")
    before, after = spliced.split(b'"@@@"')
    assert body.startswith(before)
    assert body.endswith(after)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"{}", b'{"p":1}'),
        (b"{ }", b'{ "p":1}'),
        (b"{\n}\n", b'{\n"p":1}\n'),
        (b"\xef\xbb\xbf{}", b'\xef\xbb\xbf{"p":1}'),
        (b'{"a":1.0}', b'{"a":1.0,"p":1}'),
        (b'{"a":1E5 }\n', b'{"a":1E5 ,"p":1}\n'),
        (b'{"a":{}}', b'{"a":{},"p":1}'),
        (b'{"a":1,"a":2}', b'{"a":1,"a":2,"p":1}'),
        (b'{"a":"\\u00e9"}', b'{"a":"\\u00e9","p":1}'),
        (b'{"a":{"p":0}}', b'{"a":{"p":0},"p":1}'),
    ],
)
def test_adding(body: bytes, expected: bytes) -> None:
    """The member is added before the last brace, and nothing else moves."""
    assert add_member(body, "p", 1) == expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"model":"a"}', b'{"model":"new"}'),
        (b'{"model" : "a" , "n":1.0}', b'{"model" : "new" , "n":1.0}'),
        (b'{"n":1,"model":{"x":[1]}}\n', b'{"n":1,"model":"new"}\n'),
        (b'{"model":1,"model":2}', b'{"model":"new","model":"new"}'),
        (b'{"mod\\u0065l":1}', b'{"mod\\u0065l":"new"}'),
        (b'{"a":{"model":1},"model":2}', b'{"a":{"model":1},"model":"new"}'),
        (b'{"a":"\\"model\\":1"}', b'{"a":"\\"model\\":1","model":"new"}'),
        (b"{}", b'{"model":"new"}'),
        (b'\xef\xbb\xbf{"model":1}', b'\xef\xbb\xbf{"model":"new"}'),
    ],
)
def test_replacing(body: bytes, expected: bytes) -> None:
    """Only the value's own characters are replaced, in every member of that name."""
    assert replace_member(body, "model", "new") == expected


@pytest.mark.parametrize(
    "body",
    [b"", b" ", b"[]", b"[{}]", b'"}"', b"1", b"null", b"}", b"{", b"[}", b"a{}", b"{}\x0c"],
)
def test_what_is_no_object_is_refused(body: bytes) -> None:
    """Both functions refuse arrays, strings and incomplete objects."""
    for change in (add_member, replace_member):
        with pytest.raises(ValueError, match=r"."):
            change(body, "p", 1)


DAMAGED = [
    b'{"a":1',
    b'{"a":}',
    b'{"a"}',
    b'{"a";1}',
    b'{"a":1}}',
    b'{"a":1} x',
    b'{"a":tru}',
    b'{"a":"}',
    b'{"a":1 "b":2}',
    b"{a:1}",
    b'{"a":"\xff"}',
    b'{"a":' + b"[" * 100_000,
    b'{"a":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001,
    b'{"a":' + b"1" * 5_000 + b"}",
]


@pytest.mark.parametrize("body", DAMAGED, ids=lambda body: body[:12].decode(errors="replace"))
def test_damaged_json_is_a_value_error(body: bytes) -> None:
    """Truncated, malformed or absurdly nested bodies raise ValueError and nothing else."""
    with pytest.raises(ValueError, match=r"."):
        replace_member(body, "model", "new")


@given(st.binary(max_size=40) | st.text('{}[]":,\\ a1', max_size=20).map(str.encode))
def test_hostile_bytes_raise_value_error_or_nothing(body: bytes) -> None:
    """No input raises another exception."""
    for change in (add_member, replace_member):
        with contextlib.suppress(ValueError):
            change(body, "a", None)


@given(st.text() | st.text(st.characters(categories=["Cs"]), min_size=1))
def test_dumps_is_utf8_for_every_text(text: str) -> None:
    """Half a surrogate pair, which clients may send as an escape, is written as one."""
    assert json.loads(dumps({text: text})) == json.loads(json.dumps({text: text}))


def test_dumps_keeps_other_scripts_readable() -> None:
    """Characters that UTF-8 has are not escaped."""
    assert dumps({"a": "größe 🙂", "b": [1]}) == '{"a":"größe 🙂","b":[1]}'.encode()


@given(objects())
def test_bodies_are_read_as_the_standard_library_reads_them(body: bytes) -> None:
    """Repeated members, long integers and byte order marks are read as Python does."""
    assert json_object(body) == json.loads(body.decode("utf-8-sig"))


@given(objects())
def test_one_pass_finds_values_and_repeated_members(body: bytes) -> None:
    """One pass reads the same values and finds that no member is repeated."""
    if (found := object_without_repeats(body)) is not None:
        assert found == json_object(body)
        check_repeated(body, AnyName())


class AnyName(frozenset[str]):
    """Contains every name."""

    def __contains__(self, name: object) -> bool:
        return True


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":1}',
        '{"a":{"b":[{"c":1,"d":2,"c":3}]}}',
        '{"a":1,"\\u0061":2}',
        "[1]",
        '\ufeff{"a":1}',
        '{"a":"\\ud800"}',
        f'{{"a":[{"0," * 250_000}0]}}',
    ],
    ids=["twice", "inside", "escaped", "a list", "mark", "half a pair", "many"],
)
def test_what_one_pass_does_not_tell(text: str) -> None:
    """Repeated members, and what only another parser reads, are left to that parser."""
    assert object_without_repeats(text.encode()) is None


@pytest.mark.parametrize(
    "text",
    [
        '{"a":[1e400,-0,0.1234567890123456789,5e-324,123456789012345678901234567890]}',
        '{"a":"\\ud800 \\u0000 \\ud83d\\ude00"}',
        f'{{"a":{"[" * 400}{"]" * 400}}}',
        "{}\n",
        '{"a":Infinity}',
    ],
)
def test_what_not_every_reader_takes(text: str) -> None:
    """Depth, half a surrogate pair, and numbers beyond 64 bits are found."""
    assert json_object(text.encode()) == json_object(text) == json.loads(text)


@pytest.mark.parametrize("text", ["", "[1]", '{"a":1,}', '{"a":01}', '{"a":1}x', "{'a':1}", '"a"'])
def test_what_is_no_json_object(text: str) -> None:
    assert json_object(text) is None


def values_in(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(values_in, inside))


@given(
    st.recursive(
        st.text('"\\[{,a', max_size=8) | st.sampled_from(["\\" * 64, "," * 90]) | st.integers(),
        lambda inner: (
            st.lists(inner, max_size=5) | st.dictionaries(st.text('"\\,', max_size=4), inner)
        ),
    ),
    st.integers(0, 30),
)
def test_no_text_has_more_values_than_it_may_have(value: Any, most: int) -> None:
    text = json.dumps(value).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_splice, "BYTES_A_QUOTE", 1)  # all quotes are checked
        may_have_more = json_splice.may_have_more_values(text, most)
    assert may_have_more or values_in(value) <= most + 1
    assert not may_have_more or json_splice.separators(text) > most


@pytest.mark.parametrize(
    ("text", "outside"),
    [
        (b'{"a": "' + b"[,{" * 10_000 + b'"}', 8),
        (b'{"a": "' + b'\\\\\\"' * 2 + b"," * 40_000 + b'"}', 8),  # a quote in the string
        (b'{"a": "' + b"\\\\" * 2 + b'"' + b"," * 40_000, 7 + 40_000),  # the string has ended
        (b'["' + b"\\" * 64 + b'"' + b"," * 40_000, 40_067),  # this is ambiguous
        (b"[" * 40_000, 40_000),
        (b'"' * 40_000, 40_000 - 9),  # only the first few are checked
    ],
)
def test_what_is_outside_of_long_strings(text: bytes, outside: int) -> None:
    assert len(text) // json_splice.BYTES_A_QUOTE <= 9
    assert outside - 10 <= json_splice._outside_strings(text) <= outside
