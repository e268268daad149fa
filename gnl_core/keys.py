"""Every key of the journal: the only place where one is spelt or parsed.

A key is a tuple of segments. Encoded, a segment keeps [A-Za-z0-9._~:-] and writes every other byte of its UTF-8 as %XX;
segments are joined with '/'. A prefix is whole segments: the row at it, and the range [p + '/', p + '0'), since '0'
follows '/' in ASCII. So 'r-1' is no prefix of 'r-10', and no character of an id is a wildcard anywhere.

===========================================  ======================================================================
key                                          what stands there
===========================================  ======================================================================
run/<root>/req/lock                          who drives the request; its version is the fence that each batch expects
run/<root>/req/beat                          last sign of life of the driver
run/<root>/req/halt                          nothing new starts: it was canceled, or its effects are being undone
run/<root>/req/taint                         the first untrusted content that entered it
run/<root>/req/semantic                      counters: guarded calls, embeddings, calls of the judge
run/<root>/req/slot/<n>                      one call of the judge that the request has paid for
run/<root>/<part>/head                       status, times, who and what: the run as lists show it; its outcome
run/<root>/<part>/input                      the frozen request
run/<root>/<part>/model/<step>               one model step: response, and request as a splice on the step before
run/<root>/<part>/msg/<hash>                 a message that no other record yields
run/<root>/<part>/body/<hash>                tools, settings or system prompt of a request, once each
run/<root>/<part>/tool/<step>/<position>     one tool call
run/<root>/<part>/args/<tool>/<hash>         the same, keyed by its arguments within the run
run/<root>/<part>/answer/<call>/<kind>/<n>   a person's answer to the question that attempt n asked
run/<root>/<part>/question/<call>/<kind>/<n>  the earlier work that a question shows beside the call
run/<root>/<part>/evidence/<call>/<n>        what a body returned after its call had been given up
run/<root>/<part>/nudge/<tool>/<source>/<hash>  the model was asked once to reconsider
run/<root>/<part>/incident/<call>/<source>/<action>  something that an operator may want to read
run/<root>/<part>/comp/<call>                the undoing of one effect
run/<root>/<part>/claim/<step>               exclusive claim on one model step
run/<root>/~/step/<name>                     a workflow's step by its name: which call it is
run/<root>/~/wait/<name>                     a workflow waits here for somebody to send it something
run/<root>/~/sent/<name>                     what was sent
run/<root>/~/output                          what a workflow came to
run/<root>/~/rollover                        the work was begun anew under another id
run/<root>/<part>/cfg/model                  which candidate of a fallback chain won
xrun/args/<tool>/<hash>                      a tool call keyed by its arguments across runs
xthr/<thread>/args/<tool>/<hash>             the same within one conversation
<scope> = xthr/<thread>
<scope>/dup/<tool>/<hash>                    a side effect with these arguments is under way, or was done
<scope>/sem/<tool>/<hash>                    what it was, as a sentence with its vector
<scope>/semfold/<tool>/<fold>/<hash>         the same, by the fold of its identity
<scope>/semgen/<tool>                        counter: grows with each such record
<scope>/semtomb/<tool>/<new>/<prior>         a person let the pair pass: it is not asked about again
<scope>/semjudge/<tool>/<low>/<high>         a judge's verdict on a pair, whichever came first
<scope>/semvec/<tool>/<stamp>/<n>            copies of the vectors of many such records, to be read fast; never changed
<scope>/semvec/<tool>/<stamp>/new/<hash>     a copy of one that stands in no such block yet
xid/<resource>/<tool>/<hash>                 a person's work by its normalised identity, from whatever channel
batch/<batch>/plan                           the items of a batch that was begun, by their digest
batch/<batch>/report                         what became of them
thread/<thread>/owner                        the first person whose run named the conversation
thread/<thread>/taint                        untrusted content that entered the conversation
mem/<thread>/of/<resource>                   the person's runs worked in the conversation; updated with each of them
mem/<thread>/nobody                          runs of no person did
resthr/<resource>/<thread>                   a run of the person in the conversation was swept: erasure follows it
resbatch/<resource>/<batch>/<item>           a run that did the person's item of the batch was swept: the same
org/<organisation>                           everything of an organisation is being erased, or was
ix/status|agent|res|thr/<value>/<t13>/<root> runs by status, agent, person, thread; <t13> = time of the status change
ix/work/<hash>/<t13>/<root>                  runs of named work, by 16 hex digits of the name's digest
ix/exec/<first>/<t13>/<root>                 executions of work that was first done by the run <first>
ix/ask/<t13>/<root>/<part>/<call>            questions that wait for a person
ix/inc/<t13>/<root>/<part>/<call>/<source>/<action>  incidents by time
swept/<root>                                 the run stood here until its time was over: no more than that is known
idem/conflict/<t13>/<root>/<n>               somebody was refused a run; outlives the run
===========================================  ======================================================================

<part> is '~' for the root run and the child's id for a sub-agent's. Ids compare as bytes: nothing here normalises,
since two spellings that look alike are two ids (hashes of arguments normalise, keys never do). Nothing may rely on the
order between siblings, except fields made for it: steps and blocks have 6 digits, positions 3, milliseconds 13.
"""

