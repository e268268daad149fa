"""Threads for code that blocks: as many as are needed at once, none that is forgotten."""

import subprocess
import sys
import textwrap
import threading
import weakref

import pytest

from gnl_core.threads import Threads

WAIT_S = 20


def run(program, **options):
    return subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", textwrap.dedent(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )


@pytest.mark.parametrize("rounds", [(3, 5), (5, 3, 6), (1, 1, 8)])
def test_functions_that_wait_for_each_other_all_get_a_thread(rounds):
    threads = Threads(8, "test")
    for count in rounds:
        together = threading.Barrier(count + 1)
        for _ in range(count):
            threads.submit(together.wait, WAIT_S)
        together.wait(WAIT_S)  # raises if fewer of them run side by side


def test_what_comes_while_all_threads_are_busy_waits_for_one_in_order():
    threads, go, done, seen = Threads(1, "test"), threading.Event(), threading.Event(), []
    threads.submit(go.wait, WAIT_S)
    for number in range(3):
        threads.submit(seen.append, number)
    threads.submit(done.set)
    assert seen == []
    go.set()
    assert done.wait(WAIT_S)
    assert seen == [0, 1, 2]


def test_threads_are_used_again():
    threads, names = Threads(64, "test"), set()
    for _ in range(60):
        done = threading.Event()

        def work(done=done):
            names.add(threading.current_thread().name)
            done.set()

        threads.submit(work)
        assert done.wait(WAIT_S)
    assert len(names) < 30


def test_a_thread_that_waits_keeps_no_argument_alive():
    class Big:
        pass

    threads, gone, big = Threads(1, "test"), threading.Event(), Big()
    weakref.finalize(big, gone.set)
    threads.submit(id, big)
    del big
    assert gone.wait(WAIT_S)


def test_a_thread_that_cannot_be_started_calls_nothing(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    threads, called = Threads(2, "test"), threading.Event()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            threads.submit(pytest.fail)
    threads.submit(called.set)
    assert called.wait(WAIT_S)


def test_where_only_some_can_be_started_the_rest_waits_for_those(monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    threads, go, called = Threads(2, "test"), threading.Event(), threading.Event()
    threads.submit(go.wait, WAIT_S)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        threads.submit(called.set)
    assert not called.is_set()
    go.set()
    assert called.wait(WAIT_S)


def test_the_end_of_the_process_waits_for_what_was_begun_and_for_what_waits():
    child = run(
        """
        import sys
        from gnl_core.threads import Threads

        threads = Threads(1, "test")
        threads.submit(lambda: (print("begun", flush=True), sys.stdin.readline(), print("ended", flush=True)))
        threads.submit(lambda: print("so has the other", flush=True))
        """
    )
    with child:
        assert child.stdout.readline() == "begun\n"
        out, _ = child.communicate("go on\n", timeout=WAIT_S)
    assert out == "ended\nso has the other\n"
    assert child.returncode == 0


def test_nothing_is_begun_once_the_process_ends():
    child = run(
        """
        import atexit
        from gnl_core.threads import Threads

        threads = Threads(1, "test")

        def late():
            try:
                threads.submit(print, "never")
            except RuntimeError as error:
                print(error)

        atexit.register(late)
        threads.submit(print, "first")
        """
    )
    out, _ = child.communicate(timeout=WAIT_S)
    assert out == "first\nthe process is ending, nothing is begun any more\n"


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork here")
def test_a_forked_child_has_threads_of_its_own():
    child = run(
        """
        import os, threading
        from gnl_core.threads import Threads

        threads, go, done = Threads(1, "test"), threading.Event(), threading.Event()
        threads.submit(go.wait, 20)
        pid = os.fork()
        if pid == 0:
            threads.submit(done.set)
            os._exit(0 if done.wait(20) else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        go.set()
        """
    )
    out, _ = child.communicate(timeout=WAIT_S)
    assert out == "0\n"
    assert child.returncode == 0
