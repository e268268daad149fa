"""`gnl approvals` on a question that shows earlier work: the label of a yes, and the whole of what is asked."""

import pytest

QUESTION = "r/s0p0/semantic/0"
PRIOR = {"origin": "rule", "run_id": "first", "tool_call_id": "s0p0", "at": 1}
HINT = "approve it again with --different-work or --deliberate-repeat"


def asks(book, *, reason="Is it that job again?", **asked):
    book.write(
        *book.head("r", status="suspended"),
        book.call("r", "s0p0", status="suspended", question={"kind": "semantic", "reason": reason, "at": 1, **asked}),
    )
    return book.db


@pytest.mark.parametrize("prior", [{"prior": PRIOR}, {}])
def test_two_labels_at_once_are_refused_and_nothing_is_stored(gnl, shelf, prior):
    db = asks(shelf, **prior)
    before = shelf.rows_and_versions()
    ended = gnl("approvals", "approve", QUESTION, "--different-work", "--deliberate-repeat", *db)
    assert (ended.code, ended.out) == (2, "")
    assert "contradict each other" in ended.err
    assert "give one of them" in ended.err
    assert shelf.rows_and_versions() == before


@pytest.mark.parametrize("words", ["different work", "deliberate repeat"])
def test_the_label_is_printed_when_it_is_given_and_when_the_run_is_shown(gnl, shelf, words):
    db = asks(shelf, prior=PRIOR)
    ended = gnl("approvals", "approve", QUESTION, f"--{words.replace(' ', '-')}", "--actor", "ayşe", *db)
    assert (ended.code, ended.out) == (0, f"approved {QUESTION}, labelled {words}\n")
    assert HINT not in ended.err
    assert f"answered {QUESTION}: approved, labelled {words} by ayşe" in gnl("runs", "show", "r", *db).out


def test_a_yes_without_a_label_tells_of_the_labels_and_takes_one_later(gnl, shelf):
    db = asks(shelf, prior=PRIOR)
    ended = gnl("approvals", "approve", QUESTION, "--actor", "ayşe", *db)
    assert (ended.code, ended.out) == (0, f"approved {QUESTION}\n")
    assert HINT in ended.err
    again = gnl("approvals", "approve", QUESTION, "--different-work", "--actor", "bob", *db)
    assert (again.code, again.out) == (0, f"approved {QUESTION}, labelled different work\n")
    assert "it was approved by ayşe already; what is new is the label" in again.err
    assert "takes the place" not in again.err
    kept = gnl("approvals", "approve", QUESTION, *db)
    assert kept.out == f"approved {QUESTION}, labelled different work\n"
    assert HINT not in kept.err


def test_no_label_is_asked_for_where_there_is_nothing_to_label(gnl, shelf):
    db = asks(shelf)
    assert HINT not in gnl("approvals", "approve", QUESTION, *db).err


def test_a_no_needs_no_label(gnl, shelf):
    db = asks(shelf, prior=PRIOR)
    assert HINT not in gnl("approvals", "deny", QUESTION, *db).err


def test_after_an_answer_the_way_on_is_told_and_it_is_one_that_exists(gnl, shelf):
    db = asks(shelf)
    told = gnl("approvals", "approve", QUESTION, "--actor", "ayşe", *db).err
    assert told == (
        "answered as ayşe; nothing has run yet: drive the run again (start its program again, or gnl runs resume) to "
        "go on\n"
    )
    assert gnl("runs", "resume", "--help").code == 0


def test_the_list_shows_the_whole_question_on_one_line_and_harmless(gnl, shelf):
    reason = "first 'order: tv 42' " + "and more, " * 60 + "\x1b[2J\u202e\nthe end?"
    db = asks(shelf, reason=reason)
    name, call, asked = gnl("approvals", "list", *db).out.splitlines()
    assert (name, call) == (QUESTION, '  pay({"amount": 5})')
    assert asked.endswith("and more, \\x1b[2J\\u202e\\nthe end?")
    assert "characters)" not in asked


def test_arguments_stay_short_and_a_flood_of_a_question_ends(gnl, shelf):
    shelf.write(
        *shelf.head("r", status="suspended"),
        shelf.call(
            "r",
            "s0p0",
            status="suspended",
            args={"text": "x" * 5_000},
            question={"kind": "guard", "reason": "y" * 1_000_000, "at": 1},
        ),
    )
    listed = gnl("approvals", "list", *shelf.db).out
    assert "(5,012 characters)" in listed
    assert "(1,000,000 characters)" in listed
    assert len(listed) < 11_000
