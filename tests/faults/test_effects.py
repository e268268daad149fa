"""The witness outside the journal."""

import threading
from types import SimpleNamespace

import pytest

from gnl_core.errors import StoreCorruptError
from gnl_core.testing.effects import EffectLog


def call(run_id="r", tool_call_id="s0p0"):
    return SimpleNamespace(run_id=run_id, tool_call_id=tool_call_id)


def test_an_effect_is_found_by_its_call_and_hands_its_output_on(tmp_path):
    log = EffectLog(tmp_path / "effects.jsonl")
    assert log.fire("charge", call(), {"receipt": 7}) == {"receipt": 7}
    log.fire("charge", call(tool_call_id="s1p0"))
    assert log.find(call()).output == {"receipt": 7}
    assert log.find(call("other")) is None
    assert (log.count(), log.count("charge"), log.count("ship"), log.count(call=call())) == (2, 2, 0, 1)
    assert log.counts() == {"charge r/s0p0": 1, "charge r/s1p0": 1}


def test_a_log_without_a_file_has_no_effects(tmp_path):
    assert EffectLog(tmp_path / "none").counts() == {}


def test_hooks_stand_right_around_the_line(tmp_path):
    seen = []
    log = EffectLog(tmp_path / "e")
    log.before = lambda number: seen.append((number, log.count()))
    log.after = lambda number: seen.append((number, log.count()))
    log.fire("charge", "a")
    log.fire("charge", "b")
    assert seen == [(1, 0), (1, 1), (2, 1), (2, 2)]


def test_lines_of_many_threads_stay_whole(tmp_path):
    logs = [EffectLog(tmp_path / "e") for _ in range(4)]
    threads = [
        threading.Thread(target=lambda log=log, n=n: [log.fire("charge", f"{n}-{i}", "x" * 2000) for i in range(50)])
        for n, log in enumerate(logs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert EffectLog(tmp_path / "e").counts() == {f"charge {n}-{i}": 1 for n in range(4) for i in range(50)}


def test_a_file_of_another_kind_is_named(tmp_path):
    (tmp_path / "e").write_text('{"name": "x"}\n')
    with pytest.raises(StoreCorruptError, match=r"line 1 of .*e is no effect"):
        EffectLog(tmp_path / "e").read()
