"""What a reviewer sees of a waiting call: tool, arguments, marks, rule and reason."""

from __future__ import annotations

import json
import re
from subprocess import CompletedProcess
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from pinocchio.desk import Desk as AgentsDesk
from pinocchio.desk import DeskError
from policies import pack_text
from proxy.upstreams.demo.demo import rows
from tests.conftest import StartProxy
from tests.running.browser import Visit, visiting
from tests.running.desk_client import DESK, decide, logged_in
from tests.running.live_proxy import LiveProxy, run_cli, until

POLICY = """
version: 1
name: calls
rules:
  - name: irreversible tools
    when:
      tools: [send_*, {name: "refund*", arguments: {amount: {above: 5}}}]
      confidence: {below: 0.9}
    then: {hold: {queue: approvals, reply: error}}
  - name: sure
    when: {confidence: {at_least: 0.4}}
    then: deliver
default: {hold: {queue: review}}
"""
QUESTION = "On order 48213, please give the customer back just the shipping costs of 6.90 euros."
ODD = "not in the conversation, differs from 6.9"


@pytest.fixture(scope="module")
def proxy(start_proxy: StartProxy) -> LiveProxy:
    return start_proxy(policy=POLICY, **DESK)


@pytest.fixture(scope="module")
def refund(proxy: LiveProxy) -> str:
    """Return the id of the demo's refund of ten times the amount asked for.

    It is held at a confidence of 0.5.
    """
    [tools] = {json.dumps(list(row.tools)) for row in rows() if row.question == QUESTION}
    held = proxy.ask(QUESTION, "demo", tools=json.loads(tools))
    assert held.status_code == 422, held.text
    id = str(held.headers["x-pinocchio-review-id"])
    proxy.recorded(held.headers["x-pinocchio-request-id"], "facts")  # once it is written
    return id


def review(proxy: LiveProxy, id: str) -> dict[str, Any]:
    found: dict[str, Any] = proxy.desk.get(f"/pinocchio/v1/reviews/{id}").json()
    return found


def items(proxy: LiveProxy, **query: str) -> dict[str, dict[str, Any]]:
    found = proxy.desk.get("/pinocchio/v1/reviews", params=query)
    assert found.status_code == 200, found.text
    return {each["id"]: each for each in found.json()["items"]}


def test_the_queue_has_the_call_that_waits(proxy: LiveProxy, refund: str) -> None:
    """The queue shows tool and arguments, marks the amount that nobody named, and the pattern."""
    item = items(proxy)[refund]
    assert item["calls"] == [
        {
            "name": "refund_order",
            "arguments": {"order_id": "48213", "amount": 69.0},
            "marks": {"amount": ODD},
            "risk": "refund_order matches refund*, amount above 5",
            "level": "medium",
            "reasons": ["the tool's name says refund", "the user asked for it"],
        }
    ]


def test_why_names_the_pattern_and_the_number(proxy: LiveProxy, refund: str) -> None:
    """The reasons name the pattern with its call, and the number with its threshold."""
    [matched] = [each for each in review(proxy, refund)["why"] if each["verdict"] == "matched"]
    assert matched["reasons"] == [
        "hold",
        "refund_order matches refund*, amount above 5",
        "confidence 0.5000 is below 0.9",
    ]


def test_the_number_is_shown_with_its_threshold(proxy: LiveProxy, refund: str) -> None:
    """The threshold is the deciding rule's; for the default, the one that was not reached."""
    assert (items(proxy)[refund]["threshold"], items(proxy)[refund]["is_below_threshold"]) == (
        0.9,
        True,
    )
    id = str(proxy.ask("p=0.2").headers["x-pinocchio-review-id"])
    item = items(proxy)[id]
    assert (item["threshold"], item["is_below_threshold"], item["calls"]) == (0.4, True, [])


def test_the_console_shows_it_in_the_queue(proxy: LiveProxy, refund: str, visit: Visit) -> None:
    """The row has the call with its marks, in the colour of the
    rule's threshold; the reply's page has it too, with the reasons.
    """
    page = visit.page
    page.goto("/console/reviews")
    row = page.locator(f"li[data-id={refund}]")
    expect(row.locator(".call-line")).to_contain_text('refund_order(order_id="48213", amount=69.0')
    expect(row.locator("mark")).to_contain_text("amount=69.0")
    expect(row.locator(".risky")).to_have_attribute("title", re.compile(r"matches refund\*"))
    expect(row.locator(".confidence.low")).to_have_attribute("title", re.compile("below 0.9"))
    row.locator("a").click()
    expect(page.locator(".score .big.low")).to_have_text("0.50")
    expect(page.locator(".score")).to_contain_text("Below the rule's threshold, 0.9")
    expect(page.locator(".reply dd mark")).to_have_text("69.0")
    expect(page.locator(".reply figcaption .tag")).to_contain_text("matches refund*")
    expect(page.locator(".why")).to_contain_text("confidence 0.5000 is below 0.9")
    expect(page.locator(".doubts")).to_contain_text("value not in conversation: amount")


