"""What the runtime stands on: errors, canonical JSON, and the identity of a call."""

from gnl_core.canonical import args_hash, canonical_json
from gnl_core.errors import (
    ConfigError,
    GnlError,
    IdentityDeclarationError,
    MissingExtraError,
    NotCanonicalError,
)
from gnl_core.identity import Identity, SemanticIdentity, Unusable, normalize_identity_value

__all__ = [
    "ConfigError",
    "GnlError",
    "Identity",
    "IdentityDeclarationError",
    "MissingExtraError",
    "NotCanonicalError",
    "SemanticIdentity",
    "Unusable",
    "args_hash",
    "canonical_json",
    "normalize_identity_value",
]
