"""Common mistakes in addresses: no scheme, no /v1, or /v1 twice."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proxy.config.setup import load_setup
from proxy.errors import StartupError
from tests.conftest import StartProxy
from tests.running.desk_client import HOLD, code_of
from tests.running.live_proxy import question, run_cli


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1:18900/v1", "localhost/v1", "api.example.net", "ftp://a/v1", "//a/v1", "x"),
        *("http://", "https:///v1", "http:// a/v1", " http://a/v1"),
    ],
)
def test_an_address_that_is_none_is_one_sentence(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OPENAI_BASE_URL without a scheme or host is refused like such an address in a file."""
    sentence = f"OPENAI_BASE_URL must begin with http:// or https:// and a host, not {address!r}"
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StartupError, match="OPENAI_BASE_URL") as error:
        load_setup(None)
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    "address",
    ["127.0.0.1:18900/v1", "http://", "http://a b/v1", "http://a:99999/v1", "http://[::1"],
)
@pytest.mark.parametrize("command", [["check"], ["serve", "--port", "0"], ["doctor"]])
def test_commands_refuse_such_an_address_without_a_traceback(
    address: str, command: list[str], tmp_path: Path
) -> None:
    """Each command that reads the configuration refuses such an address without a traceback."""
    done = run_cli(*command, cwd=tmp_path, OPENAI_BASE_URL=address)
    assert done.returncode in (1, 2)
    assert re.search(r"OPENAI_BASE_URL|base_url", done.stdout + done.stderr)
    assert "Traceback" not in done.stderr


def test_a_password_in_an_address_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password in a refused address is not repeated, since the message goes into logs."""
    monkeypatch.setenv("OPENAI_BASE_URL", "ann:opensesame@10.0.0.1/v1")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StartupError) as error:
        load_setup(None)
    assert "opensesame" not in str(error.value)


def test_a_path_with_v1_twice_gets_a_clear_error(start_proxy: StartProxy) -> None:
    """For a client whose base_url ends in /v1/v1, the error of a deciding proxy says so."""
    proxy = start_proxy(policy=HOLD)
    refused = proxy.http.post("/v1/v1/chat/completions", json=question("p=0.1"))
    assert code_of(refused) == (400, "surface_undecided")
    assert "did you mean /v1/chat/completions? The client's base_url has /v1 twice" in refused.text
