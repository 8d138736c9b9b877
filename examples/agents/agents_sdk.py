"""The agent of `agent.py` with the OpenAI Agents SDK; a held call ends the run with an error.

    pip install openai-agents
    python examples/agents/agents_sdk.py "On order 48213, please give the customer back just the \
shipping costs of 6.90 euros."

The program then starts the run again, from its first request. If calls that are not gated come
before the held one, the model is asked for them again, too: save such runs as `agent.py` does.
"""

import asyncio
import os
import sys
from typing import Any

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from agents.tool_context import ToolContext
from openai import AsyncOpenAI, UnprocessableEntityError
from tools import perform

URL = os.environ.get("PINOCCHIO_URL", "http://127.0.0.1:8000/v1")
KEY = os.environ.get("OPENAI_API_KEY", "none needed for the demo")
ASK_AGAIN_AFTER_S = os.environ.get("AGENT_ASK_AGAIN_AFTER_S")  # by default, what the proxy says

set_tracing_disabled(True)


@function_tool
def refund_order(context: ToolContext[Any], order_id: str, amount: float) -> str:
    """Pay back an amount of an order to the customer."""
    done = {"order_id": order_id, "amount": amount}
    return perform(context.tool_call_id, "refund_order", done)


@function_tool
def set_room_temperature(context: ToolContext[Any], room: str, celsius: float) -> str:
    """Set the target temperature of a room."""
    done = {"room": room, "celsius": celsius}
    return perform(context.tool_call_id, "set_room_temperature", done)


async def main(question: str) -> None:
    client = AsyncOpenAI(base_url=URL, api_key=KEY, max_retries=8)
    model = OpenAIChatCompletionsModel(model="demo", openai_client=client)
    helper = Agent("helper", model=model, tools=[refund_order, set_room_temperature])
    last_id, messages = None, [{"role": "user", "content": question}]
    while True:
        try:
            run: Any = await Runner.run(helper, list(messages))  # type: ignore[arg-type]
            print("answer:", run.final_output)
            return
        except UnprocessableEntityError as error:
            facts: Any = error.body
            if error.code == "held_reply_rejected":
                why = facts.get("note", "no reason was given")
                print("rejected:", why, flush=True)
                text = f"A reviewer rejected your last step: {why}. Take another one."
                messages.append({"role": "user", "content": text})
                continue
            if error.code != "held_for_review":
                sys.exit(f"refused: {error.code}")  # by a policy, or nobody decided in time
            id = facts["review_id"]
            if id != last_id:
                print("held:", id, flush=True)
            last_id = id
            await asyncio.sleep(float(ASK_AGAIN_AFTER_S or facts["retry_after_s"]))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
