"""A proxy with a review desk, and clients of it: admins, reviewers, browsers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from proxy.gate.secret_keys import digest_of, new_key_id, new_secret
from proxy.store.database.client_keys import ClientKey, KeyStore, Role
from tests.running.live_proxy import PATIENCE_S, LiveProxy, error_of

HOLD = "{version: 1, name: desk, default: {hold: {queue: seniors}}}"
TOKEN = "an-admin-token-of-the-tests"
DESK: dict[str, Any] = {"has_desk": True, "admin": {"token": TOKEN}}
API = "/pinocchio/v1"


def make_key(proxy: LiveProxy, role: Role, name: str, queues: str | None = None) -> str:
    """Return the secret of a new key, created as by `pinocchio keys create`."""
    secret, store = new_secret(), KeyStore(proxy.config.store)
    digest = digest_of(secret.encode())
    store.add(ClientKey(new_key_id(), digest, time.time(), name=name, role=role, queues=queues))
    store.close()
    return secret


def revoke_key(proxy: LiveProxy, name: str) -> None:
    store = KeyStore(proxy.config.store)
    [key] = [key for key in store.all() if key.name == name]
    store.revoke(key.id)
    store.close()


def desk_url(proxy: LiveProxy) -> str:
    assert proxy.admin is not None
    return proxy.admin.url


def stranger(proxy: LiveProxy, **headers: str) -> httpx.Client:
    """Return a client of the desk that sends no secret."""
    return httpx.Client(
        base_url=desk_url(proxy), headers=headers, trust_env=False, timeout=PATIENCE_S
    )


def browser(proxy: LiveProxy) -> httpx.Client:
    """Return a client that keeps cookies and sends the header fields of the desk's own pages."""
    same_site = {"sec-fetch-site": "same-origin", "origin": desk_url(proxy)}
    return stranger(proxy, **same_site)


@contextmanager
def logged_in(proxy: LiveProxy, secret: str = TOKEN) -> Iterator[httpx.Client]:
    with browser(proxy) as client:
        assert client.post("/pinocchio/login", data={"token": secret}).status_code == 303
        yield client


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def held_id(proxy: LiveProxy, text: str = "p=0.1", **fields: Any) -> str:
    """Return the id of a reply that the proxy holds."""
    return str(proxy.ask(text, **fields).headers["x-pinocchio-review-id"])


def decide(proxy: LiveProxy, id: str, secret: str = TOKEN, **verdict: Any) -> httpx.Response:
    url = f"{API}/reviews/{id}/verdict"
    return proxy.desk.post(url, json=verdict, headers=bearer(secret))


def code_of(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, error_of(response)["code"]


# What the desk exports for Prometheus.

Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


def values_of(text: str) -> Values:
    """Return the value of every series."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped(desk: httpx.Client) -> Values:
    answer = desk.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return values_of(answer.text)


def value(found: Values, name: str, **labels: str) -> float:
    """Return the sum of all series that have at least these labels."""
    wanted = labels.items()
    return sum(v for (each, own), v in found.items() if each == name and own >= wanted)
