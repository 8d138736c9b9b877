"""A model with a remote MCP server: calls of its tools are approved by confidence, or at the desk.

    OPENAI_BASE_URL=http://127.0.0.1:8000/v1 .venv/bin/python examples/agents/mcp_agent.py \
gpt-5.6 https://mcp.example.com/sse "Mail Ann that I am late."

Upstream runs the tools, and asks before it runs one. Where the proxy is sure of the call, or a
reviewer has approved it, the approval is sent; else the call is declined. It needs an upstream with
`/v1/responses` and MCP servers, which the demo upstream has not.
"""

import sys
import time
from typing import Any

from openai import OpenAI, UnprocessableEntityError

SURE = 0.3  # as the pack `doubtful-calls`; docs/marks.md says what it was measured to stop


def answer(client: OpenAI, model: str, server_url: str, question: str) -> str:
    server = {"type": "mcp", "server_label": "mail", "server_url": server_url}
    tools: list[Any] = [{**server, "require_approval": "always"}]
    asked: dict[str, Any] = {"model": model, "tools": tools, "input": question}
    while True:
        response = reply_to(client, asked)
        if not (decided := list(decisions(response))):
            return response.output_text
        asked |= {"previous_response_id": response.id, "input": decided}


def reply_to(client: OpenAI, asked: dict[str, Any]) -> Any:
    """Return the model's next step; wait while the desk has not decided on it."""
    while True:
        try:
            return client.responses.create(**asked)
        except UnprocessableEntityError as error:
            told: Any = error.body
            if "retry_after_s" not in told:
                raise
            time.sleep(told["retry_after_s"])


def decisions(response: Any) -> Any:
    """Yield an answer to each request for approval in a response."""
    told = response.model_extra["pinocchio"]
    approved = {each["approval_request_id"]: each for each in told.get("approvals", ())}
    is_sure = (told["confidence"] or 0.0) >= SURE
    for item in response.output:
        if item.type == "mcp_approval_request":
            declined = {"type": "mcp_approval_response", "approval_request_id": item.id}
            declined |= {"approve": is_sure}
            yield approved.get(item.id, declined)  # a reviewer's word counts first


if __name__ == "__main__":
    print(answer(OpenAI(), *sys.argv[1:4]))
