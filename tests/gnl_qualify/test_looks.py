"""Every look at a set is counted that can be found."""

from gnl_qualify.exam import Settings, sit_exam
from gnl_qualify.looks import sitting_number
from gnl_qualify.sittings import count_sittings
from gnl_qualify.transcript import read_transcript

ONCE = Settings(repeat_sample=0, order_sample=0)


async def test_each_sitting_counts_those_before_it(room, tmp_path):
    fixtures = room.set_of(10)
    path = tmp_path / "exam.transcript.jsonl"
    numbers = []
    for _ in range(3):  # the finished ones are kept as .previous
        sitting = await sit_exam(room.FunctionJudge(), fixtures, ONCE, transcript=path)
        numbers.append(sitting.report.fixtures.sitting)
        assert sitting.certificate.sitting == numbers[-1]
    assert numbers == [1, 2, 3]
    assert read_transcript(path).header.sitting == 3


async def test_a_sample_is_a_look_at_the_whole_set(room, tmp_path):
    fixtures = room.set_of(10)
    sample = Settings(repeat_sample=0, order_sample=0, limit=20)
    await sit_exam(room.FunctionJudge(), fixtures, sample, transcript=tmp_path / "a.jsonl")
    assert sitting_number(fixtures.set_id, folder=tmp_path, private=True) == 2


async def test_other_sets_and_other_files_do_not_count(room, tmp_path):
    await sit_exam(room.FunctionJudge(), room.set_of(11), ONCE, transcript=tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_bytes(b"\xff{}\n")
    (tmp_path / "c.jsonl").mkdir()
    assert sitting_number(room.set_of(10).set_id, folder=tmp_path, private=True) == 1


def test_the_ledger_counts_for_a_published_set(tmp_path):
    ledger = count_sittings("166b8deb4e23dd20", private=False)
    assert ledger >= 2
    assert sitting_number("166b8deb4e23dd20", folder=tmp_path, private=False) == ledger + 1
    assert sitting_number("166b8deb4e23dd20", folder=tmp_path / "none", private=True) == 1
