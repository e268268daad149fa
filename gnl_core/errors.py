"""Every error of the runtime: one tree, each leaf with a stable code.

    GnlError
    ├── ConfigError                    what was asked for cannot work; nothing has been done
    │   ├── IdentityDeclarationError   a SemanticIdentity that can identify nothing
    │   └── MissingExtraError          an optional dependency is not installed
    └── NotCanonicalError              a value that has no canonical JSON form

Codes are API: they are pinned by a test and never change their meaning. A message says what is wrong, where, and the
way out. The packages above this one derive their own errors from `GnlError` (or `ConfigError`) in their `errors.py`.
"""

from __future__ import annotations

from typing import ClassVar


class GnlError(Exception):
    """Base of all errors of this distribution.

    Attributes:
        code: Stable, lower-case, snake-case name of the error.
        http_status: The status a server in front of the runtime would answer with.
        resumable: Whether the same call may be made again without a change, once the cause has passed.
        detail: Facts for programs, JSON-representable; names and numbers, never contents of a caller's data.
    """

    code: ClassVar[str] = "gnl_error"
    http_status: ClassVar[int] = 500
    resumable: ClassVar[bool] = False

    def __init__(self, message: str, **detail: object) -> None:
        super().__init__(message)
        self.detail: dict[str, object] = detail


class ConfigError(GnlError):
    """What was asked for cannot work; raised before anything is done."""

    code = "config_invalid"
    http_status = 400


class IdentityDeclarationError(ConfigError):
    """A `SemanticIdentity` whose declaration can identify no call at all."""

    code = "identity_declaration_invalid"


class MissingExtraError(ConfigError, ImportError):
    """An optional dependency is not installed; the message names the pip command that brings it."""

    code = "missing_extra"

    def __init__(self, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs the extra [{extra}]: pip install 'gnl-semantic[{extra}]'", feature=feature, extra=extra
        )


class NotCanonicalError(GnlError, ValueError):
    """A value that has no canonical JSON form; the message names its path."""

    code = "not_canonical"
    http_status = 422
