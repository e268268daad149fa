"""A dead holder is known for dead, and nobody else is."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_core.owner import Owner, is_alive, is_dead, new_owner, read_owner, register, unregister

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells when a process started")

SAY_OWNER = """
import json, sys
from gnl_core.owner import new_owner, register
owner = new_owner()
register(owner)
print(json.dumps(owner.to_json()), flush=True)
"""
WAIT = "sys.stdin.read()\n"


@contextmanager
def child(code: str, *, prefix: tuple[str, ...] = ()) -> Iterator[tuple[subprocess.Popen[str], Owner]]:
    """Run a program that says who it is and then does what it does, until the block ends."""
    process = subprocess.Popen(
        [*prefix, sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        owner = read_owner(json.loads(process.stdout.readline()))
        assert owner is not None
        yield process, owner
    finally:
        process.kill()
        process.communicate()


def wait_for_zombie(pid: int) -> None:
    """Return once the process has ended, and leave it unreaped."""
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def test_owner_states_this_process() -> None:
    owner = new_owner()

    assert owner.pid == os.getpid()
    assert owner.boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert owner.started == Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    assert owner.namespace.startswith(str(Path("/proc/self/ns/pid").stat().st_ino))


def test_each_hold_has_an_id_of_its_own() -> None:
    one, other = new_owner(), new_owner()

    assert one.id != other.id
    assert len(one.id) == 32
    assert replace(one, id="") == replace(other, id="")


def test_a_hold_of_this_process_is_alive_only_while_registered() -> None:
    owner = new_owner()
    assert (is_alive(owner), is_dead(owner)) == (False, True)
    register(owner)
    assert (is_alive(owner), is_dead(owner)) == (True, False)

    unregister(owner)
    assert (is_alive(owner), is_dead(owner)) == (False, True)
    unregister(owner)  # twice is no error


def test_a_hold_that_nobody_gives_up_is_alive_for_as_long_as_was_said(monkeypatch: pytest.MonkeyPatch) -> None:
    owner, other = new_owner(), new_owner()
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    register(owner)
    unregister(owner, after_s=5)
    unregister(other, after_s=5)  # not had, so not had for longer
    assert is_dead(other)
    now += 4.9
    assert (is_alive(owner), is_dead(owner)) == (True, False)
    now += 0.2
    assert (is_alive(owner), is_dead(owner)) == (False, True)
    unregister(owner, after_s=5)
    register(other)
    unregister(other, after_s=-1)
    assert is_dead(other)


def test_a_running_child_is_alive_though_its_hold_is_unknown_here() -> None:
    with child(SAY_OWNER + WAIT) as (process, owner):
        assert owner.pid == process.pid
        assert (is_alive(owner), is_dead(owner)) == (True, False)


def test_a_killed_child_is_dead_before_it_is_reaped_and_after() -> None:
    with child(SAY_OWNER + WAIT) as (process, owner):
        process.kill()
        wait_for_zombie(process.pid)
        assert (is_alive(owner), is_dead(owner)) == (False, True)

        process.wait()
        assert (is_alive(owner), is_dead(owner)) == (False, True)


def test_a_stopped_child_is_alive() -> None:
    with child(SAY_OWNER + WAIT) as (process, owner):
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)

        assert (is_alive(owner), is_dead(owner)) == (True, False)


def test_a_pid_that_another_process_has_by_now_is_a_dead_owner() -> None:
    with child(SAY_OWNER + WAIT) as (_, owner):
        earlier = replace(owner, started=str(int(owner.started) - 1))
        assert (is_alive(earlier), is_dead(earlier)) == (False, True)


def test_a_pid_of_an_earlier_process_that_is_ours_now_is_a_dead_owner() -> None:
    owner = new_owner()
    register(owner)
    try:
        assert is_dead(replace(owner, started=str(int(owner.started) - 1)))
    finally:
        unregister(owner)


@pytest.mark.parametrize("changed", [{"boot": "another"}, {"namespace": "1"}, {"boot": "", "namespace": ""}])
def test_an_owner_elsewhere_is_never_known_to_be_alive(changed: dict[str, str]) -> None:
    with child(SAY_OWNER + WAIT) as (_, owner):
        elsewhere = replace(owner, **changed)
        assert (is_alive(owner), is_alive(elsewhere), is_dead(elsewhere)) == (True, False, False)


@pytest.mark.parametrize("changed", [{"boot": "another"}, {"namespace": "1"}, {"boot": "", "namespace": ""}])
def test_an_owner_elsewhere_is_never_known_to_be_dead(changed: dict[str, str]) -> None:
    with child(SAY_OWNER) as (process, owner):
        process.wait()

        assert is_dead(owner)
        assert not is_dead(replace(owner, **changed))


def test_an_owner_without_a_start_time_is_never_known_to_be_dead() -> None:
    nameless = replace(new_owner(), started="")
    assert (is_alive(nameless), is_dead(nameless)) == (False, False)


def test_a_program_name_with_parentheses_hides_no_field() -> None:
    rename = "from pathlib import Path\nPath('/proc/self/comm').write_text('a) Z 1 (b')\n"
    with child(rename + SAY_OWNER + WAIT) as (process, owner):
        assert b"a) Z 1 (b" in Path(f"/proc/{process.pid}/stat").read_bytes()
        assert not is_dead(owner)


@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="the number of the system call is known")
def test_a_leader_that_ended_before_its_threads_is_alive() -> None:
    number = 60 if os.uname().machine == "x86_64" else 93
    leave = (
        "import ctypes, threading\n"
        "libc = ctypes.CDLL(None)\n"
        "threading.Thread(target=lambda: (sys.stdin.readline(), print('on', flush=True), sys.stdin.read())).start()\n"
        f"libc.syscall({number}, 0)\n"
    )
    with child(SAY_OWNER + leave) as (process, owner):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "on\n"
        while Path(f"/proc/{process.pid}/stat").read_bytes().rpartition(b")")[2].split()[0] != b"Z":
            os.sched_yield()

        assert not is_dead(owner)
        process.kill()
        wait_for_zombie(process.pid)
        assert is_dead(owner)


def test_a_forked_child_has_facts_of_its_own_and_none_of_the_holds() -> None:
    code = """