def test_an_agents_own_threshold_is_shown(proxy: LiveProxy, visit: Visit) -> None:
    """The number at which a framework stopped a call is shown with as many digits as it needs.

    Page, queue, API and command line show it.
    """
    tool = {"type": "function", "function": {"name": "ship", "parameters": {}}}
    reply = proxy.ask("p=0.6985", "tools", tools=[tool])
    request_id = reply.headers["x-pinocchio-request-id"]
    [call] = reply.json()["choices"][0]["message"]["tool_calls"]
    messages = [{"role": "user", "content": "p=0.6985"}]
    desk = AgentsDesk(proxy.base_url, "sk-client", below=0.7)
    made = call["function"]["name"], call["function"]["arguments"]
    id = desk.hold(call["id"], *made, messages, request_id=request_id).review_id
    item = items(proxy)[id]
    assert (item["threshold"], item["is_below_threshold"]) == (0.7, True)
    page = visit.page
    page.goto("/console/reviews")
    number = page.locator(f"li[data-id={id}] .confidence.low")
    expect(number.locator(".figure")).to_have_text("0.699")
    expect(number).to_have_attribute("title", "0.6985, below 0.7, the agent's threshold")
    page.goto(f"/console/reviews/{id}")
    expect(page.locator(".score")).to_contain_text("Below the agent's threshold, 0.7")
    expect(page.locator(".score")).to_contain_text("0.6985")
    assert (
        "confidence 0.699 (below the agent's threshold, 0.7)" in listing(proxy, "show", id).stdout
    )
    assert proxy.http.get(f"/pinocchio/v1/calls/{id}").json()["confidence"] == 0.6985
    for wrong in (1.1, "0.7", True):
        with pytest.raises(DeskError, match="'below' must be a confidence from 0 to 1"):
            AgentsDesk(proxy.base_url, "sk-client", below=wrong).hold("1", *made, messages)


def test_what_was_done_is_seen_on_a_phone(proxy: LiveProxy, browser: Browser) -> None:
    """On a narrow screen, number and action of each exchange are visible."""
    reply = proxy.ask("p=0.2", "say " + "a-model-with-a-long-name " * 3)
    proxy.recorded(reply.headers["x-pinocchio-request-id"], "facts")  # once it is written
    with visiting(browser, proxy, viewport={"width": 390, "height": 844}) as visit:
        visit.page.goto("/console/traffic")
        for part in (".tag", ".confidence"):
            found = visit.page.locator(f".traffic tbody {part}")
            expect(found.first).to_be_visible()
            ends = found.evaluate_all("all => all.map(each => each.getBoundingClientRect().right)")
            assert max(ends) <= 390


def test_two_rows_that_ask_the_same_differ_in_the_call(proxy: LiveProxy) -> None:
    """A delivered number is shown as sure by its own rule, not by fixed thresholds."""
    with logged_in(proxy) as client:
        proxy.ask("p=0.45")
        until(lambda: "confidence high" in client.get("/console/traffic").text)
        assert "confidence mid" not in client.get("/console/traffic").text


def test_a_state_has_one_name(proxy: LiveProxy, refund: str) -> None:
    """API, console and command line say `open`, and the API accepts no other name."""
    state = "open"
    assert proxy.desk.get("/pinocchio/v1/reviews?state=held").status_code == 422
    assert items(proxy, state=state)[refund]["state"] == "open"
    with logged_in(proxy) as client:
        page = client.get(f"/console/reviews?state={state}").text
        assert refund in page
        traffic = client.get("/console/traffic").text
        assert "waits" not in traffic
        assert "<td>open</td>" in traffic
        assert "held_for_review" not in traffic, "the filter calls it `hold`"
        assert f'/console/reviews/{refund}"><span class="tag hold">hold</span>' in traffic
    listed = listed_by_command(proxy, "--state", state)
    assert f'refund_order(order_id="48213", amount=69.0 [{ODD}])' in listed
    facts = json.loads(listed_by_command(proxy, "--json").splitlines()[-1])
    assert facts["state"] == "open"


