"""The gates that every call walks through, in this order and no other.

1. owner          work recorded across runs belongs to the person who had it done
2. recorded       a settled call is replayed
3. taint_source   an untrusted tool taints the request when it is invoked, not when it succeeds
4. answered       a person's answer, or the wait for it
5. confirm        a tool that asks before every fresh call
6. policy         the caller's guard, which sees approved calls too
7. duplicate      the ladder for repeated side effects: equal arguments, or a person's equal identity
8. halted         a request that was canceled, or is being undone, starts nothing new
9. semantic       asks about what a `findings.Similar` finder found
10. taint         a side effect after untrusted content
11. limits        loops and budgets
12. remember      what the call leaves behind for later ones
13. crash         a call that was begun before and whose end is not known

The more specific reason comes first: a call that a person refused is not also a loop.
"""

from __future__ import annotations

from gnl_core.gates.answered import Answered
from gnl_core.gates.confirm import Confirm
from gnl_core.gates.crash import Crash
from gnl_core.gates.duplicate import Duplicate
from gnl_core.gates.halted import Halted
from gnl_core.gates.limits import Limits
from gnl_core.gates.owner import OwnerGate
from gnl_core.gates.policy import Policy
from gnl_core.gates.recorded import Recorded
from gnl_core.gates.remember import Remember
from gnl_core.gates.semantic import Semantic
from gnl_core.gates.taint import Taint
from gnl_core.gates.taint_source import TaintSource
from gnl_core.verdicts import Gate

GATES: tuple[Gate, ...] = (
    OwnerGate(),
    Recorded(),
    TaintSource(),
    Answered(),
    Confirm(),
    Policy(),
    Duplicate(),
    Halted(),
    Semantic(),
    Taint(),
    Limits(),
    Remember(),
    Crash(),
)
