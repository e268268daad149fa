"""What every report shares: the template environment, and the style with its hash."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import lru_cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from gnl_core.errors import MissingExtraError
from gnl_reports.text import Html, ordinal, p_value, plain, shown, shown_value

if TYPE_CHECKING:
    from jinja2 import Environment


def render_page(template: str, values: Mapping[str, object]) -> str:
    """Return a template of this package as one HTML document that loads nothing and runs nothing.

    Every string that a template writes goes through `shown`: forgetting to ask for it is not possible. Templates put
    numbers and their own words into attributes, never strings from outside.

    Args:
        template: Name of a file under `templates/`.
        values: What the template reads; a missing one is an error.

    Raises:
        MissingExtraError: Jinja2 is not installed.
    """
    style = _style()
    policy_hash = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    page = _environment().get_template(template)
    return page.render(**values, style=style, style_hash=Html(policy_hash))


@lru_cache(maxsize=1)
def _environment() -> Environment:
    try:
        import jinja2  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("HTML reports", "qualify") from None

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("gnl_reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "lines": lambda text: shown(text, lines=True),
        "identity": shown_value,
        "in_title": lambda text: Html(escape(plain(text))),
        "share": share,
        "p_value": p_value,
        "ordinal": ordinal,
        "share_near": share_near,
    }
    return environment


def _visible(value: object) -> object:
    return shown(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


@lru_cache(maxsize=1)
def _style() -> Html:
    return Html((files("gnl_reports") / "templates" / "style.css").read_text(encoding="utf-8"))


def share(value: float) -> str:
    """Return a share in [0, 1] with three decimals."""
    return f"{value:.3f}"


def share_near(value: float, limit: float) -> str:
    """Return a share so that it never looks equal to a limit from which it differs."""
    return next(
        (text for digits in (3, 4, 5) if float(text := f"{value:.{digits}f}") != limit or value == limit),
        f"{value:.9g}",
    )
