"""Rows for `pinocchio evaluate` from the labelled calls beside this file.

    .venv/bin/python examples/agents/labelled_calls.py > calls.jsonl
    .venv/bin/pinocchio evaluate calls.jsonl

Another file of the same form, such as `doubtful_calls.yaml`, may be given as an argument.

You can write the rows of any judged log of calls like this: `messages` and `tools` as they were
sent, the assistant's message as `response`, and whether it was `correct`.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

TASKS = Path(__file__).with_name("labelled_calls.yaml")
Json = dict[str, Any]


def rows(path: Path = TASKS) -> Iterator[Json]:
    """Yield a row for each reply, right or wrong, to the tasks of a file."""
    document = yaml.safe_load(path.read_text())
    tools = {name: _tool(name, **tool) for name, tool in document["tools"].items()}
    for task in document["tasks"]:
        replies = [(reply, 1) for reply in task["right"]] + [(reply, 0) for reply in task["wrong"]]
        for number, (reply, correct) in enumerate(replies):
            yield {
                "id": f"{task['id']}/{number}",
                "question_id": task["id"],
                "benchmark": "agent-calls",
                "domain": "tool calling",
                "messages": [*_messages(task)],
                "tools": [tools[name] for name in task["tools"]],
                "response": _reply({k: v for k, v in reply.items() if k != "why"}, "call_next"),
                "correct": correct,
            }


def _tool(name: str, does: str, takes: dict[str, str | Json]) -> Json:
    properties = {argument: _schema(kind) for argument, kind in takes.items()}
    parameters = {"type": "object", "properties": properties, "required": [*takes]}
    function = {"name": name, "description": does, "parameters": parameters}
    return {"type": "function", "function": function}


def _schema(kind: str | Json) -> Json:
    """Return an argument's schema, from its type, its allowed values, or the schema itself."""
    if isinstance(kind, dict):
        return kind
    return {"type": "string", "enum": kind.split("|")} if "|" in kind else {"type": kind}


def _messages(task: Json) -> Iterator[Json]:
    """Yield the messages that the agent has seen so far."""
    if "rules" in task:
        yield {"role": "system", "content": task["rules"]}
    for number, turn in enumerate(task["turns"]):
        if "user" in turn:
            yield {"role": "user", "content": turn["user"]}
            continue
        if "say" in turn:
            yield {"role": "assistant", "content": turn["say"]}
            continue
        yield _reply(turn["call"], f"call_{number}")
        yield {"role": "tool", "tool_call_id": f"call_{number}", "content": turn["gave"]}


def _reply(reply: Json, call_id: str) -> Json:
    """Return an assistant's message that says something or calls one tool."""
    ((name, content),) = reply.items()
    if name == "say":
        return {"role": "assistant", "content": content}
    arguments = json.dumps(content, default=str)  # a date as YYYY-MM-DD
    function = {"name": name, "arguments": arguments}
    call = {"id": call_id, "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


if __name__ == "__main__":
    for row in rows(*map(Path, sys.argv[1:])):
        print(json.dumps(row))
