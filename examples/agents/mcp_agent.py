"""A model with a remote MCP server whose tool calls are approved by confidence, or at the desk.

    OPENAI_BASE_URL=http://127.0.0.1:8000/v1 .venv/bin/python examples/agents/mcp_agent.py \
gpt-5.6 https://mcp.example.com/sse "Mail Ann that I am late."

The upstream runs the tools, and asks before it runs one. The program approves a call if the proxy's
confidence is high or a reviewer has approved it, and declines it otherwise. This needs an upstream
with `/v1/responses` and MCP servers, which the demo upstream does not have.
"""

import sys
import time
from typing import Any

from openai import OpenAI, UnprocessableEntityError

SURE = 0.3  # as in the pack `doubtful-calls`; docs/marks.md has measurements


def answer(client: OpenAI, model: str, server_url: str, question: str) -> str:
    server = {"type": "mcp", "server_label": "mail", "server_url": server_url}
    tools: list[Any] = [{**server, "require_approval": "always"}]
    request: dict[str, Any] = {"model": model, "tools": tools, "input": question}
    while True:
        response = reply_to(client, request)
        if not (approvals := list(decisions(response))):
            return response.output_text
        request |= {"previous_response_id": response.id, "input": approvals}


def reply_to(client: OpenAI, request: dict[str, Any]) -> Any:
    """Return the model's next step; wait while the desk has not decided on it."""
    while True:
        try:
            return client.responses.create(**request)
        except UnprocessableEntityError as error:
            body: Any = error.body
            if "retry_after_s" not in body:
                raise
            time.sleep(body["retry_after_s"])


def decisions(response: Any) -> Any:
    """Yield an answer to each request for approval in a response."""
    member = response.model_extra["pinocchio"]
    reviewed = {each["approval_request_id"]: each for each in member.get("approvals", ())}
    is_sure = (member["confidence"] or 0.0) >= SURE
    for item in response.output:
        if item.type == "mcp_approval_request":
            by_confidence = {"type": "mcp_approval_response", "approval_request_id": item.id}
            by_confidence |= {"approve": is_sure}
            yield reviewed.get(item.id, by_confidence)  # a reviewer's decision counts first


if __name__ == "__main__":
    print(answer(OpenAI(), *sys.argv[1:4]))
