"""Requests of every kind that can be computed, with right and wrong replies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from calibrator.readers.evidence.computed import Verdict, verify
from calibrator.readers.evidence.conversation import read_conversation

FOLDER = Path(__file__).parent / "cases"
TABLES = sorted(FOLDER.glob("*.yaml"))


def cases() -> list[Any]:
    """Return each reply of the tables with its conversation and the wanted verdict."""
    found = []
    for table in TABLES:
        for case in yaml.safe_load(table.read_text()):
            messages = [{"role": "system", "content": case["system"]}] if "system" in case else []
            messages += [{"role": role, "content": text} for role, text in case.get("earlier", ())]
            messages.append({"role": "user", "content": case["ask"]})
            for wanted in ("right", "open", "wrong"):
                for reply in case.get(wanted, ()):
                    name = f"{table.stem}: {case['ask'][:40]!r} {reply[:30]!r}"
                    found.append(pytest.param(messages, reply, wanted, case.get("task"), id=name))
    return found


def judged(messages: list[dict[str, str]], reply: str) -> Verdict | None:
    """Return the verdict on the reply to a conversation."""
    return verify(read_conversation(messages), reply)


@pytest.mark.parametrize(("messages", "reply", "wanted", "task"), cases())
def test_a_reply_gets_the_verdict_of_the_table(
    messages: list[dict[str, str]], reply: str, wanted: str, task: str | None
) -> None:
    """Right replies are never called wrong, wrong ones are, and open ones get no verdict."""
    verdict = judged(messages, reply)
    if wanted == "open":
        assert verdict is None
    elif wanted == "wrong":
        assert verdict is not None
        assert not verdict.is_right
    elif task == "json":
        assert verdict is None or verdict.is_right
    else:
        assert verdict is not None
        assert verdict.is_right
    if verdict is not None:
        assert verdict.reason
        assert task is None or verdict.task == task
