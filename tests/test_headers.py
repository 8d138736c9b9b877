"""Which header fields cross the proxy, in both directions."""

from __future__ import annotations

import pytest

from proxy.headers import HOP_BY_HOP, to_client, to_upstream, with_header, without

KEPT = [
    ("authorization", "Bearer sk-1"),
    ("content-type", "application/json"),
    ("openai-organization", "org"),
    ("x-request-id", "r"),
    ("x-custom", "a"),
    ("x-custom", "b"),
    ("cookie", "a=b"),
]


@pytest.mark.parametrize("cross", [to_upstream, to_client])
def test_what_is_not_of_one_connection_crosses_in_its_order(cross: object) -> None:
    """Unknown fields survive in both directions, repeated ones too."""
    assert callable(cross)
    assert cross([*KEPT]) == KEPT


@pytest.mark.parametrize("name", sorted(HOP_BY_HOP))
def test_fields_of_one_connection_stay_on_it(name: str) -> None:
    """RFC 9110, 7.6.1: hop-by-hop fields are never forwarded."""
    assert to_upstream([*KEPT, (name, "x")]) == KEPT
    assert to_client([*KEPT, (name, "x")]) == KEPT


def test_fields_that_connection_names_stay_on_it() -> None:
    """`Connection` may name further fields, in any case and in several lines."""
    headers = [
        ("connection", "close, X-One"),
        ("x-one", "1"),
        ("x-two", "2"),
        ("connection", "x-two"),
        ("x-three", "3"),
    ]
    assert to_upstream(headers) == to_client(headers) == [("x-three", "3")]


@pytest.mark.parametrize("name", ["x-pinocchio-policy", "x-pinocchio-tags", "x-pinocchio-anything"])
def test_nobody_else_speaks_in_our_name(name: str) -> None:
    """Our request headers are not forwarded, and upstream cannot forge our response headers."""
    assert to_upstream([(name, "x")]) == to_client([(name, "x")]) == []


@pytest.mark.parametrize("name", ["host", "content-length", "expect"])
def test_what_the_relay_sets_itself_is_replaced_in_requests(name: str) -> None:
    """The upstream's host and length are its own; in replies the length stands."""
    assert to_upstream([(name, "x")]) == []
    assert to_client([(name, "x")]) == [(name, "x")]


def test_without_and_with() -> None:
    """A field is taken out everywhere; setting one replaces all of its name."""
    headers = [("a", "1"), ("b", "2"), ("a", "3")]
    assert without(headers, "a") == [("b", "2")]
    assert without(headers, "a", "b") == []
    assert with_header(headers, "a", "4") == [("b", "2"), ("a", "4")]
