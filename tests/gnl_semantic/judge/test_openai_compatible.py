"""The transport against a real HTTP server on loopback that fails in every way a server can."""

import json
import socket
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_semantic.errors import (
    JudgeError,
    JudgeRateLimitedError,
    JudgeRefusedError,
    JudgeServerError,
    JudgeTimeoutError,
    JudgeUnreachableError,
)
from gnl_semantic.judge import Reply, load_judge
from gnl_semantic.judge.transports.faults import seconds_to_wait

KEY = "sk-test-0123456789"


def completion(content="SAME", **more):
    return json.dumps(
        {
            "id": "1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}],
            "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15},
        }
        | more
    )


class FaultServer(ThreadingHTTPServer):
    """Gives `status`, `headers` and `body` to every request, and keeps what came."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.headers, self.body = 200, {}, completion()
        self.hold = None
        self.drop = False
        self.requests = []

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        server = self.server
        body = self.rfile.read(int(self.headers["content-length"]))
        server.requests.append(
            (self.path, {name.lower(): value for name, value in self.headers.items()}, json.loads(body))
        )
        if server.drop:
            return
        if server.hold is not None:
            server.hold.wait(30)
        data = server.body.encode()
        with suppress(ConnectionError):  # a caller that lost patience
            self.send_response(server.status)
            for name, value in (
                {"content-type": "application/json", "content-length": len(data)} | server.headers
            ).items():
                self.send_header(name, str(value))
            self.end_headers()
            self.wfile.write(data)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with FaultServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        if server.hold is not None:
            server.hold.set()
        server.shutdown()
        thread.join()


@pytest.fixture
async def judge_at(monkeypatch):
    monkeypatch.setenv("GNL_TEST_KEY", KEY)
    judges = []

    def build(url, *, key_env="GNL_TEST_KEY", timeout_s=30.0, **options):
        judges.append(load_judge(f"openai:{url}", model="m", key_env=key_env, timeout_s=timeout_s, **options))
        return judges[-1]

    yield build
    for judge in judges:
        await judge.aclose()
        await judge.aclose()


async def test_one_request_at_temperature_0_with_both_texts(server, judge_at):
    judge = judge_at(server.url, max_tokens=7, extra_body={"grammar": "root ::= 'SAME'"})
    assert await judge.complete("the system", "the user") == Reply("SAME", 12, 3)
    [(path, headers, body)] = server.requests
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert body == {
        "model": "m",
        "messages": [{"role": "system", "content": "the system"}, {"role": "user", "content": "the user"}],
        "temperature": 0,
        "max_tokens": 7,
        "grammar": "root ::= 'SAME'",
    }


def test_info_tells_all_parameters_and_no_key(server, judge_at):
    info = judge_at(server.url, max_tokens=7, extra_body={"seed": 1}).info
    assert info.spec == f"openai:{server.url}"
    assert info.parameters == {"temperature": 0, "max_tokens": 7, "timeout_s": 30.0, "extra_body": {"seed": 1}}
    assert KEY not in repr(info)
    json.dumps(dict(info.parameters))


async def test_without_a_key_the_environments_goes_nowhere(server, judge_at, monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, "for-another-server")
    await judge_at(server.url, key_env=None).complete("s", "u")
    [(_, headers, _)] = server.requests
    assert "for-another-server" not in repr(headers)
    assert "authorization" not in headers


@pytest.mark.parametrize(
    ("status", "leaf"),
    [
        (400, JudgeRefusedError),
        (401, JudgeRefusedError),
        (403, JudgeRefusedError),
        (404, JudgeRefusedError),
        (408, JudgeRefusedError),
        (409, JudgeRefusedError),
        (422, JudgeRefusedError),
        (429, JudgeRateLimitedError),
        (500, JudgeServerError),
        (502, JudgeServerError),
        (503, JudgeServerError),
        (529, JudgeServerError),
    ],
)
@pytest.mark.parametrize("body", ['{"error": {"message": "as it is"}}', "<html>as it is</html>", "", "[]"])
async def test_each_status_is_told_apart_in_one_attempt(server, judge_at, status, leaf, body):
    server.status, server.body = status, body
    with pytest.raises(JudgeError) as caught:
        await judge_at(server.url).complete("s", "u")
    assert type(caught.value) is leaf
    assert str(status) in str(caught.value)
    assert server.url in str(caught.value)
    assert ("as it is" in str(caught.value)) == body.startswith("{"), "a page of HTML is nothing to repeat"
    assert len(server.requests) == 1


async def test_a_key_that_the_server_sends_back_is_not_repeated(server, judge_at):
    server.status, server.body = 401, json.dumps({"error": {"message": f"Incorrect API key provided:\n{KEY}"}})
    with pytest.raises(JudgeRefusedError, match=r"provided: \*\*\*") as caught:
        await judge_at(server.url).complete("s", "u")
    assert KEY not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("header", "low", "high"),
    [
        ("7", 7, 7),
        ("0.5", 0.5, 0.5),
        ("-3", 0, 0),
        (timedelta(hours=1), 3500, 3600),
        (timedelta(hours=-1), 0, 0),
        ("Mon, 30 Nov 2099 10:00:00 -0000", 1e9, 1e10),
    ],
)
async def test_a_rate_limit_says_how_long_to_wait(server, judge_at, header, low, high):
    if isinstance(header, timedelta):  # a date, seen from the moment of the call
        header = format_datetime(datetime.now(UTC) + header, usegmt=True)
    server.status, server.headers = 429, {"Retry-After": header}
    with pytest.raises(JudgeRateLimitedError) as caught:
        await judge_at(server.url).complete("s", "u")
    assert low <= caught.value.retry_after <= high


@pytest.mark.parametrize(
    "header", [None, "", "soon", "nan", "inf", "Mon, 99 Foo 2026", f"Mon, 30 Nov 2026 10:00:00 +{'9' * 30}"]
)
def test_a_wait_that_nobody_stated(header):
    assert seconds_to_wait(header) is None


@given(st.text())
def test_any_retry_after_is_none_or_a_wait(header):
    seconds = seconds_to_wait(header)
    assert seconds is None or seconds >= 0


async def test_a_slow_server_meets_the_limit(server, judge_at):
    server.hold = threading.Event()
    with pytest.raises(JudgeTimeoutError, match=r"no answer within 0\.2 s"):
        await judge_at(server.url, timeout_s=0.2).complete("s", "u")
    assert len(server.requests) == 1


async def test_nobody_listens(judge_at):
    with socket.socket() as taken:  # bound and not listening: nobody else can take the port meanwhile
        taken.bind(("127.0.0.1", 0))
        with pytest.raises(JudgeUnreachableError, match="no connection"):
            await judge_at(f"http://127.0.0.1:{taken.getsockname()[1]}/v1").complete("s", "u")


async def test_a_connection_that_breaks(server, judge_at):
    server.drop = True
    with pytest.raises(JudgeUnreachableError):
        await judge_at(server.url).complete("s", "u")
    assert len(server.requests) == 1


async def test_a_body_cut_short(server, judge_at):
    server.headers = {"content-length": 100_000}
    with pytest.raises(JudgeUnreachableError):
        await judge_at(server.url).complete("s", "u")


@pytest.mark.parametrize(
    "body",
    [
        "",
        "SAME",
        "{",
        "null",
        "[]",
        "{}",
        '"SAME"',
        '{"choices": null}',
        '{"choices": []}',
        '{"choices": [null]}',
        '{"choices": [{}]}',
        '{"choices": ["SAME"]}',
        '{"choices": [{"message": null}]}',
        '{"choices": {"0": 1}}',
        completion(None),
        completion(3),
        completion([{"type": "text", "text": "SAME"}]),
        '{"error": {"message": "200 and yet an error"}}',
    ],
)
@pytest.mark.parametrize("kind", ["application/json", "text/html"])
async def test_an_answer_without_text_is_a_failed_call(server, judge_at, body, kind):
    server.body, server.headers = body, {"content-type": kind}
    with pytest.raises(JudgeError) as caught:
        await judge_at(server.url).complete("s", "u")
    assert type(caught.value) is JudgeError


@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": 10**4000},
        {"prompt_tokens": "many"},
        {"prompt_tokens": -1, "completion_tokens": True},
        3,
    ],
)
async def test_counts_that_are_none_are_left_out(server, judge_at, usage):
    server.body = completion("DIFFERENT", usage=usage)
    assert await judge_at(server.url).complete("s", "u") == Reply("DIFFERENT")


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_records_follow_no_redirect(server, judge_at, status):
    with FaultServer() as other:
        thread = threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        server.status, server.headers = status, {"Location": f"{other.url}/chat/completions"}
        try:
            with pytest.raises(JudgeRefusedError, match=str(status)):
                await judge_at(server.url).complete("s", "u")
        finally:
            other.shutdown()
            thread.join()
        assert other.requests == []


async def test_a_file_of_ones_own_that_uses_the_client_keeps_its_errors_meaning(server, tmp_path):
    server.status, server.headers = 429, {"Retry-After": "7"}
    file = tmp_path / "judge.py"
    file.write_text(
        f"""
import openai

async def complete(system, user):
    async with openai.AsyncOpenAI(base_url={server.url!r}, api_key="k", max_retries=0) as client:
        done = await client.chat.completions.create(model="m", messages=[{{"role": "user", "content": user}}])
        return done.choices[0].message.content
"""
    )
    with pytest.raises(JudgeRateLimitedError) as caught:
        await load_judge(str(file), model="m").complete("s", "u")
    assert caught.value.retry_after == 7
