"""`/pinocchio/v1/calls`: calls that an agent's framework stopped, decided on at the desk."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from pinocchio.desk import Desk as AgentsDesk
from pinocchio.desk import DeskError
from tests.conftest import StartProxy
from tests.running.client_keys import OWN_KEY, make_key, wait_until_known
from tests.running.desk_client import DESK, bearer, decide, scraped, value
from tests.running.desk_client import make_key as make_reviewer
from tests.running.live_proxy import Json, LiveProxy, error_of
from tests.sharing.captured_logs import capture_logs

CALLS = "/pinocchio/v1/calls"
TOOL: Json = {
    "type": "function",
    "function": {
        "name": "refund",
        "parameters": {"type": "object", "properties": {"amount": {"type": "number"}}},
    },
}
MESSAGES: list[Json] = [
    {"role": "system", "content": "You refund orders."},
    {"role": "user", "content": "Refund order A-1."},
]
WATCH = "version: 1\nname: calls\nmode: shadow\ndefault: deliver\n"


@pytest.fixture
def proxy(start_proxy: StartProxy) -> LiveProxy:
    return start_proxy(policy=WATCH, **DESK)


def body(id: str, amount: Any = 84.2, **fields: Any) -> Json:
    call = {"id": id, "name": "refund", "arguments": {"amount": amount}}
    return {"call": call, "messages": MESSAGES, "tools": [TOOL], **fields}


def hold(proxy: LiveProxy, id: str, **fields: Any) -> Json:
    reply = proxy.http.post(CALLS, json=body(id, **fields))
    assert reply.status_code == 200, reply.text
    found: Json = reply.json()
    return found


def verdict(proxy: LiveProxy, id: str, wait_s: float = 0) -> Json:
    found: Json = proxy.http.get(f"{CALLS}/{id}", params={"wait_s": wait_s}).json()
    return found


def test_a_call_waits_at_the_desk_with_its_conversation(proxy: LiveProxy) -> None:
    """Such a call waits at the desk like one that a policy holds, and the agent gets its id."""
    with capture_logs() as lines:
        waiting = hold(proxy, "shown")
    assert (waiting["state"], waiting["verdict"]) == ("open", None)
    assert [line["review_id"] for line in lines if line["event"] == "call_held"] == [
        waiting["review_id"]
    ]
    review = proxy.desk.get(f"/pinocchio/v1/reviews/{waiting['review_id']}").json()
    assert (review["state"], review["queue"]) == ("open", "review")
    assert [turn["role"] for turn in review["conversation"]] == ["system", "user"]
    [call] = review["calls"]
    assert (call["name"], call["arguments"]) == ("refund", {"amount": 84.2})
    assert review["question"] == "Refund order A-1."


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        ({"verdict": "approve"}, ("released", "approve", {"amount": 84.2}, None)),
        (
            {"verdict": "edit", "content": {"arguments": {"amount": 8.42}}},
            ("released", "edit", {"amount": 8.42}, None),
        ),
        ({"verdict": "reject", "note": "too much"}, ("rejected", "reject", None, "too much")),
    ],
)
def test_the_verdict_is_fetched(
    proxy: LiveProxy, decision: Json, expected: tuple[Any, ...]
) -> None:
    """The verdict has the call as it may run, or the reviewer's note, as often as it is fetched."""
    id = hold(proxy, f"fetched-{decision['verdict']}")["review_id"]
    assert decide(proxy, id, **decision).status_code == 200
    for _ in range(2):
        answer = verdict(proxy, id)
        found = (answer["state"], answer["verdict"], answer.get("arguments"), answer["message"])
        assert found == expected


def test_a_verdict_can_be_waited_for(proxy: LiveProxy) -> None:
    """A waiting request gets the verdict within a moment, or an answer when its time is over."""
    id = hold(proxy, "waited")["review_id"]
    assert verdict(proxy, id, 0.05)["state"] == "open"
    later = threading.Timer(0.2, decide, (proxy, id), {"verdict": "approve"})
    later.start()
    began = time.monotonic()
    assert verdict(proxy, id, 20)["verdict"] == "approve"
    assert time.monotonic() - began < 10
    later.join()


def test_one_call_is_held_once(proxy: LiveProxy) -> None:
    """One call is held once however often it is sent, also at once or after its decision."""
    with ThreadPoolExecutor(8) as pool:
        ids = {each["review_id"] for each in pool.map(lambda _: hold(proxy, "once"), range(16))}
    assert len(ids) == 1
    decide(proxy, *ids, verdict="approve")
    assert hold(proxy, "once")["verdict"] == "approve"