from __future__ import annotations

from typing import Literal

from gnl_core.ids import MAX_ENCODED_ID as MAX_ENCODED_ID
from gnl_core.ids import MAX_ID as MAX_ID
from gnl_core.ids import MAX_KEY as MAX_KEY
from gnl_core.ids import ROOT as ROOT
from gnl_core.ids import batch_of as batch_of
from gnl_core.ids import call_id as call_id
from gnl_core.ids import check_id as check_id
from gnl_core.ids import check_item as check_item
from gnl_core.ids import check_run_id as check_run_id
from gnl_core.ids import child_id as child_id
from gnl_core.ids import decode as decode
from gnl_core.ids import derived_base as derived_base
from gnl_core.ids import encode as encode
from gnl_core.ids import encode_segment as encode_segment
from gnl_core.ids import execution_id as execution_id
from gnl_core.ids import execution_of as execution_of
from gnl_core.ids import is_derived as is_derived
from gnl_core.ids import item_run_id as item_run_id
from gnl_core.ids import parse_call_id as parse_call_id
from gnl_core.ids import prefix_range as prefix_range
from gnl_core.ids import run_id_of as run_id_of
from gnl_core.ids import split_run_id as split_run_id
from gnl_core.journal.port import Key

Index = Literal["status", "agent", "res", "thr", "work", "exec"]

TIMED: tuple[Key, ...] = (("ix", "ask"), ("ix", "inc"))
"""Prefixes of the indexes that name a run in their fourth segment, after a time."""

THREAD_PARTS = ("semgen", "sem", "semfold", "semjudge", "semtomb", "semvec", "args", "dup")
"""What stands below the scope of a conversation, in the order in which it is erased: without its generation, whatever
is left of the semantic records is believed by no cache."""


# Families ----------------------------------------------------------------------------------------------------------


def request(root: str) -> Key:
    """Everything of one request: one scan loads it, one delete erases it."""
    return ("run", root)


def lock(root: str) -> Key:
    """Who drives the request."""
    return ("run", root, "req", "lock")


def beat(root: str) -> Key:
    """Last sign of life of the driver."""
    return ("run", root, "req", "beat")


def halt(root: str) -> Key:
    """Set once nothing new may start in the request: it was canceled, or its effects are being undone."""
    return ("run", root, "req", "halt")


def taint(root: str) -> Key:
    """First untrusted content of the request."""
    return ("run", root, "req", "taint")


def thread_taint(thread: str) -> Key:
    """First untrusted content of a conversation."""
    return ("thread", thread, "taint")


def head(root: str, part: str = ROOT) -> Key:
    """The run as lists show it."""
    return ("run", root, part, "head")


def input_of(root: str, part: str = ROOT) -> Key:
    """The frozen request."""
    return ("run", root, part, "input")


def model(root: str, part: str, step: int) -> Key:
    """One model step."""
    return ("run", root, part, "model", f"{step:06d}")


def message(root: str, part: str, digest: str) -> Key:
    """A message that no other record yields."""
    return ("run", root, part, "msg", digest)


def body(root: str, part: str, digest: str) -> Key:
    """Tools, settings or system prompt of a request."""
    return ("run", root, part, "body", digest)


def tool(root: str, part: str, step: int, position: int) -> Key:
    """One tool call."""
    return ("run", root, part, "tool", f"{step:06d}", f"{position:03d}")


def args(root: str, part: str, tool_name: str, digest: str) -> Key:
    """A tool call keyed by its arguments within one run."""
    return ("run", root, part, "args", tool_name, digest)


def xrun_args(tool_name: str, digest: str) -> Key:
    """A tool call keyed by its arguments across runs."""
    return ("xrun", "args", tool_name, digest)


def xthr_args(thread: str, tool_name: str, digest: str) -> Key:
    """A tool call keyed by its arguments within one conversation."""
    return ("xthr", thread, "args", tool_name, digest)


