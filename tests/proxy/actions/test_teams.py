"""Teams and keys: which policy applies to whom, what it sees of them, and their limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import BadRequestError, OpenAI, RateLimitError

from policies import (
    Escalate,
    Facts,
    Hold,
    decide,
    load_policy,
    parse_policy,
    strictest,
    with_requested,
)
from proxy.gate.rate_limits import Buckets
from tests.conftest import StartProxy
from tests.running.client_keys import (
    NOTICED_WITHIN_S,
    OWN_KEY,
    ask_with,
    bearer,
    make_key,
    wait_until_known,
)
from tests.running.live_proxy import LiveProxy, error_of, events_in, question, until
from tests.servers.faulty_upstream import FaultyUpstream

HEADER = "x-pinocchio-policy"
UNSUPPORTED = "p=0.4 support=0.01 basis=context"  # the pack helpdesk holds it
DELIVER = "{version: 1, name: house, default: deliver}"
OBSERVE = "{version: 1, name: watch, mode: shadow, default: {hold: {queue: q}}}"
STRICT = """
version: 1
name: strict
rules:
  - {name: unsure, when: {confidence: {below: 0.5}}, then: {hold: {queue: seniors}}}
default: deliver
"""
BY_FACTS = """
version: 1
name: by-facts
rules:
  - {name: interns, when: {team: interns}, then: block}
  - {name: bots, when: {key: "bot-*"}, then: {hold: {queue: bots}}}
default: deliver
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write policies beside a configuration."""
    folder = tmp_path_factory.mktemp("policies")
    (folder / "strict.yaml").write_text(STRICT)
    (folder / "watch.yaml").write_text(OBSERVE)
    return folder


@pytest.fixture
def proxy(start_proxy: StartProxy, files: Path) -> LiveProxy:
    """Start a proxy that delivers everything, except for the policies of teams and keys."""
    teams = {
        "plain": {},
        "careful": {"policy": str(files / "strict.yaml"), "max_held": 2},
        "quiet": {"attach": {"headers": False, "body": False}},
        "slow": {"requests_per_minute": 3},
    }
    return start_proxy(policy=DELIVER, keys="required", upstream={"api_key": OWN_KEY}, teams=teams)


def key_for(proxy: LiveProxy, **fields: Any) -> str:
    secret, _ = make_key(proxy.store_path, **fields)
    wait_until_known(proxy.base_url, secret)
    return secret


def policy_of(response: httpx.Response) -> str:
    """Return the name of the policy that decided."""
    return response.headers[HEADER].split("/")[0]


# Which policy applies


def test_each_team_and_key_has_its_policy(proxy: LiveProxy, files: Path) -> None:
    """A key's own policy counts before its team's, and that before the general one."""
    plain = key_for(proxy, team="plain")
    careful = key_for(proxy, team="careful")
    careless = key_for(proxy, team="careful", policy="observe")
    alone = key_for(proxy, policy=str(files / "strict.yaml"))
    replies = [ask_with(proxy.base_url, key, "p=0.1") for key in (plain, careful, careless, alone)]
    assert [policy_of(each) for each in replies] == ["house", "strict", "observe", "strict"]
    actions = [each.headers["x-pinocchio-action"] for each in replies]
    assert actions == ["deliver", "hold", "deliver", "hold"]


def test_policies_see_team_and_key(start_proxy: StartProxy) -> None:
    """Rules on `team` and `key` match the key's team and name, for replies and streams."""
    proxy = start_proxy(
        policy=BY_FACTS,
        keys="required",
        upstream={"api_key": OWN_KEY},
        teams={"interns": {}, "support": {}},
    )
    intern = key_for(proxy, team="interns", name="bot-1")
    bot = key_for(proxy, team="support", name="bot-1")
    person = key_for(proxy, team="support", name="ann")
    assert ask_with(proxy.base_url, intern).json()["error"]["code"] == "blocked_by_policy"
    assert ask_with(proxy.base_url, bot).headers["x-pinocchio-action"] == "hold"
    assert ask_with(proxy.base_url, person).headers["x-pinocchio-action"] == "deliver"

    def stream(secret: str) -> httpx.Response:
        body = question("p=0.9", stream=True)
        return httpx.post(
            f"{proxy.base_url}/chat/completions", json=body, headers=bearer(secret), timeout=20
        )

    assert stream(bot).headers["x-pinocchio-action"] == "hold"
    live = stream(person)
    assert live.headers["x-pinocchio-confidence-status"] == "pending"
    assert events_in(live.content)[-1]["pinocchio"]["action"] == "deliver"