@pytest.mark.parametrize(
    "change",
    [
        {"messages": [*MESSAGES[:1], {"role": "user", "content": "Refund order A-2."}]},
        {"messages": [*MESSAGES, {"role": "user", "content": "And again."}]},
        {"amount": 9000},
        {"amount": 84.20000000000001},
        {"amount": True},
        {"amount": "1"},
        {"amount": 1.0},
        {"arguments": '{"amount": 1, "amount": 9000}'},
        {"name": "refund_all"},
        {"run": "of Bob"},
    ],
)
def test_an_approval_is_for_this_call_in_this_conversation(proxy: LiveProxy, change: Json) -> None:
    """The same id with another call or conversation is another call, since servers reuse ids."""
    id = f"functions.refund:{time.monotonic_ns()}"
    call = hold(proxy, id, amount=1)
    decide(proxy, call["review_id"], verdict="approve")
    other = body(id, change.get("amount", 1), **{k: v for k, v in change.items() if k != "amount"})
    of_call = {key: other.pop(key) for key in ("name", "arguments") if key in other}
    other["call"] |= of_call
    found = proxy.http.post(CALLS, json=other).json()
    assert (found["state"], found["verdict"]) == ("open", None)
    assert found["review_id"] != call["review_id"]


@pytest.mark.parametrize("how", ["POST", "GET"])
def test_an_approval_is_handed_out_to_one_run(
    proxy: LiveProxy, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """After a while the same call needs a new approval, unless the client names the same run."""
    monkeypatch.setattr("proxy.holds.interrupted_calls.AGAIN_S", 0.0)
    for fields in ({}, {"run": "thread-7"}):
        id = f"one-run-{how}-{len(fields)}"
        first = hold(proxy, id, **fields)["review_id"]
        decide(proxy, first, verdict="approve")
        answer = hold(proxy, id, **fields) if how == "POST" else verdict(proxy, first)
        assert answer["verdict"] == "approve"
        again = hold(proxy, id, **fields)
        assert (again["review_id"] == first) is bool(fields)
        assert again["verdict"] == ("approve" if fields else None)
        assert verdict(proxy, first)["verdict"] == "approve"  # for a client that has its id
        if fields:
            assert hold(proxy, id, run="thread-8")["review_id"] != first


def test_a_reply_that_made_no_such_call_says_nothing_of_it(proxy: LiveProxy) -> None:
    """A call that the named reply did not make has no confidence."""
    reply = proxy.ask("p=0.97", "Say hello.")
    request_id = reply.headers["x-pinocchio-request-id"]
    assert float(reply.headers["x-pinocchio-confidence"]) == 0.97
    assert hold(proxy, "of nobody", request_id=request_id)["confidence"] is None


def test_a_call_is_its_keys(proxy: LiveProxy) -> None:
    """Another key has its own call under the same id, and learns nothing of this one."""
    id = hold(proxy, "owned")["review_id"]
    stranger = {"authorization": "Bearer sk-stranger"}
    reply = proxy.http.get(f"{CALLS}/{id}", headers=stranger)
    assert (reply.status_code, error_of(reply)["code"]) == (404, "held_call_not_found")
    other = proxy.http.post(CALLS, json=body("owned"), headers=stranger).json()
    assert other["review_id"] != id
    reply = httpx.post(proxy.url + CALLS, json=body("owned"), trust_env=False)
    assert (reply.status_code, error_of(reply)["code"]) == (400, "no_key")


def test_confidence_and_label_are_those_of_the_recorded_reply(proxy: LiveProxy) -> None:
    """Confidence and label are the recorded reply's of the same key; a client's own are refused."""
    reply = proxy.ask("p=0.3", "tools", tools=[TOOL])
    request_id = reply.headers["x-pinocchio-request-id"]
    [call] = reply.json()["choices"][0]["message"]["tool_calls"]
    sent = body(call["id"], request_id=request_id)
    sent["call"] |= {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
    answer = proxy.http.post(CALLS, json=sent).json()
    assert answer["confidence"] == float(reply.headers["x-pinocchio-confidence"])
    decide(proxy, answer["review_id"], verdict="reject", correct=False)
    review = proxy.desk.get(f"/pinocchio/v1/reviews/{answer['review_id']}").json()
    assert review["request_id"] == request_id
    assert [label["correct"] for label in review["labels"]] == [False]
    stranger = {"authorization": "Bearer sk-stranger"}
    assert proxy.http.post(CALLS, json=sent, headers=stranger).json()["confidence"] is None
    refused = proxy.http.post(CALLS, json=body("said", confidence=0.99))
    assert error_of(refused)["param"] == "confidence"


def test_nobody_in_time_is_a_rejection(proxy: LiveProxy) -> None:
    """An expired call is rejected, as with a policy's hold."""
    id = hold(proxy, "late", expires_s=0.05)["review_id"]
    time.sleep(0.1)
    answer = verdict(proxy, id)
    assert (answer["state"], answer["verdict"]) == ("expired", "reject")


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"call": "refund"}, "call"),
        ({"call": {"id": "", "name": "f", "arguments": {}}}, "call.id"),
        ({"call": {"id": "a", "name": 3, "arguments": {}}}, "call.name"),
        ({"call": {"id": "a", "name": "f", "arguments": "[1]"}}, "call.arguments"),
        ({"call": {"id": "a", "name": "f", "arguments": {}, "x": 1}}, "call.x"),
        ({"messages": ["hello"]}, "messages"),
        ({"tools": {}}, "tools"),
        ({"queue": 3}, "queue"),
        ({"expires_s": True}, "expires_s"),
        ({"expires_s": 1e12}, "expires_s"),
        ({"request_id": ["req"]}, "request_id"),
        ({"approvals": 0}, "approvals"),
        ({"approvals": 6}, "approvals"),
        ({"approvals": True}, "approvals"),
    ],
)
def test_what_has_another_shape_is_refused(proxy: LiveProxy, change: Json, param: str) -> None:
    """A body of another shape is refused with the member's name."""
    reply = proxy.http.post(CALLS, json=body("shaped") | change)
    assert (reply.status_code, error_of(reply)["param"]) == (400, param)


