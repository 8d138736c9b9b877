"""Addresses that people get wrong: without a scheme, without /v1, with /v1 twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.config.setup import load_setup
from proxy.errors import StartupError
from tests.conftest import StartProxy
from tests.running.desk_client import HOLD, code_of
from tests.running.live_proxy import question, run_cli


def test_an_address_without_a_scheme_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OPENAI_BASE_URL without http:// is refused as a file with it is, by every command."""
    sentence = "OPENAI_BASE_URL must begin with http:// or https://, not '127.0.0.1:18900/v1'"
    monkeypatch.setenv("OPENAI_BASE_URL", "127.0.0.1:18900/v1")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StartupError, match="OPENAI_BASE_URL") as error:
        load_setup(None)
    assert str(error.value) == sentence
    done = run_cli("check", cwd=tmp_path, OPENAI_BASE_URL="127.0.0.1:18900/v1")
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_path_with_v1_twice_says_what_was_meant(start_proxy: StartProxy) -> None:
    """A client whose base_url ends in /v1/v1 hears so where a policy decides."""
    proxy = start_proxy(policy=HOLD)
    refused = proxy.http.post("/v1/v1/chat/completions", json=question("p=0.1"))
    assert code_of(refused) == (400, "surface_undecided")
    assert "did you mean /v1/chat/completions? The client's base_url has /v1 twice" in refused.text
