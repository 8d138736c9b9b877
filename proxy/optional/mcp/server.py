"""The tools as the official SDK serves them; the only module that imports it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

import structlog
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from proxy.optional.mcp.desk import DeskClient, DeskError
from proxy.optional.mcp.scoring import Json, ScoringTools, UnscorableError

log = structlog.get_logger(__name__)

INSTRUCTIONS = (
    "Pinocchio tells the probability that a reply or a tool call of a language model is correct "
    "(`confidence`, 0 to 1), what it rests on (`basis`; with `likeness` alone nothing was checked) "
    "and what speaks against it. A low number is a reason to check, or to ask a person."
)
Answered = TypeVar("Answered")


def serve(scoring: ScoringTools, desk: DeskClient | None) -> None:
    """Answer on stdin and stdout until the client closes them; without `desk` only scores."""
    server = MCPServer("pinocchio", instructions=INSTRUCTIONS, log_level="WARNING")
    _add_scores(server, scoring)
    if desk is not None:
        _add_desk(server, desk)
    server.run("stdio")


def _run_tool(tool: str, work: Callable[[], Answered], **facts: Any) -> Answered:
    """Run a tool's work, log it, and return its answer.

    Raises ToolError with a sentence that the model may read.
    """
    try:
        answer = work()
    except (UnscorableError, DeskError) as error:
        log.info("mcp_refused", tool=tool, **facts)
        raise ToolError(str(error)) from error
    confidence = answer.get("confidence") if isinstance(answer, dict) else None
    log.info("mcp", tool=tool, confidence=confidence, **facts)
    return answer


def _add_scores(server: MCPServer, scoring: ScoringTools) -> None:
    """Add the tools `score_reply` and `score_call` to the server."""

    @server.tool()
    def score_reply(
        reply: str,
        question: str | None = None,
        messages: list[Json] | None = None,
        model: str | None = None,
    ) -> Json:
        """Score how likely a reply is correct.

        Give what it answers, as `question` or as the conversation (`messages` of chat completions),
        and the `model` that answered, if that is known.
        """
        return _run_tool("score_reply", lambda: scoring.reply(reply, question, messages, model))

    @server.tool()
    def score_call(
        tool: str,
        arguments: Json,
        question: str | None = None,
        messages: list[Json] | None = None,
        tools: list[Json] | None = None,
        model: str | None = None,
    ) -> Json:
        """Score how likely a tool call is correct, before it is made.

        Give the conversation that led to it (`messages`, or a `question`), and the definitions of
        the `tools`, if they are known.
        """
        return _run_tool(
            "score_call",
            lambda: scoring.call(tool, arguments, question, messages, tools, model),
        )


def _add_desk(server: MCPServer, desk: DeskClient) -> None:
    """Add the tools `list_queue`, `read_review` and `decide` to the server."""

    @server.tool()
    def list_queue(queue: str | None = None, limit: int = 20) -> list[Json]:
        """List the held replies that wait for a decision, the least certain first."""
        return _run_tool("list_queue", lambda: desk.queue(queue, limit))

    @server.tool()
    def read_review(id: str) -> Json:
        """Return one held reply: its conversation, its editable parts, and why it was held."""
        return _run_tool("read_review", lambda: desk.review(id), review_id=id)

    @server.tool()
    def decide(
        id: str,
        verdict: Literal["approve", "edit", "reject"],
        correct: bool | None = None,
        note: str | None = None,
        content: Any = None,
        revision: str | None = None,
    ) -> Json:
        """Decide on a held reply, which is possible once.

        The verdict is `approve`, `reject` with a `note` for the client, or `edit` with the text or
        the calls in `content`. `correct` is the reviewer's label. Where several people approve,
        `revision` is the review's, if one of them has edited it.
        """
        body: Json = {"verdict": verdict, "correct": correct, "note": note}
        body |= {"content": content} if content is not None else {}
        body |= {"revision": revision} if revision is not None else {}
        return _run_tool("decide", lambda: desk.decide(id, body), review_id=id, verdict=verdict)
