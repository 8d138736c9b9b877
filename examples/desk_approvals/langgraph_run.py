"""LangGraph: a run that stops for a person, and resumes in another process."""

import os
import sys
from functools import partial
from pathlib import Path

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver, PersistentDict
from langgraph.types import Command
from openai import DefaultHttpxClient

from pinocchio.langchain import Desk, SeenCalls, at_desk, noting, unsure

BELOW = 0.3  # the confidence below which a person is asked

folder = Path(sys.argv[1])
folder.mkdir(exist_ok=True)
thread = {"configurable": {"thread_id": "1"}}
gate = {"allowed_decisions": ["approve", "edit", "reject"], "when": unsure(below=BELOW)}


def ship(parcel: int) -> str:
    """Ship a parcel by its number."""
    with (folder / "shipped.txt").open("a") as file:
        file.write(f"{parcel}\n")
    return f"shipped {parcel}"


def saver_on_disk() -> InMemorySaver:
    saver = InMemorySaver(factory=partial(PersistentDict, filename=""))
    for name in ("storage", "writes", "blobs"):
        part = getattr(saver, name)
        part.filename = str(folder / f"{name}.pickle")
        if Path(part.filename).exists():
            part.load()
    return saver


saver = saver_on_disk()
seen = SeenCalls()
model = ChatOpenAI(
    model=os.environ["MODEL"],
    base_url=os.environ["OPENAI_BASE_URL"],
    http_client=DefaultHttpxClient(event_hooks=seen.hooks),
)
middleware = [HumanInTheLoopMiddleware(interrupt_on={"ship": gate}), noting(seen)]
agent = create_agent(model, [ship], checkpointer=saver, middleware=middleware)
people = int(os.environ.get("APPROVALS", "1"))  # how many have to approve a call
url, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
desk = Desk(url, key, approvals=people, below=BELOW)

inputs = {"messages": [("user", "Ship all parcels.")]}
if agent.get_state(thread).next:  # an earlier process stopped here
    decisions = at_desk(desk, agent, thread)
    inputs = None if decisions is None else Command(resume=decisions)
if inputs is not None:
    done = agent.invoke(inputs, thread)
    for part in (saver.storage, saver.writes, saver.blobs):
        part.sync()
    if not agent.get_state(thread).next:
        print(done["messages"][-1].text)
        sys.exit()
    at_desk(desk, agent, thread)
print("waiting for a reviewer")
