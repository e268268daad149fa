"""A judge is made once and asked from one event loop after another, as scripts that drive runs synchronously do."""

import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gnl_core.journal.memory import InMemoryStorage
from gnl_semantic.judge import Judge
from gnl_semantic.judge.transports.openai_compatible import MAX_TOKENS


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # which keeps connections

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        message = {"role": "assistant", "content": "SAME"}
        choices = [{"index": 0, "finish_reason": "stop", "message": message}]
        body = json.dumps({"id": "1", "object": "chat.completion", "created": 1, "model": "m", "choices": choices})
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args):
        pass


@pytest.fixture
def url():
    pytest.importorskip("openai")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


def test_a_judge_behind_a_url_answers_in_every_loop(url, new_desk, issued):
    certificate = issued(judge_parameters={"temperature": 0, "max_tokens": MAX_TOKENS, "extra_body": {}})
    judge = Judge(f"openai:{url}", judge_model_id="judge@1", qualification=certificate)
    storage = InMemoryStorage()

    async def ask(number):
        return await (await new_desk(storage.runs, f"run-{number}")).ask(judge, pair=number)

    assert [asyncio.run(ask(number)).outcome for number in range(3)] == ["same"] * 3


def test_the_local_judge_answers_in_every_loop(new_desk):
    judge, storage = Judge("builtin:local"), InMemoryStorage()

    async def ask(number):
        desk = await new_desk(storage.runs, f"run-{number}")
        return await desk.ask(judge, pair=number, sentence=f"order: television {40 + number}")

    assert [asyncio.run(ask(number)).outcome for number in range(3)] == ["different", "different", "same"]
