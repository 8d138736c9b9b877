"""OpenAI Agents SDK: a run that stops for a person, and resumes in another process."""

import asyncio
import json
import os
import sys
from pathlib import Path

from agents import (
    Agent,
    Runner,
    RunState,
    function_tool,
    set_default_openai_api,
    set_default_openai_client,
    set_tracing_disabled,
)
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from pinocchio.openai_agents import Desk, SeenCalls, at_desk, unsure

BELOW = 0.3  # the confidence below which a person is asked

folder = Path(sys.argv[1])
folder.mkdir(exist_ok=True)
saved_run = folder / "run.json"
seen = SeenCalls()
http_client = DefaultAsyncHttpxClient(event_hooks=seen.async_hooks)
set_default_openai_client(AsyncOpenAI(http_client=http_client))
set_default_openai_api("chat_completions")
set_tracing_disabled(True)


@function_tool(needs_approval=unsure(below=BELOW, seen=seen))
def ship(parcel: int) -> str:
    """Ship a parcel by its number."""
    with (folder / "shipped.txt").open("a") as file:
        file.write(f"{parcel}\n")
    return f"shipped {parcel}"


agent = Agent("shipper", model=os.environ["MODEL"], tools=[ship])
people = int(os.environ.get("APPROVALS", "1"))  # how many have to approve a call
url, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
desk = Desk(url, key, approvals=people, below=BELOW)


async def run() -> None:
    start = "Ship all parcels."
    if saved_run.exists():  # an earlier process stopped here
        state = await RunState.from_json(agent, json.loads(saved_run.read_text()))
        start = state if at_desk(desk, state, seen=seen) else None
    if start is not None:
        result = await Runner.run(agent, start)
        saved_run.unlink(missing_ok=True)
        if not result.interruptions:
            print(result.final_output)
            return
        state = result.to_state()
        saved_run.write_text(json.dumps(state.to_json()))
        at_desk(desk, state, seen=seen)
    print("waiting for a reviewer")


asyncio.run(run())
