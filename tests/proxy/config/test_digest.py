"""The digest that shows whether proxies on several machines have the same configuration."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest

from proxy.config.setup import Setup, load_setup
from tests.conftest import StartProxy
from tests.running.desk_client import DESK, HOLD, scraped

CONFIG = """
upstreams: {{openai: {{base_url: "{url}", api_key: "{key}"}}}}
models: [{{match: "*", upstream: openai}}]
policies: {policy}
store: "sqlite:///{store}"
keys: required
teams: {{support: {{policy: {team}}}}}
admin: {{port: {port}}}
"""
POLICY = """
version: 1
name: gate
rules: [{{name: low, when: {{confidence: {{below: {below}}}}}, then: {{hold: {{queue: q}}}}}}]
default: deliver
"""
SAME = {
    "url": "http://u/v1",
    "key": "k1",
    "policy": "gate.yaml",
    "below": "0.5",
    "team": "observe",
    "store": "a.db",
    "port": "1",
}


def setup_in(folder: Path, **values: str) -> Setup:
    """Write a configuration into its own folder, with a policy file beside it, and load it."""
    folder.mkdir()
    sections = {**SAME, **values}
    (folder / sections["policy"]).write_text(POLICY.format(below=sections["below"]))
    (folder / "proxy.yaml").write_text(CONFIG.format(**sections))
    return load_setup(folder / "proxy.yaml")


def test_places_secrets_and_addresses_make_no_difference(tmp_path: Path) -> None:
    """Folders, names of files, keys of upstreams, ports and databases do not change the digest."""
    one = setup_in(tmp_path / "one")
    other = setup_in(tmp_path / "other", policy="own.yaml", key="k2", store="b.db", port="2")
    assert one.digest() == other.digest()
    assert re.fullmatch(r"[0-9a-f]{12}", one.digest())


@pytest.mark.parametrize(
    "change",
    [{"below": "0.6"}, {"url": "http://v/v1"}, {"team": "helpdesk"}],
    ids=lambda change: next(iter(change)),
)
def test_what_decides_makes_a_difference(tmp_path: Path, change: dict[str, str]) -> None:
    """A rule, an upstream or a team's policy changes the digest."""
    one, other = setup_in(tmp_path / "one"), setup_in(tmp_path / "other", **change)
    assert one.digest() != other.digest()


def test_readyz_and_metrics_have_the_digest(start_proxy: StartProxy) -> None:
    """`/readyz` and the metrics have the same digest, which another policy changes."""
    digests = []
    for name in ("one", "two"):
        proxy = start_proxy(policy=HOLD.replace("desk", name), **DESK)
        digest = httpx.get(f"{proxy.url}/readyz", trust_env=False).json()["configuration_digest"]
        assert ("pinocchio_config_info", frozenset({("digest", digest)})) in scraped(proxy.desk)
        digests.append(digest)
    assert digests[0] != digests[1]
