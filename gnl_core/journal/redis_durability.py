"""What a Redis server's settings mean for a journal."""

from __future__ import annotations

from collections.abc import Mapping

from gnl_core.journal.durability import DurabilityFinding, DurabilityLevel
from gnl_core.journal.redis_errors import is_answer, refusal
from gnl_core.journal.redis_replicas import WaitReplicas
from gnl_core.journal.redis_wire import Line

_SETTINGS = ("maxmemory-policy", "appendonly", "appendfsync")
_UNKNOWN = "The server does not allow CONFIG GET: ask who runs it. "


async def read_settings(line: Line) -> dict[str, str]:
    """Read the settings that matter; those that the server does not tell are left out.

    Raises:
        JournalError: The server cannot be asked.
    """
    found: dict[str, str] = {}
    for name in _SETTINGS:
        try:
            answer = await line.ask("CONFIG", "GET", name)
        except Exception as error:
            if not is_answer(error):
                raise
            return found
        if len(answer) == 2:
            found[name] = answer[1].decode(errors="replace")
    return found


def keeps_all(settings: Mapping[str, str]) -> bool:
    """Tell whether the server syncs each write before it answers."""
    return settings.get("appendonly") == "yes" and settings.get("appendfsync") == "always"


async def report(line: Line, where: str, wait: WaitReplicas | None) -> tuple[DurabilityFinding, ...]:
    """Read the settings, the role and the replicas, and say what they mean.

    Raises:
        JournalError: The server cannot be asked.
    """
    settings = await read_settings(line)
    return (
        _version(await _facts(line, where, "server")),
        _appendonly(settings.get("appendonly", "")),
        _appendfsync(settings),
        _policy(settings.get("maxmemory-policy", "")),
        *_replication(await _facts(line, where, "replication"), wait),
    )


async def _facts(line: Line, where: str, section: str) -> dict[str, str]:
    try:
        answer = await line.ask("INFO", section)
    except Exception as error:
        if is_answer(error):
            found = refusal(error, where, writes=False)
            if found.detail.get("redis") == "NOPERM":
                return {}
            raise found from error
        raise
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def _finding(setting: str, value: str, level: DurabilityLevel, meaning: str) -> DurabilityFinding:
    return DurabilityFinding(setting=setting, value=value, level=level, meaning=meaning)


def _version(facts: Mapping[str, str]) -> DurabilityFinding:
    found = facts.get("valkey_version") or facts.get("redis_version", "")
    if not found:
        return _finding("server_version", "", "note", "The server does not allow INFO: ask who runs it.")
    return _finding("server_version", found, "ok", f"The release of the server, {facts.get('server_name', 'redis')}.")


def _appendonly(value: str) -> DurabilityFinding:
    if value == "yes":
        return _finding("appendonly", value, "ok", "What is written goes to the append-only file too.")
    if not value:
        return _finding("appendonly", value, "note", _UNKNOWN + "Without an append-only file a restart loses writes.")
    return _finding(
        "appendonly",
        value,
        "fault",
        "Nothing but snapshots reaches the disk: a restart loses what was acknowledged since the last one, and an "
        "effect may happen twice. Set appendonly yes.",
    )


def _appendfsync(settings: Mapping[str, str]) -> DurabilityFinding:
    value = settings.get("appendfsync", "")
    if not value:
        return _finding("appendfsync", value, "note", _UNKNOWN + "Only always syncs before it answers.")
    if settings.get("appendonly") != "yes":
        return _finding("appendfsync", value, "note", "Has no meaning without appendonly yes.")
    if value == "always":
        return _finding("appendfsync", value, "ok", "What was acknowledged is on disk.")
    lost = "about a second of" if value == "everysec" else "whatever the system had not yet written of the"
    return _finding(
        "appendfsync",
        value,
        "fault",
        f"A power cut loses {lost} acknowledged writes, and an effect may happen twice; the end of the server's "
        "process alone loses none. Set appendfsync always.",
    )


def _policy(value: str) -> DurabilityFinding:
    if value == "noeviction":
        return _finding("maxmemory-policy", value, "ok", "A full memory refuses writes, and drops nothing.")
    if not value:
        return _finding("maxmemory-policy", value, "note", _UNKNOWN + "Only noeviction drops nothing.")
    return _finding(
        "maxmemory-policy",
        value,
        "fault",
        "A full memory drops rows of the journal, and a dropped claim lets an effect happen twice. Set noeviction.",
    )


def _replication(facts: Mapping[str, str], wait: WaitReplicas | None) -> tuple[DurabilityFinding, ...]:
    role = facts.get("role", "")
    if not role:
        return (_finding("role", "", "note", "The server does not allow INFO: ask who runs it."),)
    if role != "master":
        return (_finding("role", role, "fault", "A replica takes no writes, and may be behind: name the primary."),)
    primary = _finding("role", role, "ok", "The primary of its replicas, or alone.")
    replicas = facts.get("connected_slaves", "0")
    if replicas == "0":
        meaning = "No replica: nothing can fail over and lose writes so; a disk that is lost takes all with it."
        return (primary, _finding("replicas", replicas, "note", meaning))
    meaning = "Replication is asynchronous: a fail-over may lose acknowledged writes, and an effect may happen twice. "
    if wait is None:
        return (
            primary,
            _finding("replicas", replicas, "fault", meaning + "WaitReplicas makes that seldom, not never."),
        )
    meaning += (
        f"Batches wait for {wait.replicas} of the replicas, which makes that seldom, not never: the replica that takes "
        "over may be another."
    )
    return (primary, _finding("replicas", replicas, "note", meaning))
