"""Signatures of certificates: Ed25519 over a digest of every field.

Digests by field, and not one hash of the whole, so that an edited certificate is refused with the name of the field,
without the transcript at hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gnl_core.canonical import canonical_json, digest
from gnl_core.errors import MissingExtraError
from gnl_semantic.errors import CertificateSignatureError, KeyInvalidError
from gnl_semantic.judge.certificate_parts import CertifiedSignature

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_PURPOSE = b"gnl-semantic certificate, signature format 1\0"
"""Signed in front of the digests, so that a signature of this key over something else never fits a certificate."""


def sign_content(content: Mapping[str, object], key: Ed25519PrivateKey) -> CertifiedSignature:
    """Return the signature of a certificate's content.

    Args:
        content: Values by their names on disk, JSON-representable.
        key: From `read_private_key` or `cryptography`.
    """
    fields = _digests(content)
    return CertifiedSignature(
        algorithm="ed25519",
        public_key=key.public_key().public_bytes_raw().hex(),
        fields=fields,
        value=key.sign(_message(fields)).hex(),
    )


def check_signature(
    content: Mapping[str, object], signature: CertifiedSignature | None, trusted_keys: Sequence[str | bytes]
) -> None:
    """Refuse content that none of the trusted keys has signed as it stands.

    Args:
        content: Values by their names on disk.
        signature: What stands beside them, if anything.
        trusted_keys: Public keys, PEM or 64 hex digits.

    Raises:
        CertificateSignatureError: Unsigned, signed by another key, or edited; `detail` has 'cause' and, of an edit,
            'fields'.
        KeyInvalidError: A trusted key is no Ed25519 public key.
        MissingExtraError: `cryptography` is not installed.
    """
    keys = {key.public_bytes_raw().hex(): key for key in map(parse_public_key, trusted_keys)}
    if signature is None:
        raise CertificateSignatureError(
            "the certificate is not signed, and this configuration trusts signed ones alone: have its issuer run "
            "gnl-semantic-qualify sign",
            cause="unsigned",
        )
    key = keys.get(signature.public_key)
    if key is None:
        raise CertificateSignatureError(
            f"the certificate is signed by key {signature.public_key[:16]}…, which is none of the {len(keys)} trusted "
            "ones: add the key if you trust its owner, or have the certificate signed by one you trust",
            cause="foreign",
        )
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415

    try:
        key.verify(bytes.fromhex(signature.value), _message(signature.fields))
    except InvalidSignature:
        raise CertificateSignatureError(
            f"the signature is not one of key {signature.public_key[:16]}… over these field digests: it was edited or "
            "moved here from another certificate",
            cause="forged",
        ) from None
    refuse_edited(content, signature)


def refuse_edited(content: Mapping[str, object], signature: CertifiedSignature) -> None:
    """Refuse content that is not what the digests beside a signature say, whoever signed them.

    Raises:
        CertificateSignatureError: A field differs; `detail` has 'cause' and 'fields'.
    """
    edited = edited_fields(content, signature)
    if edited:
        raise CertificateSignatureError(
            f"edited after it was signed: {', '.join(edited)}: restore the certificate or have it signed again",
            cause="edited",
            fields=edited,
        )


def edited_fields(content: Mapping[str, object], signature: CertifiedSignature) -> list[str]:
    """Return the fields whose values are not the signed ones, in the order of the certificate."""
    now = _digests(content)
    return [name for name in dict.fromkeys([*now, *signature.fields]) if now.get(name) != signature.fields.get(name)]


def parse_public_key(key: str | bytes) -> Ed25519PublicKey:
    """Return a public key given as PEM or as 64 hex digits.

    Raises:
        KeyInvalidError: It is neither, or of another algorithm.
        MissingExtraError: `cryptography` is not installed.
    """
    try:
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("A signature", "sign") from None

    data = key.encode("utf-8", "replace") if isinstance(key, str) else key
    try:
        if b"-----" not in data:
            return Ed25519PublicKey.from_public_bytes(bytes.fromhex(data.strip().decode()))
        loaded = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        raise KeyInvalidError("a trusted key is neither a public key in PEM nor 64 hex digits") from None
    if not isinstance(loaded, Ed25519PublicKey):
        raise KeyInvalidError(f"a trusted key is {type(loaded).__name__}, must be an Ed25519 public key")
    return loaded


def read_private_key(path: Path, passphrase: str | None) -> Ed25519PrivateKey:
    """Read a private key in PEM.

    Args:
        path: The file.
        passphrase: Unlocks it; a key that is not locked is read without.

    Raises:
        KeyInvalidError: No such file, no Ed25519 private key, or another passphrase.
        MissingExtraError: `cryptography` is not installed.
    """
    try:
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("A signature", "sign") from None

    try:
        data = path.read_bytes()
    except OSError as error:
        raise KeyInvalidError(f"{path}: cannot be read: {error.strerror}") from None
    locked = b"ENCRYPTED" in data
    if locked and not passphrase:
        raise KeyInvalidError(f"{path}: is locked by a passphrase: put it into the environment variable that is named")
    try:
        key = load_pem_private_key(data, passphrase.encode(errors="surrogateescape") if locked and passphrase else None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        why = "the passphrase is wrong, or it" if locked else "it"
        raise KeyInvalidError(f"{path}: {why} is no private key in PEM") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise KeyInvalidError(f"{path}: is {type(key).__name__}, must be an Ed25519 private key")
    return key


def _digests(content: Mapping[str, object]) -> dict[str, str]:
    return {name: digest(value) for name, value in content.items()}


def _message(fields: Mapping[str, str]) -> bytes:
    return _PURPOSE + canonical_json(dict(fields)).encode()