def test_attach_is_the_keys_else_the_teams(proxy: LiveProxy) -> None:
    """A key or team without `attach` gets upstream's replies; others still get the confidence."""
    quiet = ask_with(proxy.base_url, key_for(proxy, team="quiet"))
    assert "pinocchio" not in quiet.json()
    assert not [name for name in quiet.headers if name.startswith("x-pinocchio")]
    loud = ask_with(proxy.base_url, key_for(proxy, team="quiet", attach="both"))
    assert loud.json()["pinocchio"]["confidence"] == 0.9
    assert loud.headers["x-pinocchio-confidence"] == "0.9000"
    half = ask_with(proxy.base_url, key_for(proxy, attach="headers"))
    assert "pinocchio" not in half.json()
    assert half.headers["x-pinocchio-confidence"] == "0.9000"


# Limits


def test_a_key_beyond_its_requests_is_told_when_to_come_again(
    proxy: LiveProxy, upstream: FaultyUpstream
) -> None:
    """A key beyond its requests gets 429 with `retry-after`, and upstream is not asked."""
    secret, _ = make_key(proxy.store_path, requests_per_minute=2)
    until(lambda: ask_with(proxy.base_url, secret).status_code == 200, NOTICED_WITHIN_S)
    assert ask_with(proxy.base_url, secret).status_code == 200
    upstream.forget()
    client = OpenAI(base_url=proxy.base_url, api_key=secret, max_retries=0)
    with pytest.raises(RateLimitError) as caught:
        client.chat.completions.create(**question("p=0.9"))
    assert caught.value.code == "rate_limit_exceeded"
    assert 1 <= int(caught.value.response.headers["retry-after"]) <= 30
    assert 0 < int(caught.value.response.headers["retry-after-ms"]) <= 30_000
    assert error_of(caught.value.response)["message"].startswith("too many requests: 2 a minute")
    assert upstream.requests == []


def test_the_keys_of_a_team_share_its_requests(proxy: LiveProxy) -> None:
    """Requests of one key count for all keys of the team, and not for other teams."""
    first, _ = make_key(proxy.store_path, team="slow")
    second, _ = make_key(proxy.store_path, team="slow")
    other = key_for(proxy, team="plain")
    until(lambda: ask_with(proxy.base_url, first).status_code == 200, NOTICED_WITHIN_S)
    statuses = [ask_with(proxy.base_url, key).status_code for key in (first, second, second)]
    assert statuses == [200, 200, 429]
    assert ask_with(proxy.base_url, other).status_code == 200


def test_each_process_counts_for_itself(upstream: FaultyUpstream, tmp_path: Path) -> None:
    """Two proxies on one store let a key make its requests at each of them."""
    options: dict[str, Any] = {"keys": "required", "upstream": {"api_key": OWN_KEY}}
    secret, _ = make_key(tmp_path / "held.db", requests_per_minute=1)
    proxies = [LiveProxy(upstream.base_url, tmp_path, **options) for _ in range(2)]
    try:
        statuses = [ask_with(proxy.base_url, secret).status_code for proxy in proxies * 2]
    finally:
        for proxy in proxies:
            proxy.stop()
    assert statuses == [200, 200, 429, 429]


def test_buckets_fill_evenly_and_take_from_all_or_none() -> None:
    """A bucket allows a minute's worth at once, then one at intervals; refusals use up nothing."""
    now = [0.0]
    buckets = Buckets(lambda: now[0])
    both = [("key", 60), ("team", 2)]
    assert [buckets.take(both) for _ in range(2)] == [0, 0]
    assert buckets.take(both) == pytest.approx(30)
    assert [buckets.take([("key", 60)]) for _ in range(58)] == [0] * 58
    assert buckets.take([("key", 60)]) == pytest.approx(1)
    now[0] = 30.0
    assert buckets.take(both) == 0
    assert buckets.take(both) == pytest.approx(30)