import json, os
from dataclasses import replace
from gnl_core.owner import is_dead, new_owner, register
owner = new_owner()
register(owner)
reader, writer = os.pipe()
pid = os.fork()
if pid == 0:
    mine = new_owner()
    answer = {
        "own pid": mine.pid == os.getpid() != owner.pid,
        "own start": mine.started != "" and mine.boot == owner.boot,
        "parent lives": not is_dead(owner),
        "holds forgotten": is_dead(replace(mine, id=owner.id)),
    }
    register(mine)
    answer["own hold lives"] = not is_dead(mine)
    os.write(writer, json.dumps([answer, mine.to_json()]).encode())
    os._exit(0)
os.close(writer)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
answer, mine = json.loads(os.read(reader, 65536))
from gnl_core.owner import read_owner
answer["child is dead"] = is_dead(read_owner(mine))
answer["parent kept its hold"] = not is_dead(owner)
print(json.dumps(answer))
"""
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout

    answer = json.loads(output)
    assert len(answer) == 7
    assert answer == dict.fromkeys(answer, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change its root directory")
def test_without_proc_nothing_is_known_to_be_dead(tmp_path: Path) -> None:
    with child(SAY_OWNER) as (process, dead):
        process.wait()
    assert is_dead(dead)
    code = f"""
import json, os
from gnl_core.owner import is_dead, new_owner, read_owner
os.chroot({str(tmp_path)!r})
owner = new_owner()
dead = read_owner({dead.to_json()!r})
print(json.dumps([owner.boot, owner.started, owner.namespace, owner.pid == os.getpid(), is_dead(owner), is_dead(dead)]))
"""
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout

    assert json.loads(output) == ["", "", "", True, False, False]


def _may_unshare() -> bool:
    program = shutil.which("unshare")
    return program is not None and (
        subprocess.run(
            [program, "--pid", "--fork", "--mount-proc", "true"], check=False, capture_output=True
        ).returncode
        == 0
    )


@pytest.mark.skipif(not _may_unshare(), reason="no process namespaces of one's own here")
@pytest.mark.parametrize(("mount", "known"), [(("--mount-proc",), True), ((), False)])
def test_an_owner_in_another_process_namespace_is_never_known_to_be_dead(mount: tuple[str, ...], known: bool) -> None:
    with child(SAY_OWNER + WAIT, prefix=("unshare", "--pid", "--fork", "--kill-child", *mount)) as (process, owner):
        assert owner.pid == 1
        assert (owner.boot != "") is known  # without a /proc of its own it cannot know its numbers
        assert not is_dead(owner)
        process.kill()
        process.wait()

        assert not is_dead(owner)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "id": st.from_regex(r"[0-9a-f]{32}", fullmatch=True) | json_values,
            "boot": st.text(max_size=40) | json_values,
            "pid": st.integers() | json_values,
            "started": st.text(max_size=20) | json_values,
            "namespace": st.text(max_size=20) | json_values,
            "host": st.text(max_size=20) | json_values,
        },
    )
    | json_values
)
def test_reading_an_owner_trusts_nothing(value: object) -> None:
    owner = read_owner(value)

    if owner is not None:
        assert read_owner(owner.to_json()) == owner
        assert is_dead(owner) in (True, False)


@given(
    st.builds(
        Owner,
        id=st.from_regex(r"[0-9a-f]{32}", fullmatch=True),
        boot=st.just(new_owner().boot),
        pid=st.integers(1, (1 << 31) - 1),
        started=st.text(max_size=20),
        namespace=st.just(new_owner().namespace),
    )
)
def test_any_owner_that_is_read_back_is_itself(owner: Owner) -> None:
    assert read_owner(json.loads(json.dumps(owner.to_json()))) == owner
    is_dead(owner)  # a pid and a start time out of anybody's hand: no error


@pytest.mark.parametrize(
    "change",
    [
        {"pid": 0},
        {"pid": -1},
        {"pid": True},
        {"pid": 1 << 31},
        {"pid": "1"},
        {"id": "A" * 32},
        {"id": "0" * 31},
        {"boot": None},
        {"boot": "x" * 257},
        {"started": 5},
    ],
)
def test_what_is_no_owner_is_none(change: dict[str, object]) -> None:
    assert read_owner({**new_owner().to_json(), **change}) is None
