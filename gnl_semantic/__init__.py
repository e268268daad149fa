"""The finder of past work that looks the same. It may put a question to a person, and nothing else.

The rooms: `gnl_semantic.embedder` (texts to vectors), `gnl_semantic.ladder` (the rules), `gnl_semantic.judge`.
"""

from gnl_core.identity import SemanticIdentity
from gnl_semantic.ladder import RULESET_VERSION, LadderResult, Rules, evaluate, ladder_fold
from gnl_semantic.rate import Rate

__all__ = ["RULESET_VERSION", "LadderResult", "Rate", "Rules", "SemanticIdentity", "evaluate", "ladder_fold"]