def test_the_command_line_names_a_call_as_the_api_does(proxy: LiveProxy, refund: str) -> None:
    """The command line calls a tool `name` as the API does, and adds the call's digest."""
    every = [json.loads(line) for line in listed_by_command(proxy, "--json").splitlines()]
    [call] = next(each["calls"] for each in every if each["id"] == refund)
    digest = call.pop("arguments_sha256")
    assert (len(digest), [call]) == (64, items(proxy)[refund]["calls"])
    lines = listed_by_command(proxy).splitlines()
    [at] = [number for number, line in enumerate(lines) if line.startswith(refund)]
    assert lines[at + 1].endswith(f"  [{call['risk']}]")


def test_a_policy_that_the_configuration_lacks_is_named(proxy: LiveProxy, refund: str) -> None:
    """Other commands do not know a policy of `serve --policy`: they find no risk and say why."""
    assert listing(proxy, "list").stderr == ""
    for arguments in (("list",), ("show", refund)):
        done = listing(proxy, *arguments, policy="observe")
        assert "policy calls is not in this configuration (it may have been" in done.stderr
        assert "matches refund" not in done.stdout


def test_a_pack_is_known_without_a_configuration(start_proxy: StartProxy) -> None:
    """After `serve --policy doubtful-calls` other commands find the rule, without a warning."""
    proxy = start_proxy(policy=pack_text("doubtful-calls"))
    assert proxy.ask("p=0.1", "tools").headers["x-pinocchio-action"] == "hold"
    done = listing(proxy, "list", policy="observe")
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 2


def test_a_rule_on_marks_names_those_that_it_found(start_proxy: StartProxy) -> None:
    """A rule on marks names the marks that it found, in the queue and as the reason."""
    proxy = start_proxy(policy=pack_text("doubtful-calls"), **DESK)
    [tools] = {json.dumps(list(row.tools)) for row in rows() if row.question == QUESTION}
    held = proxy.ask(QUESTION, "demo", tools=json.loads(tools))
    id = str(held.headers["x-pinocchio-review-id"])
    proxy.recorded(held.headers["x-pinocchio-request-id"], "facts")  # once it is written
    [call] = items(proxy)[id]["calls"]
    found = "refund_order matches marked amount not_in_conversation"
    assert (call["marks"], call["risk"]) == ({"amount": ODD}, found)
    [matched] = [each for each in review(proxy, id)["why"] if each["verdict"] == "matched"]
    assert found in matched["reasons"]


def listed_by_command(proxy: LiveProxy, *options: str) -> str:
    return listing(proxy, "list", *options).stdout


def listing(
    proxy: LiveProxy, *arguments: str, policy: str = "policy.yaml"
) -> CompletedProcess[str]:
    folder = proxy.store_path.parent
    (folder / "policy.yaml").write_text(POLICY)
    config = folder / "listing.yaml"
    config.write_text(f"store: sqlite:///{proxy.store_path}\npolicies: {policy}\n")
    done = run_cli("reviews", *arguments, "--config", str(config))
    assert done.returncode == 0, done.stderr
    return done


def test_unknown_states_are_refused_everywhere(proxy: LiveProxy) -> None:
    """Unknown states are refused with the list of known ones."""
    assert proxy.desk.get("/pinocchio/v1/reviews?state=lost").status_code == 422
    assert "open, released, rejected, expired" in run_cli("reviews", "list", "--state", "x").stderr


def test_what_a_reviewer_changed_is_marked(proxy: LiveProxy) -> None:
    """An edited call is listed as it was sent, with the new arguments marked."""
    [tools] = {json.dumps(list(row.tools)) for row in rows() if row.question == QUESTION}
    fields = {"tools": json.loads(tools), "user": "another request"}
    id = str(proxy.ask(QUESTION, "demo", **fields).headers["x-pinocchio-review-id"])
    call = {"name": "refund_order", "arguments": {"order_id": "48213", "amount": 6.9}}
    done = decide(proxy, id, verdict="edit", content={"tool_calls": [call]})
    assert done.status_code == 200, done.text
    [listed] = items(proxy, state="released")[id]["calls"]
    assert (listed["arguments"]["amount"], listed["marks"]) == (
        6.9,
        {"amount": "changed by the reviewer"},
    )
    with logged_in(proxy) as client:
        cell = "<td>released by <bdi>admin</bdi></td>"
        until(lambda: cell in client.get("/console/traffic").text)  # the record comes after
