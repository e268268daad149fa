"""The semantic gate's finder: what of a conversation's work looks the same as what a call is about to do."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import Literal

from gnl_core import keys
from gnl_core.errors import ConfigError
from gnl_core.identity import canonical_sentence
from gnl_core.journal.port import Add, Entry, JsonValue, Key, Op
from gnl_core.prior import Found, Notice, Prior, Subject
from gnl_semantic.decide import Finding, Scored, decide
from gnl_semantic.embedder.port import Embedder
from gnl_semantic.embedding import Embedded, Embedding, EmbedFunction
from gnl_semantic.judge.prompt import clean
from gnl_semantic.judge.runtime import Judge, Judged
from gnl_semantic.options import check_options, load, read_rules, stamp_of
from gnl_semantic.past import Past, fold_hash, past_ops, read_past
from gnl_semantic.recall import TOP_K
from gnl_semantic.rules import RULESET_VERSION, Rules
from gnl_semantic.threshold import UNKNOWN_THRESHOLD, SentenceForm, threshold_warning
from gnl_semantic.vectors import VECTORS, VectorCache

EMBED_SECONDS = 5.0
"""How long one embedding may hold a call up: then the call goes on without it."""

SEARCH_SECONDS = 5.0
"""How long the search for earlier work may hold a call up, the reading of a scope that no memory holds included."""

_MOST_EXACT = 500
"""Most records of one folded identity that are looked at."""

_MOST_MISSED = 500
"""Most calls of which it is remembered that their text could not be embedded."""

logger = logging.getLogger(__name__)


class SemanticGate:
    """Finds past work of a conversation that looks the same; for `Duplicates(semantic=…)`.

    It proposes and never decides: what it finds may become a question to a person. Where anything of it fails or takes
    too long, the call goes on as if there were no such layer.

    Args:
        embed: 'local' for the built-in model, or any other name that `load_embedder` takes; an `Embedder`; or a
            function from texts to vectors. Names are loaded here, which takes about a second, once a process.
        embed_model_id: Stamp of the vectors of a function: model and quantisation. Vectors of two stamps are never
            compared.
        min_similarity: Cosine from which a record is a candidate, -1 to 1. None takes the embedder's measured
            threshold, for a function 0.60.
        top_k: Candidates by cosine, 1 to 100. Records whose identity folds alike are candidates beside them.
        rules: True for the rule ladder, `Rules(…)` for other options of it, False for none.
        judge: `Judge(…)` that looks at one gray pair a call; None leaves gray pairs counted.
        embed_timeout: Seconds that one embedding may take, above 0.

    Raises:
        ConfigError: An argument that cannot work, or a model that cannot be loaded; the message names it.
    """

    def __init__(
        self,
        *,
        embed: str | Embedder | EmbedFunction = "local",
        embed_model_id: str | None = None,
        min_similarity: float | None = None,
        top_k: int = TOP_K,
        rules: bool | Rules = False,
        judge: Judge | None = None,
        embed_timeout: float = EMBED_SECONDS,
        cache: VectorCache = VECTORS,
    ) -> None:
        check_options(min_similarity, top_k, embed_timeout)
        chosen = load(embed) if isinstance(embed, str) else embed
        self._min_similarity = min_similarity
        self._top_k = top_k
        self._rules = read_rules(rules)
        if judge is not None and not isinstance(judge, Judge):
            raise ConfigError(f"SemanticGate.judge is {type(judge).__name__}, must be Judge(…) or None")
        self._judge = judge
        self._profile = chosen.profile if isinstance(chosen, Embedder) else None
        self._embedding = Embedding(chosen, stamp=stamp_of(chosen, embed_model_id), seconds=embed_timeout)
        self._cache = cache
        self._missed: deque[tuple[object, ...]] = deque(maxlen=_MOST_MISSED)
        self._lock = threading.Lock()

    @property
    def embed_model_id(self) -> str:
        """The stamp of its vectors."""
        return self._embedding.stamp

    def check(self) -> tuple[str, ...]:
        """Return what a caller should read before a run starts."""
        warnings: list[str] = []
        measured = self._profile.measured if self._profile is not None else ()
        known = next((one for one in measured if one.form == "canonical"), None)
        doubt = threshold_warning(self.embed_model_id, self._min_similarity, known)
        if doubt is not None:
            warnings.append(doubt)
        if self._judge is not None:
            warnings += self._judge.check()
            if self._rules is None:
                warnings.append(
                    "the semantic gate has a judge and no rules, so that every pair whose identity differs is judged: "
                    "set rules=True, which settles many of them for free"
                )
        return tuple(warnings)

    def freeze(self) -> dict[str, JsonValue]:
        """Return its settings as JSON."""
        rules = self._rules
        return {
            "embed_model_id": self.embed_model_id,
            "min_similarity": self._min_similarity,
            "top_k": self._top_k,
            "rules": None
            if rules is None
            else {
                "version": RULESET_VERSION,
                "size_ladders": [list(ladder) for ladder in rules.size_ladders],
                "gazetteers": [list(gazetteer) for gazetteer in rules.gazetteers],
                "short_code_max_len": rules.short_code_max_len,
                "disable": list(rules.disable),
            },
            "judge": self._judge.freeze() if self._judge is not None else None,
        }

    # Find ----------------------------------------------------------------------------------------------------------

    async def find(self, subject: Subject, *, judge: bool) -> Found:
        """Return what looks alike; see `gnl_core.prior.Similar`."""
        counts: dict[str, int] = {"guarded": 1}
        try:
            return await self._find(subject, counts, judge=judge)
        except Exception as error:  # a store that cannot be read must cost no call
            logger.exception("work like call %s of run %s could not be looked for", subject.call, subject.run)
            detail: dict[str, JsonValue] = {"no_scan": True, "cause": type(error).__name__}
            if self._embedding.take_outage():
                detail["embedder_outage"] = True
            return Found(counts=counts, notices=(self._scan_notice(subject, detail),))

    async def _find(self, subject: Subject, counts: dict[str, int], *, judge: bool) -> Found:
        # One after the other: the embedder's threads want every core, and reads beside them slow both down.
        rows = await self._looked(subject)
        embedded = await self._embed(subject)
        counts |= {
            "embedded": int(embedded.called),
            "embed_hits": int(embedded.cached),
            "embed_ms": embedded.milliseconds,
        }
        if isinstance(rows, Exception):
            raise rows  # only now: the record needs the vector all the same
        async with asyncio.timeout(SEARCH_SECONDS):
            candidates, dropped_stamp = await self._recall(subject, rows, embedded)
        finding = decide(subject.identity, candidates, rules=self._rules)
        if finding.asked is not None:
            return Found(prior=self._prior(subject, finding.asked, finding.origin, finding), counts=counts)
        gray = int(judge and finding.gray is not None)  # no judge is asked beside a question that is asked anyway
        counts["gray"] = gray
        notices: list[Notice] = []
        if judge and self._judge is not None and finding.gray is not None and _says_both(subject, finding.gray.past):
            judged = await self._judge.ask(
                subject, finding.gray.past, score=finding.gray.score, ruleset_version=RULESET_VERSION
            )
            counts |= {
                "judged": int(judged.called),
                "judge_hits": int(judged.cached),
                "judge_ms": judged.latency_ms if judged.called else 0,
            }
            if judged.outcome == "same":
                prior = self._prior(subject, finding.gray, "judge", finding, judged)
                detail: dict[str, JsonValue] = {"stale_replaced": True} if judged.stale_replaced else {}
                return Found(prior=prior, detail=detail, counts=counts)
            notices.append(_judge_notice(subject, finding.gray, judged))
        scan: dict[str, JsonValue] = {
            "dropped_identity": finding.dropped_identity,
            "dropped_by_rule": finding.dropped_by_rule,
            "dropped_discriminator": finding.dropped_discriminator,
            "dropped_stamp": dropped_stamp,
            "gray_calls": gray,
            "embedder_outage": self._embedding.take_outage(),
        }
        if any(scan.values()):
            notices.append(self._scan_notice(subject, {name: value for name, value in scan.items() if value}))
        return Found(notices=tuple(notices), counts=counts)

    async def _embed(self, subject: Subject) -> Embedded:
        embedded = await self._embedding.embed(subject.identity.sentence)
        if embedded.vector is None:
            with self._lock:
                self._missed.append(_drive_of(subject))
        return embedded

    async def _again(self, subject: Subject) -> Embedded:
        """Embed for a call's record. What has just failed for this call does not hold it up once more."""
        with self._lock:
            if _drive_of(subject) in self._missed:
                return Embedded(vector=None)
        return await self._embed(subject)

    async def _looked(self, subject: Subject) -> tuple[Entry | None, set[str], set[str]] | Exception:
        try:
            async with asyncio.timeout(SEARCH_SECONDS):
                return await self._look(subject)
        except Exception as error:
            return error

    async def _look(self, subject: Subject) -> tuple[Entry | None, set[str], set[str]]:
        """Read the scope's generation, the pairs that a person let pass, and the records whose identity folds alike."""
        journal, scope, tool = subject.journal, subject.scope, subject.tool
        tombs, folds = (
            keys.tombstones_of(scope, tool, subject.args_hash),
            keys.folds_of(scope, tool, fold_hash(subject.identity.values)),
        )
        read, passed, alike = await asyncio.gather(
            journal.get_many([keys.generation(scope, tool)]),
            journal.scan(tombs, limit=_MOST_EXACT),
            journal.scan(folds, limit=_MOST_EXACT),
        )
        return read.entries[0], _last_of(passed.entries, tombs), _last_of(alike.entries, folds)

    async def _recall(
        self, subject: Subject, rows: tuple[Entry | None, set[str], set[str]], embedded: Embedded
    ) -> tuple[list[Scored], int]:
        generation, passed, alike = rows
        if embedded.vector is None:
            return [], 0  # without an embedder nothing is asked: what it would have found is not known
        recalled = await self._cache.recall(
            subject,
            generation=generation,
            stamp=self.embed_model_id,
            query=embedded.vector,
            k=self._top_k,
            threshold=self._threshold(subject),
            exact=alike,
            dead={subject.args_hash, *passed},
        )
        scores = dict(recalled.scored)
        if not scores:
            return [], recalled.dropped_stamp
        wanted: list[Key] = [keys.similar(subject.scope, subject.tool, name) for name in scores]
        read = await subject.journal.get_many(wanted)
        if None in read.entries:
            self._cache.forget(subject)  # it was erased behind the cache
        found: list[Scored] = []
        for place, entry in zip(wanted, read.entries, strict=True):
            if entry is None and scores[place[-1]] is not None:
                self._cache.forget(subject)  # it is erased, and what is held of it goes too
            past = read_past(entry, subject.scope, subject.tool) if entry is not None else None
            if past is not None and not _is_old(past, subject):
                found.append(Scored(past=past, score=scores[past.args_hash], exact=past.args_hash in alike))
        return found, recalled.dropped_stamp

    def _threshold(self, subject: Subject) -> float:
        if self._min_similarity is not None:
            return self._min_similarity
        if self._profile is None:
            return UNKNOWN_THRESHOLD
        identity = subject.identity
        form: SentenceForm = (
            "canonical" if identity.sentence == canonical_sentence(subject.tool, identity.values) else "bare"
        )
        return self._profile.threshold_for(form)

    def _prior(
        self,
        subject: Subject,
        one: Scored,
        origin: Literal["identity", "rule", "judge"],
        finding: Finding,
        judged: Judged | None = None,
    ) -> Prior:
        past = one.past
        return Prior(
            origin=origin,
            run_id=past.run,
            tool_call_id=past.call,
            at=past.at,
            sentence=past.sentence,
            present=subject.identity.sentence,
            score=None if one.score is None else round(one.score, 4),
            prior_hash=past.args_hash,
            identity_keys=subject.identity_keys,
            amounts_differ=finding.amounts_differ,
            traces=tuple(
                {"rule": trace.rule, "class": trace.rule_class, "field": trace.field, "direction": trace.direction}
                for trace in finding.traces
            ),
            judge=_evidence(judged) if judged is not None else None,
        )

    def _scan_notice(self, subject: Subject, detail: dict[str, JsonValue]) -> Notice:
        facts: dict[str, JsonValue] = {
            **detail,
            "tool": subject.tool,
            "embed_model_id": self.embed_model_id,
            "identity_keys": list(subject.identity_keys),
        }
        if self._rules is not None:
            facts["ruleset_version"] = RULESET_VERSION
        told = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in detail.items())
        message = f"{subject.tool}: no earlier work was shown ({told})"
        return Notice(source="semantic-guard", message=message, detail=facts)

    # Remember ------------------------------------------------------------------------------------------------------

    async def remember(self, subject: Subject) -> tuple[Op, ...]:
        """Return the operations that record the call's work; see `gnl_core.prior.Similar`."""
        try:
            return await self._to_keep(subject)
        except Exception:  # what is not remembered is not found: today's behaviour, and the call goes on
            logger.exception("what call %s of run %s looks like could not be kept", subject.call, subject.run)
            return ()

    async def _to_keep(self, subject: Subject) -> tuple[Op, ...]:
        place = keys.similar(subject.scope, subject.tool, subject.args_hash)
        read, embedded = await asyncio.gather(subject.journal.get_many([place]), self._again(subject))
        ops = past_ops(subject, stamp=self.embed_model_id, vector=embedded.vector, known=read.entries[0])
        if embedded.called:  # by a drive that looked for nothing: a person had let the call pass
            cost = {"embedded": 1, "embed_ms": embedded.milliseconds}
            ops = (*ops, Add(keys.semantic_counts(subject.root), cost))
        return ops


