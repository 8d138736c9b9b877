"""Spellings of paths: none leads past what a policy decides on."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from proxy.errors import BadRequestError
from proxy.http.wire.spelling import means, names_in
from tests.running.live_proxy import LiveProxy
from tests.servers.faulty_upstream import JSON, Response
from tests.servers.undecided import (
    ANSWERS,
    HOLD_ALL,
    PATHS,
    AnyUpstream,
    asking,
    holding,
    passed,
    send,
)


def spellings(path: str) -> Iterator[str]:
    """Yield ways to write a path that some front proxy or upstream takes for it."""
    folder, _, last = path.rpartition("/")
    rest = path.removeprefix("/v1")
    for slash in ("//", "///", "%2F", "%2f%2F", "/%2F", "%252F", "%25252f", "\\", "%5C", "/%5c"):
        yield folder + slash + last
        yield "/v1" + slash + rest[1:]
        yield "/v1/" + slash + rest[1:]
    for end in ("/", "//", "/%2F", "%2F", "\\", ";", ";x=1", "%3Bx", "%3Fx", "%3fx=1", "%23x"):
        yield path + end
    for end in (".", "..", "%2e", "%20", "%2520", "%20.", ".json", ".xml", "%00", "%0a", "%09"):
        yield path + end
    for end in ("/.", "/./", "/x/..", "/x/%2e%2e", "/%2e", "/..;/" + last, "/x/..%2f", "/%c0%ae"):
        yield path + end
    for dots in (
        "/./",
        "/x/../",
        "/%2e/",
        "/x/%2e%2e/",
        "/x/..;/",
        "/.;x/",
        "/x%2f..%2f",
        "/x/%252e%252e/",
    ):
        yield "/v1" + dots + rest[1:]
        yield folder + dots + last
    for changed in (str.upper, str.title, str.swapcase):
        yield "/v1" + changed(rest)
    first = f"%{ord(last[0]):02x}"
    for letter in (
        first,
        first.replace("%", "%25"),
        f"%u00{first[1:]}",
        f"%c1%{ord(last[0]) + 64:02x}",
    ):
        yield f"{folder}/{letter}{last[1:]}"
    wide = "".join(f"%{byte:02x}" for byte in chr(ord(last[0]) + 0xFEE0).encode())
    yield f"{folder}/{wide}{last[1:]}"
    yield f"{folder}%ef%bc%8f{last}"  # a wide slash
    yield f"{folder}/{last};jsessionid=1/"
    for sign in (",x", "&x", "%26", ":", "!", "~", "*", "+", "%", "%2", "'", "::$DATA"):
        yield path + sign  # which some cut off
    for unseen in ("%E2%80%8B", "%C2%AD", "%EF%BB%BF"):
        yield path + unseen
    yield f"{folder}%E2%88%95{last}"  # a division sign, which some convert to a slash
    yield f"{folder}/%E2%80%8B{last}"
    yield f"/%76%31{rest}"
    yield f"http://localhost{path}/"
    yield f"http://localhost{folder}//{last}"


@pytest.fixture(scope="module")
def upstream() -> Iterator[AnyUpstream]:
    with AnyUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def proxy(upstream: AnyUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProxy]:
    with holding(upstream, tmp_path_factory, HOLD_ALL) as proxy:
        yield proxy


@pytest.mark.parametrize("surface", PATHS)
def test_no_spelling_passes(proxy: LiveProxy, upstream: AnyUpstream, surface: str) -> None:
    """Each of some hundred spellings is held, refused with 400, or leads nowhere."""
    upstream.answer = Response([json.dumps(ANSWERS[surface]).encode()], headers=JSON)
    tried = list(dict.fromkeys(spellings(PATHS[surface])))
    statuses, through = set(), []
    for target in tried:
        answer = send(proxy.port, "POST", target, asking(surface))
        statuses.add(int(answer.split()[1]))
        if passed(answer):
            through.append(target)
    print(f"{surface}: {len(tried)} spellings, {len(through)} passed, statuses {statuses}")
    assert through == []
    assert len(tried) >= 60
    assert statuses <= {200, 400, 404}


@pytest.mark.parametrize(
    "folder",
    [
        *("/openai", "/openai/v1", "/openai/deployments/m", "/openai/v1/deployments/m"),
        *("/openai/deployments/a/b", "/openai/deployments/m%2Fx", "/openai/deployments/"),
        *(
            "/OpenAI/v1",
            "//openai/v1",
            "/%6fpenai/v1",
            "/openai%2Fv1",
            "/openai//v1",
            "/openai/./v1",
        ),
        *(
            "/openai/Deployments/m",
            "/openai//deployments/m",
            "/openai/deployments/m/..",
            "/x/../openai",
        ),
    ],
)
def test_no_spelling_of_azures_paths_passes(
    proxy: LiveProxy, upstream: AnyUpstream, folder: str
) -> None:
    """Paths below `/openai` mean those below `/v1`, in each spelling of both.

    `deployments/m%2Fchat/completions` is a completion of the model `m/chat`; upstream
    gets the path on which the policy decided. A chat's answer to it cannot be read: 422.
    """
    for surface, path in PATHS.items():
        upstream.answer = Response([json.dumps(ANSWERS[surface]).encode()], headers=JSON)
        for target in spellings(path):
            answer = send(proxy.port, "POST", target.replace("/v1", folder, 1), asking(surface))
            assert not passed(answer), target
            assert int(answer.split()[1]) in (200, 400, 404, 422), target


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE", "OPTIONS", "QUERY"])
def test_no_other_method_passes(proxy: LiveProxy, upstream: AnyUpstream, method: str) -> None:
    """A request with another method and a body is decided on, as a server may ignore methods."""
    for surface, path in PATHS.items():
        upstream.answer = Response([json.dumps(ANSWERS[surface]).encode()], headers=JSON)
        for target in (path, path + "//"):
            assert not passed(send(proxy.port, method, target, asking(surface)))


def test_what_is_spelled_otherwise_goes_on_as_it_was_spelled(
    proxy: LiveProxy, upstream: AnyUpstream
) -> None:
    """Upstream gets the client's spelling and method, and other surfaces are relayed."""
    upstream.answer = Response([json.dumps(ANSWERS["chat"]).encode()], headers=JSON)
    answer = send(proxy.port, "POST", "/v1//Chat%2Fcompletions/?a=1", asking("chat"))
    assert b" 200 " in answer.splitlines()[0]
    assert b"x-pinocchio-review-id" in answer
    assert upstream.last.target == "/v1//Chat%2Fcompletions/?a=1"
    send(proxy.port, "PUT", "/v1/chat/completions", asking("chat"))
    assert upstream.last.method == "PUT"
    for other in ("/v1/embeddings", "/v1/files/a%2Fb", "/v1/models/x:free"):
        assert b"not_supported" in send(proxy.port, "POST", other, b"{}")
        assert upstream.last.target == other


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/engines/m/completions"),
        ("POST", "/v1/engines/m/chat/completions"),
        ("POST", "/v1/openai/deployments/m/chat/completions"),
        ("POST", "/v1/fim/completions"),
        ("POST", "/v1//Agents/Completions.json"),
        ("PUT", "/v1/x/v1/chat/completions"),
        ("POST", "/v1/async/chat/completions"),
        ("GET", "/v1/async/chat/completions/1"),
        ("GET", "/v1/chat/deferred-completion/1"),
        ("POST", "/v1/complete"),
        ("POST", "/v1/edits"),
        ("POST", "/v1/chat"),
        ("POST", "/v1/threads/runs"),
        ("POST", "/v1/threads/t/runs"),
        ("GET", "/v1/threads/t/messages"),
        ("GET", "/v1/threads/t/runs/r/steps/s"),
        ("GET", "/v1/evals/e/runs/r/output_items"),
        ("GET", "/v1/conversations/c/history"),
        ("POST", "/v1/conversations"),
        ("POST", "/v1/models/m:generateContent"),
        ("POST", "/v1/responses/resp_1"),
        ("PUT", "/v1/responses/resp_1"),
        ("GET", "/v1/responses/resp_1/cancel"),
        ("POST", "/v1/responses/compact"),
        ("POST", "/v1/sessions/s/events"),
        ("GET", "/v1/agents/sessions/s"),
        ("POST", "/v1/chatkit/threads/t"),
        ("POST", "/v1/rag/query"),
        ("POST", "/v1/summarize"),
        ("POST", "/v1/OCR"),
        ("POST", "/v1/something/of/tomorrow"),
        ("POST", "/openai/deployments/m/extensions/chat/completions/x"),
        ("POST", "/openai/deployments/m/something/of/tomorrow"),
        ("POST", "/openai/threads/runs"),
        ("POST", "/openai/v1/responses/compact"),
    ],
)
def test_no_other_place_of_answers_passes(
    proxy: LiveProxy, upstream: AnyUpstream, method: str, path: str
) -> None:
    """Scored surfaces under other folders, those of other APIs, and stored responses are found."""
    upstream.answer = Response([json.dumps(ANSWERS["responses"]).encode()], headers=JSON)
    answer = send(proxy.port, method, path, json.dumps({"model": "m", "inputs": "?"}).encode())
    assert not passed(answer)
    assert (b"surface_undecided" in answer) is ("/responses/resp" not in path)


