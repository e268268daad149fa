import http.server
import json
import threading
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from gnl_core.model.messages import Message, ModelRequest, TextPart, ToolSpec
from gnl_core.model.providers.anthropic import AnthropicModel
from gnl_core.model.providers.google import GoogleModel
from gnl_core.model.providers.mistral import MistralModel
from gnl_core.model.providers.openai import OpenAIModel

KEYS = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL")
KEYS += ("GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL", "MISTRAL_API_KEY")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")


@pytest.fixture
def drain():
    """Read a stream to its end: (its events, the error it ended with or None)."""

    async def read(stream):
        events = []
        try:
            async for event in stream:
                events.append(event)  # noqa: PERF401 - what came before an error is kept
        except Exception as error:
            return events, error
        return events, None

    return read


@pytest.fixture(autouse=True)
def no_keys_of_this_machine(monkeypatch):
    for name in (*KEYS, *PROXIES):
        monkeypatch.delenv(name, raising=False)


@dataclass
class Recorded:
    """One request that a server got."""

    path: str
    headers: dict
    body: dict


@dataclass
class Reply:
    """What the server answers with, and what it does afterwards: 'end', 'cut' the connection, or 'wait'."""

    data: list[bytes] = field(default_factory=list)
    status: int = 200
    headers: dict = field(default_factory=dict)
    then: str = "end"
    stream: bool = False


class Server:
    """A server on the loopback whose answers are written in advance; the last one is given for ever."""

    def __init__(self):
        self.requests: list[Recorded] = []
        self.replies: list[Reply] = []
        self.hung_up = threading.Event()
        self.asked = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                outer.requests.append(Recorded(self.path, headers, json.loads(body)))
                outer.asked.set()
                reply = outer.replies.pop(0) if len(outer.replies) > 1 else outer.replies[0]
                try:
                    outer._answer(self, reply)
                except OSError:
                    outer.hung_up.set()
                    self.close_connection = True

            def log_message(self, *args):
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            def handle_error(self, request, client_address):
                pass  # a client that goes away is what some tests are about

        self._server = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def _answer(self, handler, reply):
        if reply.then == "wait" and not reply.data:
            self._until_hung_up(handler)
            return
        handler.send_response(reply.status)
        whole = b"".join(reply.data)
        for name, value in reply.headers.items():
            handler.send_header(name, value)
        if reply.stream:
            handler.send_header("transfer-encoding", "chunked")
        else:
            handler.send_header("content-length", str(len(whole) + (100 if reply.then == "cut" else 0)))
        handler.end_headers()
        for piece in reply.data:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece) if reply.stream else piece)
            handler.wfile.flush()
        if reply.then == "wait":
            self._until_hung_up(handler)
        elif reply.then == "cut":
            handler.close_connection = True
        elif reply.stream:
            handler.wfile.write(b"0\r\n\r\n")

    def _until_hung_up(self, handler):
        handler.close_connection = True
        handler.connection.settimeout(20)
        if handler.connection.recv(1) == b"":
            self.hung_up.set()

    def json(self, value, *, status=200, then="end", **headers):
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        kind = {"content-type": "application/json"}
        self.replies.append(
            Reply([data], status, {**kind, **{k.replace("_", "-"): v for k, v in headers.items()}}, then)
        )

    def sse(self, pieces, *, then="end"):
        data = [piece if isinstance(piece, bytes) else piece.encode() for piece in pieces]
        self.replies.append(Reply(data, 200, {"content-type": "text/event-stream"}, then, stream=True))

    def silence(self):
        self.replies.append(Reply(then="wait"))

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def server():
    one = Server()
    yield one
    one.close()


def sse(value, event=None):
    """One server-sent event."""
    text = value if isinstance(value, str) else json.dumps(value)
    return (f"event: {event}\n" if event else "") + f"data: {text}\n\n"


@pytest.fixture(name="sse")
def sse_fixture():
    return sse


class Speaks:
    """How one provider says 'hello world' whole and in pieces, and how a model of it is made."""

    key = "sk-secret-0123456789"

    def model(self, server, **options):
        return self.kind("m-1", base_url=server.url + self.path, api_key=options.pop("api_key", self.key), **options)