def _drive_of(subject: Subject) -> tuple[object, ...]:
    """Name a call within one drive of its request."""
    return (subject.journal.store_id, subject.root, subject.fence, subject.run, subject.call)


def _judge_notice(subject: Subject, gray: Scored, judged: Judged) -> Notice:
    outcome = f"skipped:{judged.cause}" if judged.outcome == "skipped" else judged.outcome
    detail: dict[str, JsonValue] = {
        "tool": subject.tool,
        "outcome": outcome,
        "args_hash": subject.args_hash,
        "prior_hash": gray.past.args_hash,
        "score": gray.score,
        "ruleset_version": RULESET_VERSION,
        "identity_keys": list(subject.identity_keys),
        "judge": dict(judged.evidence),
    }
    if judged.outcome != "skipped":
        detail["cached"] = judged.cached
    if judged.called or judged.cached:  # one that came to nothing took its time, too
        detail["latency_ms"] = judged.latency_ms
    if judged.stale_replaced:
        detail["stale_replaced"] = True
    return Notice(source="semantic-judge", message=f"{subject.tool}: a gray pair was {outcome}", detail=detail)


def _evidence(judged: Judged) -> dict[str, JsonValue]:
    return {**judged.evidence, "cached": judged.cached, "latency_ms": judged.latency_ms}


def _says_both(subject: Subject, past: Past) -> bool:
    """Whether there is anything to compare: a describe() may leave a sentence empty, and two of those are alike."""
    return bool(clean(subject.identity.sentence) and clean(past.sentence))


def _is_old(past: Past, subject: Subject) -> bool:
    return subject.ttl_ms is not None and subject.now - past.at > subject.ttl_ms


def _last_of(entries: Sequence[Entry], prefix: Key) -> set[str]:
    """Return the last segments of the rows right below a prefix."""
    return {entry.key[-1] for entry in entries if len(entry.key) == len(prefix) + 1}
