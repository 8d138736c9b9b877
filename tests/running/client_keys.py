"""Client keys for tests, made in a proxy's store as `pinocchio keys create` makes them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import httpx

from proxy.gate.secret_keys import digest_of, new_key_id, new_secret
from proxy.store.database.client_keys import ClientKey, KeyStore
from tests.running.live_proxy import PATIENCE_S, question, until

OWN_KEY = "sk-upstreams-own"
NOTICED_WITHIN_S = 5  # usually half a second; other work may share the machine


def make_key(store_path: Path, **fields: Any) -> tuple[str, ClientKey]:
    """Return a new key's secret and its record; a running proxy does not know it yet."""
    secret = new_secret()
    key = ClientKey(new_key_id(), digest_of(secret.encode()), time.time(), **fields)
    store = KeyStore(f"sqlite:///{store_path}")
    store.add(key)
    store.close()
    return secret, key


def revoke_key(store_path: Path, id: str) -> None:
    store = KeyStore(f"sqlite:///{store_path}")
    assert store.revoke(id)
    store.close()


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def ask_with(
    base_url: str, secret: str, text: str = "p=0.9", model: str = "ok", **headers: str
) -> httpx.Response:
    """Ask one question with a client key."""
    fields = bearer(secret) | {name.replace("_", "-"): value for name, value in headers.items()}
    url = f"{base_url}/chat/completions"
    return httpx.post(
        url, json=question(text, model), headers=fields, timeout=PATIENCE_S, trust_env=False
    )


def wait_until_known(base_url: str, secret: str) -> None:
    """Wait until the running proxy accepts the key."""
    headers = bearer(secret)
    until(
        lambda: (
            httpx.get(f"{base_url}/models", headers=headers, trust_env=False).status_code != 401
        ),
        NOTICED_WITHIN_S,
    )