def test_a_team_may_have_so_many_replies_held(proxy: LiveProxy) -> None:
    """Beyond a team's holds a further one is refused with 503, and other teams are not affected."""
    careful, second = key_for(proxy, team="careful"), key_for(proxy, team="careful")
    waiting = 0
    while ask_with(proxy.base_url, careful, "p=0.1").status_code == 200:
        waiting += 1
        assert waiting <= 2
    refusal = ask_with(proxy.base_url, second, "p=0.1")
    assert (refusal.status_code, error_of(refusal)["code"]) == (503, "too_many_held")
    assert "2 replies are held already (max_held of team careful)" in error_of(refusal)["message"]
    assert ask_with(proxy.base_url, second, "p=0.9").status_code == 200


def test_a_key_may_have_so_many_replies_held(proxy: LiveProxy, files: Path) -> None:
    """A key's own limit of holds counts its own replies only."""
    policy = str(files / "strict.yaml")
    one = key_for(proxy, policy=policy, max_held=1)
    other = key_for(proxy, policy=policy, max_held=1)
    assert ask_with(proxy.base_url, one, "p=0.1").status_code == 200
    assert ask_with(proxy.base_url, one, "p=0.1").status_code == 503
    assert ask_with(proxy.base_url, other, "p=0.1").status_code == 200


# Policies that a client requests


@pytest.fixture
def lenient(start_proxy: StartProxy) -> LiveProxy:
    """Start a proxy that delivers everything and needs no key."""
    return start_proxy(policy=DELIVER)


@pytest.fixture
def holding(start_proxy: StartProxy) -> LiveProxy:
    """Start a proxy that holds everything and needs no key."""
    return start_proxy(policy="{version: 1, name: desk, default: {hold: {queue: seniors}}}")


def test_a_client_can_ask_for_a_stricter_policy(
    lenient: LiveProxy, upstream: FaultyUpstream
) -> None:
    """The requested pack decides too; its header stays here, and other clients are unaffected."""
    client = OpenAI(base_url=lenient.base_url, api_key="sk", default_headers={HEADER: "helpdesk"})
    held = client.chat.completions.create(**question(UNSUPPORTED))
    assert held.id.startswith("chatcmpl-held-")
    assert upstream.last.header(HEADER) is None
    assert policy_of(lenient.ask(UNSUPPORTED, headers={HEADER: "helpdesk"})) == "helpdesk"
    assert policy_of(lenient.ask("p=0.99", headers={HEADER: "helpdesk"})) == "house"
    assert policy_of(lenient.ask("p=0.01")) == "house"


@pytest.mark.parametrize("requested", ["observe", "helpdesk", "agent-tools", "desk"])
def test_a_client_cannot_ask_for_a_laxer_policy(holding: LiveProxy, requested: str) -> None:
    """Whatever policy a client requests, its own still holds what it holds."""
    response = holding.ask("p=0.99", headers={HEADER: requested})
    assert response.headers["x-pinocchio-action"] == "hold"
    assert policy_of(response) == "desk"
    stream = holding.ask("p=0.99", headers={HEADER: requested}, stream=True)
    assert stream.headers["x-pinocchio-action"] == "hold"


@pytest.mark.parametrize("names", [("observe", "helpdesk"), ("helpdesk", "observe")])
def test_two_headers_are_refused(
    lenient: LiveProxy, upstream: FaultyUpstream, names: tuple[str, str]
) -> None:
    """Two policy headers are refused with 400 and reach no upstream: one could hide the other."""
    fields = [*((HEADER, name) for name in names), ("authorization", "Bearer sk")]
    response = httpx.post(
        f"{lenient.base_url}/chat/completions", json=question("p=0.9"), headers=fields
    )
    error = error_of(response)
    assert (response.status_code, error["code"]) == (400, "unusable_policy")
    assert "2 times" in error["message"]
    assert upstream.requests == []


def test_a_stream_waits_for_the_stricter_policy(lenient: LiveProxy) -> None:
    """A live stream is buffered where the requested policy may hold it."""
    live = lenient.ask("p=0.01", stream=True)
    assert live.headers["x-pinocchio-confidence-status"] == "pending"
    waited = lenient.ask(UNSUPPORTED, headers={HEADER: "helpdesk"}, stream=True)
    assert waited.headers["x-pinocchio-action"] == "hold"
    assert policy_of(waited) == "helpdesk"


