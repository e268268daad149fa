"""Write a file so that it is, at any moment, the old one whole or the new one whole."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file in one step; a link is followed and stays a link.

    The bytes are on the disk before the name points at them, so a power cut leaves one of the two files.

    Raises:
        OSError: It cannot be written; what stood there before still stands.
    """
    path = path.resolve()
    draft = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}.tmp")
    try:
        with draft.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
