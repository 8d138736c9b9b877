"""Addresses on which nothing can listen are refused with a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.http.listener.sockets import open_socket
from tests.running.live_proxy import free_port, run_cli


@pytest.mark.parametrize(
    ("host", "port"), [("é..b", 0), ("a\0b", 0), ("a..b", 0), ("127.0.0.1", 70_000)]
)
def test_an_unusable_address_is_an_oserror(host: str, port: int) -> None:
    """An unusable address raises OSError, whatever Python raises for it."""
    with pytest.raises(OSError, match=r".+"):
        open_socket(host, port, 1)


@pytest.mark.parametrize("listener", ["admin", "guardrails"])
def test_a_host_that_is_no_name_is_one_sentence(tmp_path: Path, listener: str) -> None:
    """A host that is no name gives one sentence, for the proxy, the desk and the guardrails."""
    config = tmp_path / "proxy.yaml"
    token = "a" * 40
    config.write_text(
        f"store: sqlite:///{tmp_path}/s.db\n{listener}: {{host: é..b, port: 0, token: {token}}}\n"
    )
    done = run_cli("serve", "--config", str(config), "--port", str(free_port()))
    assert done.returncode == 2, done.stdout + done.stderr
    assert "cannot listen on é..b" in done.stderr
    assert "Traceback" not in done.stderr
