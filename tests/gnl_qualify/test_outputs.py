"""Outputs are checked before a long run and written whole; texts of strangers are harmless."""

import os
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_qualify.errors import OutputPathError
from gnl_qualify.outputs import check_outputs, write_output
from gnl_qualify.terminal import plain


def test_good_outputs_pass_and_leave_no_trace(tmp_path):
    (tmp_path / "old.json").write_text("old", encoding="utf-8")
    check_outputs({"--json": tmp_path / "old.json", "--html": tmp_path / "new.html", "--out": None})
    assert [path.name for path in tmp_path.iterdir()] == ["old.json"]


def test_one_file_under_two_names_is_noticed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "x.json")
    with pytest.raises(OutputPathError, match=r"--html .*is the output of --json too"):
        check_outputs({"--json": tmp_path / "x.json", "--html": tmp_path / "link"})


def test_a_protected_folder_is_noticed(tmp_path):
    tmp_path.chmod(0o500)
    # No mode stops root; in /proc nobody makes a file.
    folder = tmp_path if os.geteuid() else Path("/proc")
    with pytest.raises(OutputPathError, match="cannot be written"):
        check_outputs({"--json": folder / "x.json"})


def test_a_link_is_followed_and_stays_a_link(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_output(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text(encoding="utf-8") == "new"
    assert {path.name for path in tmp_path.iterdir()} == {"link", "target"}


def test_half_a_character_does_not_cost_the_file(tmp_path):
    write_output(tmp_path / "x", "half \ud800 of it")
    assert (tmp_path / "x").read_text(encoding="utf-8") == "half ? of it"


def test_what_cannot_be_written_leaves_the_old_file(tmp_path):
    (tmp_path / "x").write_text("old", encoding="utf-8")
    with pytest.raises(OutputPathError, match="cannot be written"):
        write_output(tmp_path / "x" / "y", "new")
    assert {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == {"x": "old"}
    with pytest.raises(OutputPathError, match="cannot be written"):
        write_output(tmp_path / "none" / "x", "new")


@given(st.text())
def test_plain_text_is_one_line_without_anything_that_acts(text):
    shown = plain(text)
    assert len(shown.splitlines()) <= 1
    assert all(unicodedata.category(c) not in ("Cc", "Cs", "Zl", "Zp") for c in shown)
    assert not set(shown) & set("\u202a\u202b\u202d\u202e\u2066\u2067\u2068\u2069\u061c\u200e\u200f")


def test_plain_text_keeps_what_can_be_read():
    assert plain("İstanbul 東京 می\u200cخواهم ✓") == "İstanbul 東京 می\u200cخواهم ✓"
    assert plain("a\x1b[31m\u202eb\r\n") == "a\\x1b[31m\\u202eb\\r\\n"


def test_a_loop_of_links_and_an_endless_name_are_refused(tmp_path):
    (tmp_path / "one").symlink_to(tmp_path / "two")
    (tmp_path / "two").symlink_to(tmp_path / "one")
    for path in (tmp_path / "one", tmp_path / ("n" * 300)):
        with pytest.raises(OutputPathError, match="--json"):
            check_outputs({"--json": path})
    with pytest.raises(OutputPathError, match="an input"):
        check_outputs({}, inputs=[tmp_path / "one"])
