"""What a set can prove is what its exam would say, for every number of right answers."""

import pytest

from gnl_qualify.capacity import capacity_of, sentences
from gnl_qualify.scoring import bars_of, status_of


def chance(part, true):
    return next(one for one in part.chances if one.true == true)


@pytest.mark.parametrize("n", [1, 4, 5, 9, 20, 58, 59, 75, 93])
def test_the_counts_it_names_are_those_that_the_exam_accepts(room, n):
    recall, alarms = capacity_of(n, n)
    enough = [(pair, "same") for pair in room.pairs_of(dup_paraphrase=100)]
    quiet = [(pair, "different") for pair in room.pairs_of(near_miss=100)]
    for label, part, rest in (("dup_paraphrase", recall, quiet), ("near_miss", alarms, enough)):
        pairs = room.pairs_of(**{label: n})
        statuses = [
            status_of(bars_of([(pair, "same" if i < k else "different") for i, pair in enumerate(pairs)] + rest), [])[0]
            for k in range(n + 1)
        ]
        passed = [k for k, status in enumerate(statuses) if status != "failed"]
        certified = [k for k, status in enumerate(statuses) if status == "certified"]
        edge = min if label == "dup_paraphrase" else max
        assert part.provisional == edge(passed, default=None)
        assert part.certified == edge(certified, default=None)


def test_the_reference_sets_size_proves_little():
    _, alarms = capacity_of(75, 75)
    assert chance(alarms, 0.05).provisional == pytest.approx(0.48, abs=0.005)
    assert chance(alarms, 0.08).provisional == pytest.approx(0.14, abs=0.005)
    assert chance(alarms, 0.03).provisional == pytest.approx(0.81, abs=0.005)
    assert (alarms.certified, alarms.least_certified) == (0, 59)


def test_three_hundred_near_misses_tell_a_good_judge_from_one_at_the_bar():
    _, alarms = capacity_of(300, 300)
    assert chance(alarms, 0.01).certified == pytest.approx(0.996, abs=0.0005)
    assert chance(alarms, 0.02).certified == pytest.approx(0.85, abs=0.005)
    assert chance(alarms, 0.05).certified < 0.05


def test_a_set_too_small_says_what_it_lacks(room):
    recall, alarms = sentences(room.set_of(dup_paraphrase=4, near_miss=40))
    assert recall == (
        "paraphrase recall: 4 dup-paraphrase pairs cannot earn a certificate: "
        "'provisional' needs 5 or more, 'certified' 9 or more"
    )
    assert "at most 2 SAME for 'provisional'; they are too few for 'certified'" in alarms
    assert "'certified' 59 or more" in alarms