@pytest.mark.parametrize("name", ["X-Original-URL", "X-Rewrite-URL"])
def test_no_field_in_place_of_the_path_passes(
    proxy: LiveProxy, upstream: AnyUpstream, name: str
) -> None:
    """Header fields that some servers take for the path are refused if they name a scored one."""
    upstream.answer = Response([json.dumps(ANSWERS["chat"]).encode()], headers=JSON)
    for value in ("/v1/chat/completions", "/openai/v1//responses", "/v1/%63ompletions"):
        assert not passed(send(proxy.port, "POST", "/v1/embeddings", b"{}", f"{name}: {value}"))
    assert passed(send(proxy.port, "POST", "/v1/embeddings", b"{}", f"{name}: /v1/embeddings"))


def test_a_websocket_is_no_way_round(proxy: LiveProxy) -> None:
    """Where a policy decides, a scored surface has no WebSocket, in any spelling."""
    for path in ("/v1/responses", "/v1//Responses", "/v1/chat/completions"):
        with pytest.raises(InvalidStatus) as refused:
            connect(f"ws://127.0.0.1:{proxy.port}{path}", proxy=None)
        assert refused.value.response.status_code == 426
        assert b"websocket_undecided" in refused.value.response.body


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/v1/chat/completions", ("v1", "chat", "completions")),
        ("/v1//chat%2Fcompletions/", ("v1", "chat", "completions")),
        ("/v1/models/org/model:free", ("v1", "models", "org", "model:free")),
        ("/v1/files/Ab%20c", ("v1", "files", "Ab c")),
        ("/v1/files/a.b?x#y", ("v1", "files", "a.b")),
        ("/v1/files/100%", ("v1", "files", "100%")),
        ("/v1/files/caf%C3%A9", ("v1", "files", "café")),
    ],
)
def test_names(path: str, names: tuple[str, ...]) -> None:
    """Names keep their case, whatever separates them."""
    assert names_in(path) == names


@pytest.mark.parametrize(
    "path",
    [
        "/v1/../x",
        "/v1/%2e%2e/x",
        "/v1/x/..;/y",
        "/v1/a%00",
        "/v1/%c0%af",
        "/v1/%u002e",
        "/v1/%2525252541",
    ],
)
def test_what_is_refused(path: str) -> None:
    """Dot segments, control characters and overlong encodings are refused as ambiguous."""
    with pytest.raises(BadRequestError) as refused:
        names_in(path)
    assert refused.value.machine_code == "invalid_path"


def test_meaning() -> None:
    """Case and suffix do not change a path's meaning, but more or fewer segments do."""
    assert means(("V1", "Chat", "COMPLETIONS.json"), "/v1/chat/completions")
    assert not means(("v1", "chat", "completions", "x"), "/v1/chat/completions")
    assert not means(("v1", "chat"), "/v1/chat/completions")
