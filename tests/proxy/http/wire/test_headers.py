"""Header fields that pass the proxy, in both directions."""

from __future__ import annotations

import pytest

from proxy.http.wire.headers import HOP_BY_HOP, to_client, to_upstream, with_header, without

KEPT = [
    (b"authorization", b"Bearer sk-1"),
    (b"content-type", b"application/json"),
    (b"openai-organization", b"org"),
    (b"x-request-id", b"r"),
    (b"x-custom", b"a"),
    (b"x-custom", b"b"),
    (b"cookie", b"a=b"),
]


@pytest.mark.parametrize("cross", [to_upstream, to_client])
def test_what_is_not_of_one_connection_crosses_in_its_order(cross: object) -> None:
    """Unknown fields pass in both directions and in order, repeated ones too."""
    assert callable(cross)
    assert cross([*KEPT]) == KEPT


@pytest.mark.parametrize("name", sorted(HOP_BY_HOP))
def test_fields_of_one_connection_stay_on_it(name: bytes) -> None:
    """RFC 9110, 7.6.1: hop-by-hop fields are never forwarded."""
    assert to_upstream([*KEPT, (name, b"x")]) == KEPT
    assert to_client([*KEPT, (name, b"x")]) == KEPT


def test_fields_that_connection_names_stay_on_it() -> None:
    """Fields that `Connection` names are not forwarded, in any case and on several lines."""
    headers = [
        (b"connection", b"close, X-One"),
        (b"x-one", b"1"),
        (b"x-two", b"2"),
        (b"connection", b"x-two"),
        (b"x-three", b"3"),
    ]
    assert to_upstream(headers) == to_client(headers) == [(b"x-three", b"3")]


@pytest.mark.parametrize(
    "name", [b"x-pinocchio-policy", b"x-pinocchio-tags", b"x-pinocchio-anything"]
)
def test_nobody_else_speaks_in_our_name(name: bytes) -> None:
    """Our request headers are not forwarded, and upstream cannot forge our response headers."""
    assert to_upstream([(name, b"x")]) == to_client([(name, b"x")]) == []


@pytest.mark.parametrize("name", [b"host", b"content-length", b"expect"])
def test_what_the_relay_sets_itself_is_replaced_in_requests(name: bytes) -> None:
    """Requests get the upstream's host and their own length; replies keep their length."""
    assert to_upstream([(name, b"x")]) == []
    assert to_client([(name, b"x")]) == [(name, b"x")]


def test_without_and_with() -> None:
    """A field is removed everywhere, and setting one replaces all of its name."""
    headers = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]
    assert without(headers, b"a") == [(b"b", b"2")]
    assert without(headers, b"a", b"b") == []
    assert with_header(headers, b"a", b"4") == [(b"b", b"2"), (b"a", b"4")]