def answer(root: str, part: str, call: str, kind: str, attempt: int) -> Key:
    """A person's answer to one question."""
    return ("run", root, part, "answer", call, kind, f"{attempt:03d}")


def evidence(root: str, part: str, call: str, attempt: int) -> Key:
    """What a body returned after its call had been given up."""
    return ("run", root, part, "evidence", call, f"{attempt:03d}")


def nudge(root: str, part: str, tool_name: str, source: str, digest: str) -> Key:
    """The model was asked once to reconsider."""
    return ("run", root, part, "nudge", tool_name, source, digest)


def incident(root: str, part: str, call: str, source: str, action: str) -> Key:
    """Something that an operator may want to read."""
    return ("run", root, part, "incident", call, source, action)


def compensation(root: str, part: str, call: str) -> Key:
    """The undoing of one effect."""
    return ("run", root, part, "comp", call)


def model_claim(root: str, part: str, step: int) -> Key:
    """Exclusive claim on one model step."""
    return ("run", root, part, "claim", f"{step:06d}")


def winner(root: str, part: str) -> Key:
    """Which candidate of a fallback chain won."""
    return ("run", root, part, "cfg", "model")


def workflow_step(root: str, name: str) -> Key:
    """A workflow's step by its name."""
    return ("run", root, ROOT, "step", name)


def workflow_wait(root: str, name: str) -> Key:
    """A place where a workflow waits for somebody to send it something."""
    return ("run", root, ROOT, "wait", name)


def workflow_sent(root: str, name: str) -> Key:
    """What was sent to a workflow's wait."""
    return ("run", root, ROOT, "sent", name)


def workflow_output(root: str) -> Key:
    """What a workflow came to."""
    return ("run", root, ROOT, "output")


def rollover(root: str) -> Key:
    """The work was begun anew under another id: {'next'}."""
    return ("run", root, ROOT, "rollover")


def thread_owner(thread: str) -> Key:
    """The first person whose run named the conversation."""
    return ("thread", thread, "owner")


def thread_of(thread: str) -> Key:
    """The prefix of what a conversation itself is said to be."""
    return ("thread", thread)


def index(name: Index, value: str, at: int, root: str) -> Key:
    """A root run under one of its attributes, by the time of its last status change."""
    return ("ix", name, value, f"{at:013d}", root)


def ask(at: int, root: str, part: str, call: str) -> Key:
    """A question that waits for a person."""
    return ("ix", "ask", f"{at:013d}", root, part, call)


def index_of_incidents() -> Key:
    """The prefix under which incidents stand by time."""
    return ("ix", "inc")


def incident_index(at: int, incident_key: Key) -> Key:
    """An incident, by when it was noticed."""
    _, root, part, _, call, source, action = incident_key
    return ("ix", "inc", f"{at:013d}", root, part, call, source, action)


def incident_of_index(key: Key) -> Key | None:
    """Return the key of the incident that an index row names; None where it is no such row."""
    return incident(*key[3:]) if len(key) == 8 and key[:2] == ("ix", "inc") else None


# Batches -----------------------------------------------------------------------------------------------------------


def batch(batch_id: str) -> Key:
    """The prefix of a batch's own rows; its items are runs."""
    return ("batch", batch_id)


def batch_plan(batch_id: str) -> Key:
    """The items of a batch that was begun."""
    return (*batch(batch_id), "plan")


def batch_report(batch_id: str) -> Key:
    """What became of a batch's items."""
    return (*batch(batch_id), "report")


# Earlier work ------------------------------------------------------------------------------------------------------


def semantic_counts(root: str) -> Key:
    """What a request asked of the finder of similar work: a counter row."""
    return ("run", root, "req", "semantic")


def judge_slot(root: str, number: int) -> Key:
    """One call of the judge that the request has paid for."""
    return ("run", root, "req", "slot", f"{number:04d}")


def question(root: str, part: str, call: str, kind: str, attempt: int) -> Key:
    """What a question showed beside the call."""
    return ("run", root, part, "question", call, kind, f"{attempt:03d}")


def thread_scope(thread: str) -> Key:
    """The scope of one conversation: what the rows of earlier work begin with."""
    return ("xthr", thread)


def marker(scope: Key, tool_name: str, digest: str) -> Key:
    """A side effect with these arguments is under way in the scope, or was done."""
    return (*scope, "dup", tool_name, digest)


def similar_of(scope: Key, tool_name: str) -> Key:
    """The prefix of a tool's semantic records."""
    return (*scope, "sem", tool_name)


def similar(scope: Key, tool_name: str, digest: str) -> Key:
    """One semantic record."""
    return (*similar_of(scope, tool_name), digest)