def test_a_wait_is_a_number(proxy: LiveProxy) -> None:
    """A wait that is no number is refused."""
    reply = proxy.http.get(f"{CALLS}/chatcmpl-x", params={"wait_s": "long"})
    assert (reply.status_code, error_of(reply)["param"]) == (400, "wait_s")


def test_two_people_approve_a_call(proxy: LiveProxy) -> None:
    """Where the agent asks for two approvals, alice's two keys
    are one of them. An edit of hers needs bob, who has read it.
    """
    keys = {name: make_reviewer(proxy, "reviewer", name) for name in ("alice", "Alice", "bob")}
    desk = AgentsDesk(proxy.base_url, "sk-client", approvals={"refund": 2})
    call = desk.hold("two", "refund", {"amount": 84.2}, MESSAGES)
    assert (call.is_open, call.approvals) == (True, {"needed": 2, "given": 0})
    edit = {"arguments": {"amount": 8.42}}
    assert decide(proxy, call.review_id, keys["Alice"], verdict="approve").status_code == 200
    edited = decide(proxy, call.review_id, keys["alice"], verdict="edit", content=edit).json()
    assert edited["state"] == "open"
    call = desk.verdict(call.review_id, wait_s=0.05)
    assert (call.is_open, call.arguments, call.approvals) == (True, None, {"needed": 2, "given": 1})
    again = {"verdict": "approve", "revision": edited["revision"]}
    assert decide(proxy, call.review_id, keys["Alice"], **again).json()["state"] == "open"
    assert decide(proxy, call.review_id, keys["bob"], **again).json()["state"] == "released"
    done = desk.hold("two", "refund", {"amount": 84.2}, MESSAGES)
    assert (done.verdict, done.arguments) == ("edit", {"amount": 8.42})
    assert desk.hold("one", "look_up", {}, MESSAGES).approvals == {"needed": 1, "given": 0}


def test_nobody_gets_for_two_what_one_has_approved(proxy: LiveProxy) -> None:
    """The first request's number of approvals holds: one that asks for
    more is refused, and one that asks for fewer waits for as many.
    """
    one, two = (AgentsDesk(proxy.base_url, "sk-client", approvals=count) for count in (1, 2))
    call = one.hold("few", "refund", {}, MESSAGES)
    for _ in range(2):
        with pytest.raises(DeskError, match="held until 1 approve") as caught:
            two.hold("few", "refund", {}, MESSAGES)
        assert (caught.value.status, caught.value.code) == (400, "call_differs")
        decide(proxy, call.review_id, verdict="approve")
    strict = two.hold("many", "refund", {}, MESSAGES)
    assert one.hold("many", "refund", {}, MESSAGES).approvals == {"needed": 2, "given": 0}
    decide(proxy, strict.review_id, verdict="approve")
    assert one.verdict(strict.review_id).is_open


