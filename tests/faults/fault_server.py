"""A warmed parent for tests that kill: forks one child a request, and tells how each ended.

Reads requests as JSON lines: {"id", "do", "args", "talk"}; `do` names a function of fault_children. Answers
{"id", "pid"} at once and {"id", "status", "answer"} when the child has ended. When its input ends it kills what it
still has, and ends.
"""

import asyncio
import importlib
import inspect
import json
import os
import selectors
import signal
import sys
from pathlib import Path

from gnl_core.testing.forks import start


def call(name, args):
    result = getattr(sys.modules["fault_children"], name)(**args)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def tell(value):
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


def serve():
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    children = {}
    buffer = b""
    tell({"ready": os.getpid()})
    while True:
        for key, _ in selector.select():
            if key.fd != 0:
                number, child = children.pop(key.fd)
                selector.unregister(key.fd)
                ended = child.wait()
                tell({"id": number, "status": ended.status, "answer": ended.answer})
                continue
            chunk = os.read(0, 1 << 16)
            if not chunk:
                return children
            *lines, buffer = (buffer + chunk).split(b"\n")
            for line in lines:
                request = json.loads(line)
                child = start(lambda r=request: call(r["do"], r["args"]), talk=Path(request["talk"]))
                children[child.fileno()] = (request["id"], child)
                selector.register(child, selectors.EVENT_READ)
                tell({"id": request["id"], "pid": child.pid})


if __name__ == "__main__":
    importlib.import_module("gnl_core.run")
    importlib.import_module("fault_children")
    # A first child finds out which modules a run needs: this process itself must never have had a thread.
    warmed = start(lambda: [call("warm", {}), list(sys.modules)], talk=Path(sys.argv[1]))
    for module in warmed.wait().answer[1]:
        if module not in sys.modules:
            importlib.import_module(module)
    for _, child in serve().values():
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
