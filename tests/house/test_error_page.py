"""Each code has its line in docs/errors.md, with its status, and no line is left over."""

import inspect
import re
from pathlib import Path

import gnl_core.errors

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")


def test_the_page_lists_every_error_as_it_is():
    listed = set(re.findall(r"^\| `(\w+)` \| (\d+) \| (yes|no) \| `(\w+)` \| (.+) \|$", PAGE, re.MULTILINE))
    errors = [
        error
        for _, error in inspect.getmembers(gnl_core.errors, inspect.isclass)
        if issubclass(error, gnl_core.errors.GnlError)
    ]
    expected = {
        (
            error.code,
            str(error.http_status),
            "yes" if error.resumable else "no",
            error.__name__,
            inspect.getdoc(error).split("\n\n")[0].replace("\n", " "),
        )
        for error in errors
    }
    assert listed == expected
