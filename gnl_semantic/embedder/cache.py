"""A folder of files that is either whole or not there."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gnl_semantic.errors import ModelCacheError

ENVIRONMENT = "GNL_CACHE_DIR"
MANIFEST = "manifest.json"

_log = logging.getLogger(__name__)


def cache_root(cache_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder for files that can be made again: the argument, `GNL_CACHE_DIR`, or the user's cache folder.

    Raises:
        ModelCacheError: The user has no home folder.
    """
    if cache_dir is not None:
        return Path(cache_dir).expanduser()
    if named := os.environ.get(ENVIRONMENT):
        return Path(named).expanduser()
    # By the XDG rules a relative path there counts as unset.
    if (xdg := Path(os.environ.get("XDG_CACHE_HOME", ""))).is_absolute():
        return xdg / "gnl-semantic"
    try:
        return Path.home() / ".cache" / "gnl-semantic"
    except RuntimeError as error:
        raise ModelCacheError(f"No cache folder: {error}. Set {ENVIRONMENT} or pass cache_dir.") from error


def ensure_folder(target: Path, build: Callable[[], dict[str, bytes]]) -> Path:
    """Return `target`, built first unless it is there and whole.

    It is written beside its place and renamed into it, with a manifest of sizes and hashes; one process builds while
    others wait. A folder that does not agree with its manifest is built again.

    Args:
        target: The folder. Its parent is made as needed.
        build: Makes the contents: file name to bytes.

    Raises:
        ModelCacheError: The folder cannot be written: read-only, full, or no folder at all.
    """
    if _whole(target):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked(target.parent / f".{target.name}.lock"):
            if not _whole(target):
                _build(target, build)
    except OSError as error:
        raise ModelCacheError(
            f"Cannot build the model into {target}: {error.strerror or error}. Free some space (150 MB are needed) or "
            f"choose another folder with {ENVIRONMENT} or cache_dir.",
            path=str(target),
        ) from error
    return target


def _whole(folder: Path) -> bool:
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
        return all(_agrees(folder / name, entry) for name, entry in manifest["files"].items())
    except FileNotFoundError:
        return False
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        _log.debug("No manifest in %s: %r", folder, error)
        return False


def _agrees(file: Path, entry: dict[str, object]) -> bool:
    # The size first: a truncated file needs no reading.
    if file.stat().st_size != entry["bytes"]:
        return False
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == entry["sha256"]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock file; the system frees it when the holder dies."""
    try:
        import fcntl  # noqa: PLC0415
    except ImportError:  # Windows has no such locks; nobody builds there, since the weights' package does not exist.
        yield
        return
    with path.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _build(target: Path, build: Callable[[], dict[str, bytes]]) -> None:
    # Whoever left these was killed, since they are made under the lock only; their room may be needed.
    _remove_parts(target)
    _log.info("Building the model into %s; this happens once", target)
    part = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent))
    try:
        part.chmod(0o755)
        files = build()
        manifest = {
            "files": {
                name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()
            }
        }
        for name, data in {**files, MANIFEST: json.dumps(manifest, indent=1).encode()}.items():
            _write(part / name, data)
        if target.exists() or target.is_symlink():
            _log.warning("%s is damaged and is built again", target)
            target.rename(part.with_suffix(".damaged.part"))
        part.rename(target)
        _sync(target.parent)
    finally:
        _remove_parts(target)


def _remove_parts(target: Path) -> None:
    for part in target.parent.glob(f".{target.name}.*.part"):
        if part.is_dir() and not part.is_symlink():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _sync(folder: Path) -> None:
    with suppress(OSError):  # Some file systems cannot; the manifest finds what a power cut left.
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