class OpenAI(Speaks):
    path = "/v1"
    whole: ClassVar[dict] = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m-1-2026",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello world"}}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14},
    }

    kind = OpenAIModel
    before_finish = 2

    def chunk(self, delta=None, *, finish=None, usage=None):
        head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m-1-2026", "usage": usage}
        choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
        return sse({**head, "choices": choices})

    @property
    def pieces(self):
        return [
            self.chunk({"role": "assistant", "content": "hello "}),
            self.chunk({"content": "world"}),
            self.chunk({}, finish="stop"),
            self.chunk(usage={"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}),
            sse("[DONE]"),
        ]

    def error(self, text):
        return {"error": {"message": text, "type": "invalid_request_error"}}


class Anthropic(Speaks):
    path = ""
    whole: ClassVar[dict] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m-1-2026",
        "content": [{"type": "text", "text": "hello world"}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 6, "cache_read_input_tokens": 5, "output_tokens": 3},
    }

    kind = AnthropicModel
    before_finish = 7

    def events(self, *blocks, stop="end_turn"):
        """A stream of blocks: pairs of the block as it starts and its deltas."""
        start = {**self.whole, "content": [], "stop_reason": None}
        start["usage"] = {**start["usage"], "output_tokens": 1}
        events = [{"type": "message_start", "message": start}, {"type": "ping"}]
        for index, (block, deltas) in enumerate(blocks):
            events.append({"type": "content_block_start", "index": index, "content_block": block})
            events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            events.append({"type": "content_block_stop", "index": index})
        events.append(
            {
                "type": "message_delta",
                "delta": {"stop_reason": stop, "stop_sequence": None},
                "usage": {"output_tokens": 3},
            }
        )
        events.append({"type": "message_stop"})
        return [sse(event, event["type"]) for event in events]

    @property
    def pieces(self):
        return self.events(
            (
                {"type": "text", "text": ""},
                [{"type": "text_delta", "text": "hello "}, {"type": "text_delta", "text": "world"}],
            )
        )

    def error(self, text):
        return {"type": "error", "error": {"type": "api_error", "message": text}}


class Google(Speaks):
    path = ""
    whole: ClassVar[dict] = {
        "candidates": [
            {"content": {"role": "model", "parts": [{"text": "hello world"}]}, "finishReason": "STOP", "index": 0}
        ],
        "usageMetadata": {"promptTokenCount": 11, "candidatesTokenCount": 2, "thoughtsTokenCount": 1},
        "modelVersion": "m-1-2026",
    }

    kind = GoogleModel
    before_finish = 1

    def chunk(self, *parts, finish=None):
        candidate = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
        chunk = {**self.whole, "candidates": [{**candidate, **({"finishReason": finish} if finish else {})}]}
        return sse(chunk)

    @property
    def pieces(self):
        return [self.chunk({"text": "hello "}), self.chunk({"text": "world"}, finish="STOP")]

    def error(self, text):
        return {"error": {"code": 400, "message": text, "status": "INVALID_ARGUMENT"}}


class Mistral(Speaks):
    path = ""
    whole: ClassVar[dict] = {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m-1-2026",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello world"}}],
        "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14},
    }

    kind = MistralModel
    before_finish = 2

    def chunk(self, delta, *, finish=None, usage=None):
        head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m-1-2026"}
        choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
        return sse({**head, "choices": choices, **({"usage": usage} if usage else {})})

    @property
    def pieces(self):
        return [
            self.chunk({"role": "assistant", "content": "hello "}),
            self.chunk({"content": "world"}),
            self.chunk({"content": ""}, finish="stop", usage=self.whole["usage"]),
            sse("[DONE]"),
        ]

    def error(self, text):
        return {"object": "error", "message": text, "type": "invalid_request_error", "code": "1"}


SPEAKERS = {"openai": OpenAI(), "anthropic": Anthropic(), "google": Google(), "mistral": Mistral()}


@pytest.fixture(params=sorted(SPEAKERS))
def speaks(request):
    """Each provider in turn."""
    return SPEAKERS[request.param]


@pytest.fixture
def openai_speaks():
    return SPEAKERS["openai"]


@pytest.fixture
def anthropic_speaks():
    return SPEAKERS["anthropic"]


@pytest.fixture
def google_speaks():
    return SPEAKERS["google"]


@pytest.fixture
def mistral_speaks():
    return SPEAKERS["mistral"]


@pytest.fixture
def pay_tool():
    schema = {"type": "object", "properties": {"amount": {"type": "integer"}}, "required": ["amount"]}
    return ToolSpec("pay", "Pay somebody.", schema)


@pytest.fixture
def hello():
    return ModelRequest(None, (Message("user", (TextPart("hi"),)),))
