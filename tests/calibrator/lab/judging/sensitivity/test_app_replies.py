"""Our own app replies."""

from __future__ import annotations

import ast
import json
import re
import sqlite3
from collections import Counter

import pytest

from calibrator.lab.judging.sensitivity import AppReplies, app_replies
from calibrator.lab.judging.sensitivity.app_replies import APPS
from calibrator.metrics.metrics import auroc

SCHEMAS = {
    "code-05": "CREATE TABLE member (id, name, joined); CREATE TABLE loan (id, member_id);",
    "code-06": "CREATE TABLE sensor (id, room, kind); CREATE TABLE reading (sensor_id, at, value);",
    "code-14": "CREATE TABLE orders (id, customer_id, total, created_at);",
    "code-19": "CREATE TABLE price (product, day, amount);",
}


def of(app: str) -> list[AppReplies]:
    return [one for one in app_replies() if one.app == app and not one.edition]


def test_there_are_sixty_conversations_of_each_kind() -> None:
    """There are sixty conversations of each kind, a third in each edition, with two replies."""
    assert Counter(one.app for one in app_replies()) == dict.fromkeys(APPS, 60)
    assert len({one.id for one in app_replies()}) == 300
    editions = Counter(one.edition for one in app_replies())
    assert editions == dict.fromkeys(("", "second", "third"), 100)
    for one in app_replies():
        assert all((one.right.strip(), one.wrong.strip(), one.fault))
        assert one.right != one.wrong
        assert one.messages[-1]["role"] == "user"


def test_a_support_bot_has_a_policy_in_its_system_message() -> None:
    """The system message of a support bot has 150 to 400 words."""
    for one in of("support"):
        assert one.messages[0]["role"] == "system"
        assert 150 <= len(one.messages[0]["content"].split()) <= 400, one.id


def test_passages_are_in_the_system_message_for_one_half() -> None:
    """Passages are in the system message for one half, and in the user's for the other."""
    first = Counter(one.messages[0]["role"] for one in of("rag"))
    assert first == {"system": 10, "user": 10}


def test_right_json_can_be_read() -> None:
    """A right reply in JSON is one JSON value."""
    for one in of("json"):
        assert json.loads(one.right)


def code_of(reply: str) -> str:
    fenced = re.search(r"```\w*\n(.*?)```", reply, re.DOTALL)
    return fenced[1] if fenced else reply


def test_right_python_can_be_read() -> None:
    """Python in a right reply has no syntax error."""
    count = 0
    for one in of("code"):
        if "```python" in one.right:
            count += bool(ast.parse(code_of(one.right)))
    assert count >= 6


@pytest.mark.parametrize("id", SCHEMAS)
def test_right_sql_fits_its_schema(id: str) -> None:
    """SQLite compiles the query of a right reply against the tables of the request."""
    [one] = (one for one in app_replies() if one.id == id)
    connection = sqlite3.connect(":memory:")
    connection.executescript(SCHEMAS[id])
    connection.execute(f"EXPLAIN {code_of(one.right)}")
    connection.close()


@pytest.mark.parametrize("app", APPS)
def test_length_does_not_reveal_the_label(app: str) -> None:
    """The length of a reply does not reveal whether it is right."""
    lengths = [len(text) for one in of(app) for text in (one.right, one.wrong)]
    assert 0.35 <= auroc([1, 0] * len(of(app)), lengths) <= 0.65
