"""The exam against a real server that behaves as servers do: it limits, it breaks, it hangs, it tells its tokens."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gnl_qualify.exam import Settings, sit_exam
from gnl_semantic.judge.load import load_judge

ONCE = {"repeat_sample": 0, "order_sample": 0}


@pytest.fixture
def serve():
    """Start a chat server whose every request goes through `behave(n, user) -> (status, text)`."""
    stop = threading.Event()
    servers = []

    def serve(behave):
        numbers = iter(range(10_000))

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                user = body["messages"][1]["content"]
                status, text = behave(-1 if "warmUp" in user else next(numbers), user)
                if status == 0:
                    stop.wait()
                    return
                message = {"role": "assistant", "content": text}
                answer = {
                    "id": "x", "object": "chat.completion", "created": 0, "model": "m",
                    "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
                    "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10},
                }  # fmt: skip
                data = json.dumps(answer if status == 200 else {"error": {"message": text}}).encode()
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
        return f"openai:http://127.0.0.1:{server.server_port}/v1"

    yield serve
    stop.set()
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def sit(room, serve, tmp_path):
    async def sit(behave, timeout_s=20.0):
        judge = load_judge(serve(behave), model="m", timeout_s=timeout_s)
        settings = Settings(timeout_s=timeout_s, **ONCE)
        return await sit_exam(judge, room.set_of(10), settings, transcript=tmp_path / "t.jsonl")

    return sit


def counts(sitting, kind):
    return sum(getattr(group.counts, kind) for group in sitting.report.groups["label"])


async def test_a_good_server_passes_and_its_tokens_are_summed(sit, room):
    sitting = await sit(lambda n, user: (200, room.truth(user)))
    assert sitting.certificate is not None
    assert (sitting.report.tokens_in, sitting.report.tokens_out) == (360, 40)


async def test_a_server_that_soon_limits_is_a_transport_failure_and_not_a_bad_judge(sit, room):
    sitting = await sit(lambda n, user: (200, room.truth(user)) if n < 15 else (429, "slow down"))
    assert sitting.report.reasons[0].startswith("transport failure: 25 of 40 calls failed (judge_rate_limited 25)")
    assert (counts(sitting, "error"), counts(sitting, "unparsed")) == (25, 0)
    assert sitting.certificate is None


async def test_a_server_that_breaks_now_and_then_costs_only_those_answers(sit, room):
    sitting = await sit(lambda n, user: (500, "oops") if n in (3, 30) else (200, room.truth(user)))
    assert counts(sitting, "error") == 2
    assert not [reason for reason in sitting.report.reasons if "failure" in reason]


async def test_hanging_calls_are_timeouts(sit, room):
    sitting = await sit(lambda n, user: (0, "") if n % 2 else (200, room.truth(user)), timeout_s=1.0)
    assert counts(sitting, "timeout") == 20
    assert "judge_timeout 20" in sitting.report.reasons[0]


async def test_no_server_at_all_is_a_transport_failure(room, tmp_path):
    judge = load_judge("openai:http://127.0.0.1:9/v1", model="m", timeout_s=5)
    sitting = await sit_exam(judge, room.set_of(5), Settings(**ONCE), transcript=tmp_path / "t.jsonl")
    assert "judge_unreachable 20" in sitting.report.reasons[0]