def folds_of(scope: Key, tool_name: str, fold: str) -> Key:
    """The prefix of the records whose identity has this fold."""
    return (*scope, "semfold", tool_name, fold)


def fold(scope: Key, tool_name: str, fold_hash: str, digest: str) -> Key:
    """One semantic record by the fold of its identity."""
    return (*folds_of(scope, tool_name, fold_hash), digest)


def generation(scope: Key, tool_name: str) -> Key:
    """Grows with each semantic record: what a cache of them is held against."""
    return (*scope, "semgen", tool_name)


def tombstones_of(scope: Key, tool_name: str, new: str) -> Key:
    """The prefix of the pairs of one call that a person let pass."""
    return (*scope, "semtomb", tool_name, new)


def tombstone(scope: Key, tool_name: str, new: str, prior: str) -> Key:
    """A pair that a person let pass; the new call's digest comes first, so that one scan finds all of its pairs."""
    return (*tombstones_of(scope, tool_name, new), prior)


def judged(scope: Key, tool_name: str, one: str, other: str) -> Key:
    """A judge's verdict on a pair; the order of the two does not matter."""
    return (*scope, "semjudge", tool_name, *sorted((one, other)))


def vectors_of(scope: Key, tool_name: str, stamp: str) -> Key:
    """The prefix of the copies of a tool's vectors of one stamp; 'semvec' follows 'semgen', so it is erased later."""
    return (*scope, "semvec", tool_name, stamp)


def vector_block(vectors: Key, number: int) -> Key:
    """Copies of the vectors of many records, 1 for the oldest, below what `vectors_of` returns."""
    return (*vectors, f"{number:06d}")


def new_vectors_of(scope: Key, tool_name: str, stamp: str) -> Key:
    """The prefix of the copies that stand in no block yet; 'new' follows every number."""
    return (*vectors_of(scope, tool_name, stamp), "new")


def new_vector(scope: Key, tool_name: str, stamp: str, digest: str) -> Key:
    """A copy of the vector of one record that stands in no block yet."""
    return (*new_vectors_of(scope, tool_name, stamp), digest)


def person_identity(resource: str, tool_name: str, digest: str) -> Key:
    """A person's work by its normalised identity."""
    return ("xid", resource, tool_name, digest)


def jobs_of(resource: str) -> Key:
    """The prefix of a person's work by its normalised identity."""
    return ("xid", resource)


# What outlives a run -----------------------------------------------------------------------------------------------


def swept(root: str) -> Key:
    """What a sweep leaves of a run: that it was here."""
    return ("swept", root)


def all_swept() -> Key:
    """The prefix of what sweeps left of every run."""
    return ("swept",)


def conflicts() -> Key:
    """The prefix of the refusals that were noted."""
    return ("idem", "conflict")


def conflict(at: int, root: str, tag: str) -> Key:
    """Somebody was refused a run; the tag keeps two refusals of one millisecond apart."""
    return (*conflicts(), f"{at:013d}", root, tag)


def worked(thread: str, resource: str | None) -> Key:
    """A person's runs, or those of nobody, worked in a conversation."""
    return ("mem", thread, "of", resource) if resource else ("mem", thread, "nobody")


def workers_of(thread: str) -> Key:
    """The prefix of all whose runs worked in a conversation."""
    return ("mem", thread)


def trace(resource: str, thread: str) -> Key:
    """What a sweep leaves of a run that named both: so that an erasure finds the conversation."""
    return (*traces_of(resource), thread)


def traces_of(resource: str) -> Key:
    """The prefix of a person's traces."""
    return ("resthr", resource)


def all_traces() -> Key:
    """The prefix of every person's traces."""
    return ("resthr",)


def item_trace(resource: str, batch_id: str, item: str) -> Key:
    """What a sweep leaves of a person's item of a batch: so that an erasure finds it in the batch's report."""
    return (*item_traces_of(resource), batch_id, item)


def item_traces_of(resource: str) -> Key:
    """The prefix of a person's traces in batches."""
    return (*all_item_traces(), resource)


def all_item_traces() -> Key:
    """The prefix of every person's traces in batches."""
    return ("resbatch",)


def erased_org(org: str) -> Key:
    """Everything of an organisation is being erased, or was; it stands outside of the organisation."""
    return ("org", org)


def ledger(namespace: str) -> Key:
    """The prefix of one namespace of what outlives runs."""
    return ("idem", namespace)


def beyond(prefix: Key) -> Key:
    """Return a key that follows every key below the prefix, and precedes every other that follows them."""
    return (*prefix, "~" * (MAX_ID + 1))
