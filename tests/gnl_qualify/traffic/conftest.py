"""Small conversations, and a chat server on loopback that calls tools."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gnl_fixtures.conversations import parse_conversations


def call(name, city="Oxford", label=None):
    made = {"tool": "create_customer", "args": {"name": name, "city": city}}
    return made | ({"label": label} if label else {})


def said(label, *calls, says="Add it.", **members):
    return {"says": says, "label": label, "careful": list(calls), **members}


def talks(*turns, count=1, **members):
    """Return `count` conversations of the same turns, as the loader reads them."""
    made = [{"id": f"c-{n}", "lang": "en", "note": "a note", "turns": list(turns), **members} for n in range(count)]
    return parse_conversations(
        json.dumps({"v": 1, "name": "mine", "origin": "by hand", "conversations": made}).encode(), "mine.json"
    )


@pytest.fixture(scope="session")
def write():
    """The three makers above, by name: `write.call`, `write.said`, `write.talks`."""

    class Write:
        pass

    Write.call, Write.said, Write.talks = staticmethod(call), staticmethod(said), staticmethod(talks)
    return Write


@pytest.fixture
def chat_server():
    """Start a server whose every request goes through `behave(n, body)`.

    `body` holds the key's header too, as 'authorization'. It returns a status and a message; status 0 leaves the
    request hanging until the test ends.
    """
    stop = threading.Event()
    servers = []

    def serve(behave):
        numbers = iter(range(10_000))

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                body["authorization"] = self.headers.get("Authorization")
                status, message = behave(next(numbers), body)
                if status == 0:
                    stop.wait()
                    return
                finish = "tool_calls" if status == 200 and message.get("tool_calls") else "stop"
                answer = {
                    "id": "x", "object": "chat.completion", "created": 0, "model": body["model"],
                    "choices": [{"index": 0, "finish_reason": finish, "message": message}],
                    "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10},
                }  # fmt: skip
                data = json.dumps(answer if status == 200 else {"error": {"message": message}}).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/v1"

    yield serve
    stop.set()
    for server in servers:
        server.shutdown()
        server.server_close()


def wants(name, args):
    """Return an assistant message that calls a tool; `args` is a mapping or the text as it is."""
    text = args if isinstance(args, str) else json.dumps(args)
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_x", "type": "function", "function": {"name": name, "arguments": text}}],
    }


def talk(text):
    return {"role": "assistant", "content": text}


def clerk(body):
    """Answer as a model that makes one call a turn: the customer's name is what stands after 'Add '."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return talk("Done.")
    if not last["content"].startswith("Add "):
        return talk("You are welcome.")
    return wants("create_customer", {"name": last["content"].removeprefix("Add ").rstrip("."), "city": "Oxford"})


@pytest.fixture(scope="session")
def live():
    """What a server may answer: `live.clerk`, `live.wants`, `live.talk`."""

    class Live:
        pass

    Live.clerk, Live.wants, Live.talk = staticmethod(clerk), staticmethod(wants), staticmethod(talk)
    return Live