def test_an_agent_says_where_a_call_goes_on_to(proxy: LiveProxy) -> None:
    """An agent may name the queue and the time for its calls to move on, both or neither."""
    desk = AgentsDesk(
        proxy.base_url, "sk-client", expires_s=3600, escalate_after_s=600, escalate_to="leads"
    )
    id = desk.hold("on", "refund", {}, MESSAGES).review_id
    escalation = proxy.desk.get(f"/pinocchio/v1/reviews/{id}").json()["escalation"]
    assert escalation["to"] == "leads"
    assert escalation["at"] == pytest.approx(time.time() + 600, abs=30)
    with pytest.raises(ValueError, match="go together"):
        AgentsDesk(proxy.base_url, "sk-client", escalate_to="leads")


@pytest.mark.parametrize("rounds", [5, pytest.param(100, marks=pytest.mark.slow)])
def test_a_call_is_released_by_two_people_however_they_race(
    start_proxy: StartProxy, store_url: str, rounds: int
) -> None:
    """Over two proxies' desks, with two keys of alice's and one of bob's at the same
    time, a call is released once and never by one person, on SQLite and PostgreSQL.
    """
    proxies = [start_proxy(policy=WATCH, store=store_url, **DESK) for _ in range(2)]
    names = ("alice", "ALICE", "alice", "bob")
    keys = [make_reviewer(proxies[0], "reviewer", name) for name in names]
    agents = [AgentsDesk(each.base_url, "sk-client", approvals=2) for each in proxies]
    for number in range(rounds):
        id = agents[0].hold(f"raced-{number}", "refund", {}, MESSAGES).review_id
        count = 3 if number % 2 else 4  # without bob, then with him
        with ThreadPoolExecutor(count) as pool:
            at = [(proxies[n % 2], id, keys[n]) for n in range(count)]
            list(pool.map(lambda each: decide(*each, verdict="approve"), at))
        answer = agents[1].verdict(id)
        assert answer.approvals == {"needed": 2, "given": count - 2}
        assert answer.verdict == ("approve" if count == 4 else None)


def test_calls_are_counted(start_proxy: StartProxy) -> None:
    """Each call is counted once, by whether it has a number."""
    proxy = start_proxy(policy=WATCH.replace("calls", "counted"), **DESK)
    for _ in range(2):
        hold(proxy, "counted")
    found = scraped(proxy.desk)
    assert value(found, "pinocchio_interrupted_calls_total", scored="false") == 1


def test_limits_of_keys_hold(start_proxy: StartProxy) -> None:
    """A key's `max_held` limits its waiting calls."""
    sections: dict[str, Any] = {"keys": "required", "upstream": {"api_key": OWN_KEY}, **DESK}
    proxy = start_proxy(policy=WATCH, **sections)
    secret, _ = make_key(proxy.store_path, max_held=1)
    wait_until_known(proxy.base_url, secret)
    key = bearer(secret)
    assert proxy.http.post(CALLS, json=body("a"), headers=key).status_code == 200
    full = proxy.http.post(CALLS, json=body("b"), headers=key)
    assert (full.status_code, error_of(full)["code"]) == (503, "too_many_held")
    assert proxy.http.post(CALLS, json=body("a")).status_code == 401


def test_two_proxies_on_one_store_share_a_call(start_proxy: StartProxy, store_url: str) -> None:
    """Two proxies on one store hold a call once; a client that waits at one gets the other's
    decision.

    On SQLite and PostgreSQL.
    """
    first, second = (start_proxy(policy=WATCH, store=store_url, **DESK) for _ in range(2))
    for proxy in (first, second):  # FastAPI builds one application at a time in a process
        hold(proxy, "before")
    with ThreadPoolExecutor(8) as pool:
        at = [(first, second)[number % 2] for number in range(12)]
        ids = {answer["review_id"] for answer in pool.map(lambda each: hold(each, "shared"), at)}
    [id] = ids
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(verdict, first, id, 20)
        assert decide(second, id, verdict="approve").status_code == 200
        assert waiting.result()["verdict"] == "approve"
    assert [hold(each, "shared")["verdict"] for each in (first, second)] == ["approve"] * 2
    other = second.http.post(CALLS, json=body("shared", amount=9000)).json()
    assert (other["review_id"] != id, other["verdict"]) == (True, None)
