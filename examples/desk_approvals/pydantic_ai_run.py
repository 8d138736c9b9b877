"""pydantic-ai: a run that defers calls to a person, and resumes in another process."""

import os
import sys
from pathlib import Path

from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from pydantic_ai import Agent, DeferredToolRequests, FunctionToolset, ModelMessagesTypeAdapter
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from pinocchio.pydantic_ai import Desk, SeenCalls, at_desk, unsure

BELOW = 0.3  # the confidence below which a person is asked

folder = Path(sys.argv[1])
folder.mkdir(exist_ok=True)
saved_run = folder / "run.json"
seen = SeenCalls()
client = AsyncOpenAI(http_client=DefaultAsyncHttpxClient(event_hooks=seen.async_hooks))


def ship(parcel: int) -> str:
    """Ship a parcel by its number."""
    with (folder / "shipped.txt").open("a") as file:
        file.write(f"{parcel}\n")
    return f"shipped {parcel}"


model = OpenAIChatModel(os.environ["MODEL"], provider=OpenAIProvider(openai_client=client))
tools = FunctionToolset([ship]).approval_required(unsure(below=BELOW, seen=seen))
agent = Agent(model, toolsets=[tools], output_type=[str, DeferredToolRequests])
people = int(os.environ.get("APPROVALS", "1"))  # how many have to approve a call
url, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
desk = Desk(url, key, approvals=people, below=BELOW)

arguments = {"user_prompt": "Ship all parcels."}
if saved_run.exists():  # an earlier process stopped here
    history = ModelMessagesTypeAdapter.validate_json(saved_run.read_bytes())
    results = at_desk(desk, history, seen=seen)
    arguments = results and {"message_history": history, "deferred_tool_results": results}
if arguments:
    done = agent.run_sync(**arguments)
    saved_run.unlink(missing_ok=True)
    if isinstance(done.output, str):
        print(done.output)
        sys.exit()
    saved_run.write_bytes(done.all_messages_json())
    at_desk(desk, done.all_messages(), seen=seen)
print("waiting for a reviewer")
