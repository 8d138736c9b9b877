"""Approvals of similar calls: same tool, key, rule and arguments, with limits of use and time."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from proxy.desk.decisions.desk import Desk, Verdict
from proxy.desk.decisions.standing import LikeThis, end
from proxy.errors import BadRequestError, NotFoundError
from proxy.store.queue import SEEN_QUEUES, ReviewQueue
from proxy.store.reviews.held_replies import Store
from proxy.store.reviews.standing import MOST_LISTED, covers, pattern_of, standing_approvals
from tests.conftest import StartProxy
from tests.proxy.actions.test_actions import WEATHER, policy
from tests.proxy.desk.test_approvals import put
from tests.proxy.holds.test_holds import REVIEW_ID
from tests.proxy.http.workers.several import running
from tests.proxy.store.test_store import REPLY
from tests.running.desk_client import (
    API,
    DESK,
    bearer,
    code_of,
    decide,
    logged_in,
    make_key,
    scraped,
    value,
)
from tests.running.live_proxy import LiveProxy, question, run_cli, until
from tests.servers.faulty_upstream import FaultyUpstream

Json = dict[str, Any]
HOLD = policy("{hold: {expires: 1h, queue: trips}}")
TWO = policy("{hold: {expires: 1h, approvals: 2}}")
LIKE = {"for_s": 600, "uses": 3}
CALL = {"name": "refund", "arguments": '{"order": "A-1", "amount": 12}'}
BODY = {"choices": [{"index": 0, "message": {"role": "assistant", "content": None}}]}


def with_calls(*calls: Json) -> bytes:
    tool_calls = [
        {"id": str(n), "type": "function", "function": each} for n, each in enumerate(calls)
    ]
    message = {"role": "assistant", "content": None, "tool_calls": tool_calls}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return json.dumps({"choices": [choice]}).encode()


BOUND = replace(
    REPLY,
    reply=with_calls(CALL),
    path="/chat/completions",
    key_hash="key",
    request_digest="request",
    rule_digest="rule",
    request_id=None,
)


@pytest.fixture(scope="module")
def proxy(start_proxy: StartProxy) -> LiveProxy:
    return start_proxy(policy=HOLD, **DESK)


def body_of(city: str, before: str = "", **fields: Any) -> Json:
    """Return a request whose reply calls a tool with this city; `before` makes it differ."""
    asked = question(city, "tools", tools=[WEATHER], **fields)
    if before:
        asked["messages"].insert(0, {"role": "system", "content": before})
    return asked


def post(client: httpx.Client, body: Json, key: str = "sk-client") -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"}
    return client.post("/v1/chat/completions", json=body, headers=headers)


def held_id(proxy: LiveProxy, city: str, **fields: Any) -> str:
    answer = post(proxy.http, body_of(city, **fields))
    assert answer.status_code == 422
    return str(answer.headers[REVIEW_ID])


def actions(proxy: LiveProxy, city: str, before: str, key: str = "sk-client") -> str:
    return str(post(proxy.http, body_of(city, before), key).headers["x-pinocchio-action"])


# Which calls are similar


def test_a_pattern_covers_the_same_arguments_and_any_of_those_named() -> None:
    """A pattern covers the same arguments in any order, with any
    value of the named ones; none may be added, left out or repeated.
    """
    exact, free = pattern_of('{"a": 1, "b": [2]}'), pattern_of('{"a": 1, "b": 2}', ["b"])
    assert covers(exact, '{"b":[2],"a":1}')
    for other in ('{"a":1}', '{"a":1,"b":[2],"c":0}', '{"a":"1","b":[2]}', '{"a":9,"a":1,"b":[2]}'):
        assert not covers(exact, other)
    assert covers(free, '{"a": 1, "b": {"x": 3}}')
    assert covers(free, '{"a": 1}')
    assert not covers(free, '{"a": 2, "b": 2}')
    assert not covers(free, '{"a": 1, "b": 2, "c": 3}')
    text = pattern_of("select 1")
    assert covers(text, "select 1")
    assert not covers(text, "select 2")
    assert not covers(text, '{"a": 1}')
    assert not covers(exact, "select 1")
    assert covers(pattern_of(""), "{}")
    assert "A-1" not in pattern_of(CALL["arguments"])  # no value of a client's is kept


# At the desk


@pytest.mark.parametrize(
    "value", ["1e999", "-1e999", "Infinity", "NaN", "0", "false", '""', '"null"']
)
def test_null_covers_nothing_but_null(value: str) -> None:
    """`null` covers only `null`: what one JSON writer makes null may be a number to a tool."""
    pattern = pattern_of('{"order": "A-1", "limit": null}')
    assert covers(pattern, '{"limit":null,"order":"A-1"}')
    assert not covers(pattern, f'{{"order": "A-1", "limit": {value}}}')


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1", "1.0"),
        ("1.50", "1.5"),
        ("1e3", "1000"),
        ("1.5", '"1.5"'),
        ("1.5", '{"number": "1.5"}'),
        ("true", "1"),
        ("0.1", "0.10000000000000001"),
        ("9007199254740993", "9007199254740992"),
        ('{"a": [1.5]}', '{"a": [1.50]}'),
    ],
)
def test_numbers_are_compared_as_they_are_written(one: str, other: str) -> None:
    """Numbers are compared as they are written, since tools read them differently."""
    for first, second in ((one, other), (other, one)):
        pattern = pattern_of(f'{{"amount": {first}}}')
        assert covers(pattern, f'{{"amount": {first}}}')
        assert not covers(pattern, f'{{"amount": {second}}}')


def test_one_is_revoked_however_many_are_newer(store_url: str) -> None:
    """An approval that is too old to be listed can still be revoked."""
    queue = ReviewQueue(store_url)
    values = {"key_hash": "k", "rule_digest": "r", "queue": "q", "review_id": "x", "tool": "t"}
    values |= {"arguments": '{"exact": {}, "any": []}', "created_by": "ada", "uses": 0}
    with queue.engine.begin() as connection:
        for number in range(MOST_LISTED + 1):
            made = {"created_at": float(number), "expires_at": time.time() + 600, "most_uses": 3}
            connection.execute(standing_approvals.insert(), {**values, **made, "id": f"s{number}"})
    assert "s0" not in {each.id for each in queue.standing_approvals(is_all=True)}
    assert end(queue, "s0", "ada")["revoked_by"] == "ada"
    with pytest.raises(NotFoundError):
        end(queue, "s9999", "ada")
    token = SEEN_QUEUES.set(frozenset({"another"}))
    with pytest.raises(NotFoundError):
        end(queue, "s1", "ada")
    SEEN_QUEUES.reset(token)
    queue.close()


def test_calls_like_the_approved_one_go_without_a_reviewer(proxy: LiveProxy) -> None:
    """Similar calls of the same key are delivered without a reviewer as often as allowed,
    streamed too. Member, record and metric name each use, and the approval counts them.
    """
    id = held_id(proxy, "Rome p=0.1")
    facts = proxy.desk.get(f"{API}/reviews/{id}").json()
    assert facts["like_this"] == {
        "most_s": 3600,
        "most_uses": 100,
        "tool": "get_weather",
        "arguments": ["city", "number"],
    }
    before = value(scraped(proxy.desk), "pinocchio_standing_approval_uses_total")
    assert decide(proxy, id, verdict="approve", like_this=LIKE).status_code == 200
    got = post(proxy.http, body_of("Rome p=0.1", "second"))
    member = got.json()["pinocchio"]
    [standing] = [each for each in listed(proxy) if each["review_id"] == id]
    assert (got.status_code, member["action"]) == (200, "deliver")
    assert member["standing_approval"] == standing["id"]
    assert got.json()["choices"][0]["message"]["tool_calls"]
    assert actions(proxy, "Oslo p=0.1", "other arguments") == "hold"
    assert actions(proxy, "Rome p=0.1", "other key", "sk-other") == "hold"
    stream = post(proxy.http, body_of("Rome p=0.1", "third", stream=True)).text
    assert '"tool_calls"' in stream
    assert standing["id"] in stream
    [row] = rows(proxy, member["request_id"])
    assert (row.action, row.standing_approval, row.review_id) == ("deliver", standing["id"], None)
    assert actions(proxy, "Rome p=0.1", "fourth") == "deliver"
    assert actions(proxy, "Rome p=0.1", "one too many") == "hold"
    [over] = [each for each in listed(proxy, all="true") if each["review_id"] == id]
    assert (over["uses"], over["state"], over["created_by"]) == (3, "used up", "admin")
    assert (over["same"], over["any"]) == (["city", "number"], [])
    after = value(scraped(proxy.desk), "pinocchio_standing_approval_uses_total")
    assert after - before == 3


def listed(proxy: LiveProxy, **query: str) -> list[Json]:
    items: list[Json] = proxy.desk.get(f"{API}/standing-approvals", params=query).json()["items"]
    return items


def rows(proxy: LiveProxy, request_id: str) -> list[Any]:
    from proxy.store.record.writer import exchanges

    engine = sa.create_engine(f"sqlite:///{proxy.store_path}")

    def found() -> list[Any]:
        with engine.connect() as connection:
            query = sa.select(exchanges).where(exchanges.c.request_id == request_id)
            return list(connection.execute(query).all())

    until(found)
    records = found()
    engine.dispose()
    return records


def test_chosen_arguments_may_be_any(proxy: LiveProxy) -> None:
    """Chosen arguments may have any value, the others must be the same.
    A reply with a call that is not covered is held, and uses up nothing.
    """
    id = held_id(proxy, "Bern p=0.1")
    like = {"for_s": 600, "uses": 9, "any": ["city"]}
    assert decide(proxy, id, verdict="approve", like_this=like).status_code == 200
    assert actions(proxy, "Graz p=0.1", "any city") == "deliver"
    two = body_of("Lyon p=0.1") | {"model": "parallel-tools"}  # the second one has number 1
    assert post(proxy.http, two).status_code == 422
    [standing] = [each for each in listed(proxy) if each["review_id"] == id]
    assert (standing["uses"], standing["any"]) == (1, ["city"])
    revoke(proxy, standing["id"])


def revoke(proxy: LiveProxy, id: str, secret: str | None = None) -> httpx.Response:
    headers = bearer(secret) if secret else {}
    return proxy.desk.post(f"{API}/standing-approvals/{id}/revoke", headers=headers)


def test_it_is_revoked_and_ends_with_its_time(proxy: LiveProxy) -> None:
    """Calls are held again after an approval is revoked or over; who revoked it is stored."""
    id = held_id(proxy, "Kiel p=0.1")
    decide(proxy, id, verdict="approve", like_this=LIKE)
    [standing] = [each for each in listed(proxy) if each["review_id"] == id]
    assert actions(proxy, "Kiel p=0.1", "before") == "deliver"
    assert revoke(proxy, standing["id"]).json()["state"] == "revoked"
    assert (
        revoke(proxy, standing["id"], make_key(proxy, "reviewer", "late")).json()["revoked_by"]
        == "admin"
    )
    assert actions(proxy, "Kiel p=0.1", "after") == "hold"
    assert code_of(revoke(proxy, "standing-none")) == (404, "standing_not_found")
    brief = held_id(proxy, "Metz p=0.1")
    decide(proxy, brief, verdict="approve", like_this={"for_s": 0.05, "uses": 3})
    time.sleep(0.06)
    assert actions(proxy, "Metz p=0.1", "too late") == "hold"


def test_reviewers_see_those_of_their_queues(proxy: LiveProxy) -> None:
    """A reviewer of other queues neither sees nor revokes an approval."""
    id = held_id(proxy, "Nice p=0.1")
    decide(proxy, id, verdict="approve", like_this=LIKE)
    secret = make_key(proxy, "reviewer", "bob", queues="billing")
    url = f"{API}/standing-approvals"
    assert proxy.desk.get(url, headers=bearer(secret)).json() == {"items": []}
    [standing] = [each for each in listed(proxy) if each["review_id"] == id]
    assert code_of(revoke(proxy, standing["id"], secret)) == (404, "standing_not_found")
    revoke(proxy, standing["id"])


@pytest.mark.parametrize(
    ("like_this", "code"),
    [
        ({"for_s": 3601, "uses": 1}, "beyond_limits"),
        ({"for_s": 60, "uses": 101}, "beyond_limits"),
        ({"for_s": 60, "uses": 1, "any": ["country"]}, "unknown_argument"),
    ],
)
def test_what_goes_too_far_is_refused(proxy: LiveProxy, like_this: Json, code: str) -> None:
    """A request beyond the configured bounds, or for an unknown argument, decides nothing."""
    id = held_id(proxy, "Genf p=0.1")
    refused = decide(proxy, id, verdict="approve", like_this=like_this)
    assert code_of(refused) == (400, code)
    assert proxy.desk.get(f"{API}/reviews/{id}").json()["state"] == "open"


def test_only_one_call_that_is_approved_as_it_is_can_be_covered(store_url: str) -> None:
    """Only a single call that is approved unchanged under a rule can be covered."""
    several = replace(BOUND, id="a", reply=with_calls(CALL, CALL))
    put(store_url, several, replace(BOUND, id="b", rule_digest=None), replace(BOUND, id="c"))
    queue = ReviewQueue(store_url)
    desk, like = Desk(queue), LikeThis(60, 1)
    for id in ("a", "b"):
        assert desk.review(id)["like_this"] is None
        with pytest.raises(BadRequestError) as caught:
            desk.decide(id, Verdict("approve", like_this=like), "alice")
        assert caught.value.machine_code == "not_coverable"
    with pytest.raises(BadRequestError):
        desk.decide("c", Verdict("reject", like_this=like), "alice")
    queue.close()


def test_where_two_approve_both_have_to_say_so(store_url: str) -> None:
    """Where two people approve, both must want it for the same arguments; narrower bounds count."""
    two = [replace(BOUND, id=id, approvals=2) for id in ("one", "both", "differ")]
    put(store_url, *two)
    queue = ReviewQueue(store_url)
    desk = Desk(queue)
    wide, narrow = LikeThis(600, 9, ["amount"]), LikeThis(60, 2, ["amount"])
    for id, first, second in (
        ("one", None, wide),
        ("differ", wide, LikeThis(60, 2)),
        ("both", wide, narrow),
    ):
        desk.decide(id, Verdict("approve", like_this=first), "alice")
        assert queue.standing_approvals() == []
        assert desk.decide(id, Verdict("approve", like_this=second), "bob")["state"] == "released"
    [standing] = queue.standing_approvals()
    assert (standing.review_id, standing.created_by) == ("both", "alice, bob")
    assert standing.most_uses == 2
    assert standing.expires_at - standing.created_at == pytest.approx(60)
    seen = SEEN_QUEUES.set(frozenset({"none"}))
    assert queue.standing_approvals() == []
    SEEN_QUEUES.reset(seen)
    queue.close()


# Races and restarts


@contextmanager
def opened(url: str) -> Iterator[Store]:
    store = Store(url)
    asyncio.run(store.open())
    yield store


@pytest.mark.parametrize("rounds", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_it_is_used_as_often_as_it_allows_whoever_asks(store_url: str, rounds: int) -> None:
    """Over four stores at once, as several workers and proxies have, exactly the allowed
    number of calls is delivered, and none after a revocation that is not counted.
    """
    put(store_url, *(replace(BOUND, id=f"held-{n}", rule_digest=f"r{n}") for n in range(rounds)))
    queue = ReviewQueue(store_url)

    async def ask(rule: str, times: int) -> int:
        store = Store(store_url)
        await store.open()
        call = [(CALL["name"], CALL["arguments"])]
        used = [await store.use_standing("key", rule, call) for _ in range(times)]
        others = await store.use_standing("other", rule, call)
        await store.aclose()
        assert others is None
        return len([each for each in used if each])

    with ThreadPoolExecutor(4) as pool:
        for number in range(rounds):
            held = queue.get(f"held-{number}")
            assert held is not None
            Desk(queue).decide(held.id, Verdict("approve", like_this=LikeThis(60, 7)), "alice")
            rules = [f"r{number}"] * 4
            counts = list(pool.map(lambda rule: asyncio.run(ask(rule, 10)), rules))
            assert sum(counts) == 7
    assert {each.uses for each in queue.standing_approvals(is_all=True)} == {7}
    queue.close()


def test_two_workers_share_it_and_a_restart_keeps_it(
    tmp_path: Path, upstream: FaultyUpstream
) -> None:
    """Workers deliver calls until the allowed number is used up,
    also after a restart; `pinocchio reviews` lists and revokes.
    """
    config = tmp_path / "proxy.yaml"
    with running(tmp_path, upstream.base_url, policy=HOLD, checkpoint="fake:0.1") as workers:
        clients = workers.both()
        first = post(clients[0], body_of("Rome"))
        id = first.headers[REVIEW_ID]
        output = run_cli(
            "reviews", "approve", id, "--config", str(config), "--like-this", "30", "--uses", "4"
        )
        assert output.returncode == 0, output.stderr
        got = [post(client, body_of("Rome", f"w{at}")) for at, client in enumerate(clients)]
        assert [each.status_code for each in got] == [200, 200]
    with running(tmp_path, upstream.base_url, policy=HOLD, checkpoint="fake:0.1") as workers:
        clients = workers.both()
        with ThreadPoolExecutor(6) as pool:
            statuses = [
                each.status_code
                for each in pool.map(
                    lambda n: post(clients[n % 2], body_of("Rome", f"again {n}")), range(6)
                )
            ]
        assert sorted(statuses) == [200, 200, 422, 422, 422, 422]
        listed = run_cli("reviews", "list", "--standing", "--state", "all", "--config", str(config))
        assert "4 of 4 used" in listed.stdout
        standing = listed.stdout.split()[0]
        ended = run_cli("reviews", "reject", standing, "--config", str(config))
        assert ended.stdout == f"{standing} is revoked\n"
    verified = run_cli("audit", "verify", "--config", str(config))
    assert verified.returncode == 0, verified.stdout


def test_the_audit_chain_covers_it(tmp_path: Path) -> None:
    """The audit chain shows when somebody gives a used-up approval more uses in the database."""
    url = f"sqlite:///{tmp_path}/held.db"
    put(url, replace(BOUND, id="a"))
    queue = ReviewQueue(url)
    Desk(queue).decide("a", Verdict("approve", like_this=LikeThis(60, 1)), "alice")
    queue.close()
    (tmp_path / "proxy.yaml").write_text(f"store: {url}\n")
    config = ("--config", str(tmp_path / "proxy.yaml"))
    assert run_cli("audit", "verify", *config).returncode == 0
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(standing_approvals.update().values(most_uses=999))
    engine.dispose()
    found = run_cli("audit", "verify", *config)
    assert found.returncode != 0
    assert "standing_approvals" in found.stdout + found.stderr


# In the console


def test_the_console_covers_and_revokes(proxy: LiveProxy) -> None:
    """The form offers the call's arguments, and the queue lists approvals with a button."""
    id = held_id(proxy, "Pisa p=0.1")
    with logged_in(proxy) as client:
        page = client.get(f"/console/reviews/{id}").text
        assert 'name="any.city"' in page
        csrf = page.split('name="csrf" value="')[1].split('"')[0]
        form = {"csrf": csrf, "opened": "0", "verdict": "approve", "confirmed": "yes"}
        form |= {"like_this": "yes", "minutes": "5", "uses": "2", "any.city": "yes"}
        assert client.post(f"/console/reviews/{id}/verdict", data=form).status_code == 303
        assert actions(proxy, "Bari p=0.1", "by the console") == "deliver"
        [standing] = [each for each in listed(proxy) if each["review_id"] == id]
        assert standing["most_uses"] == 2
        assert "1 of 2 used" in client.get("/console/reviews").text
        url = f"/console/standing/{standing['id']}/revoke"
        assert client.post(url, data={"csrf": "wrong"}).status_code == 403
        assert client.post(url, data={"csrf": csrf}).status_code == 303
    assert actions(proxy, "Brno p=0.1", "after the console") == "hold"