@pytest.mark.parametrize("name", ["helpdsk", "../helpdesk", "strict.yaml", "/etc/passwd", "é"])
def test_an_unknown_policy_is_refused(
    lenient: LiveProxy, upstream: FaultyUpstream, name: str
) -> None:
    """An unknown policy gets 400 with the names of the packs; no path is opened."""
    response = lenient.ask(headers={HEADER: name.encode("latin-1")})
    assert response.status_code == 400
    error = error_of(response)
    assert error["code"] == "unknown_policy"
    assert "helpdesk" in error["message"]
    assert upstream.requests == []
    client = OpenAI(base_url=lenient.base_url, api_key="sk", max_retries=0)
    with pytest.raises(BadRequestError):
        client.chat.completions.create(**question("x"), extra_headers={HEADER: "nonsense"})


def test_a_policy_that_asks_several_times_is_not_asked_for(
    start_proxy: StartProxy, upstream: FaultyUpstream
) -> None:
    """A policy with several calls costs more, so it can be requested only by its own users."""
    asking = "{version: 1, name: best, ask: {n: 2}, default: deliver}"
    own = start_proxy(policy=asking)
    assert own.ask(headers={HEADER: "best"}).status_code == 200
    refusal = start_proxy(policy=DELIVER).ask(headers={HEADER: "best-of-n"})
    assert (refusal.status_code, error_of(refusal)["code"]) == (400, "unusable_policy")


def test_a_configured_policy_can_be_asked_for_by_its_name(proxy: LiveProxy) -> None:
    """A team's policy can be requested by clients of other teams under its name."""
    plain = key_for(proxy, team="plain")
    response = ask_with(proxy.base_url, plain, "p=0.1", x_pinocchio_policy="strict")
    assert response.status_code in (200, 503)  # the team's limit is not the key's
    assert policy_of(response) == "strict"


HASTY = "{hold: {queue: q, on_expiry: deliver, expires: 1s}}"


@pytest.mark.parametrize(
    ("own", "requested", "policy_name", "on_expiry"),
    [
        ("deliver", HASTY, "asked", "deliver"),
        ("{deliver: {notice: Look}}", "{annotate: {label: x}}", "own", None),
        ("{deliver: {notice: Look}}", "{escalate: {to: big}}", "own", None),
        ("{deliver: {notice: Look}}", HASTY, "asked", "reject"),
        ("{annotate: {label: x}}", HASTY, "asked", "reject"),
        ("clarify", HASTY, "asked", "reject"),
        ("clarify", f"{{escalate: {{to: big, otherwise: {HASTY}}}}}", "asked", "reject"),
        ("{hold: {queue: seniors}}", HASTY, "own", "reject"),
        ("block", HASTY, "own", None),
        ("{hold: {on_expiry: deliver}}", "block", "asked", None),
    ],
)
def test_an_asked_policy_takes_nothing_back(
    own: str, requested: str, policy_name: str, on_expiry: str | None
) -> None:
    """A requested policy removes no notice, and its
    hold does not deliver withheld text on expiry.
    """
    facts = Facts(0.5, "m")
    found = with_requested(
        *(
            decide(parse_policy(f"{{version: 1, name: {name}, default: {then}}}", "p.yaml"), facts)
            for name, then in (("own", own), ("asked", requested))
        )
    )
    action = found.applied.otherwise if isinstance(found.applied, Escalate) else found.applied
    assert found.policy == policy_name
    assert (action.on_expiry if isinstance(action, Hold) else None) == on_expiry


def test_what_is_carried_out_counts_before_what_a_shadow_would_do() -> None:
    """An enforced policy counts before one in shadow, however strict that is."""
    shadow = parse_policy(OBSERVE, "watch.yaml")
    enforced = parse_policy(
        "{version: 1, name: e, default: {clarify: {text: Which one}}}", "e.yaml"
    )
    facts = Facts(0.5, "m")
    both = [decide(shadow, facts), decide(enforced, facts)]
    for decisions in (both, both[::-1]):
        assert strictest(decisions).policy == "e"
    assert strictest([decide(load_policy("observe"), facts), both[0]]).policy == "watch"
