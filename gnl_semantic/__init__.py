"""The finder of past work that looks the same. It may put a question to a person, and nothing else."""

from gnl_core.identity import SemanticIdentity

__all__ = ["SemanticIdentity"]
