"""Keys and signatures as commands. A passphrase comes from the environment, never from the command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gnl_core.errors import MissingExtraError
from gnl_qualify.errors import OutputPathError
from gnl_qualify.terminal import complain, plain, tell
from gnl_semantic.errors import KeyInvalidError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

PASSPHRASE_ENV = "GNL_SIGN_PASSPHRASE"  # noqa: S105 - the name of a variable
_FILE = click.Path(path_type=Path)
_passphrase_option = click.option(
    "--passphrase-env",
    metavar="NAME",
    default=PASSPHRASE_ENV,
    show_default=True,
    help="Environment variable that holds the private key's passphrase.",
)


@click.command()
@click.option("--private", type=_FILE, default="private.pem", show_default=True, help="The new private key, locked.")
@click.option("--public", type=_FILE, default="public.pem", show_default=True, help="The new public key.")
@_passphrase_option
def keygen(private: Path, public: Path, passphrase_env: str) -> None:
    """Make a pair of Ed25519 keys to sign certificates with.

    Exit status: 0 done, 2 the options or files cannot be used.
    """
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
    except ImportError:
        raise MissingExtraError("A signature", "sign") from None

    passphrase = os.environ.get(passphrase_env)
    if not passphrase:
        raise KeyInvalidError(f"--passphrase-env {passphrase_env}: is not set: a private key is never kept unlocked")
    for option, path in (("--private", private), ("--public", public)):
        if os.path.lexists(path):
            raise OutputPathError(f"{option} {path}: exists, and keys are never overwritten: name another file")
    if private.resolve() == public.resolve():
        raise OutputPathError(f"--public {public}: is the output of --private too: name another file")
    key = Ed25519PrivateKey.generate()
    _create(
        "--private",
        private,
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(os.fsencode(passphrase)),
        ),
        mode=0o600,
    )
    _create("--public", public, _pem(key.public_key()), mode=0o644)
    tell(f"{plain(str(private))}: keep it secret; {plain(str(public))}: give it to those who should trust you")


@click.command()
@click.argument("certificate", type=_FILE)
@click.option("--key", type=_FILE, required=True, help="The private key, PEM.")
@_passphrase_option
def sign(certificate: Path, key: Path, passphrase_env: str) -> None:
    """Sign CERTIFICATE, and write the signature into it.

    A key of your own may come from openssl too: openssl genpkey -algorithm ed25519 -aes256 -out private.pem

    Exit status: 0 signed, 2 the options or files cannot be used.
    """
    from gnl_semantic.judge.certificate import read_certificate, write_certificate  # noqa: PLC0415
    from gnl_semantic.judge.signature import read_private_key, sign_content  # noqa: PLC0415

    paper = read_certificate(certificate)
    signature = sign_content(paper.content(), read_private_key(key, os.environ.get(passphrase_env)))
    if paper.signature is not None:
        complain(f"the signature of key {paper.signature.public_key[:16]} is replaced")
    write_certificate(certificate, paper.model_copy(update={"signature": signature}))
    tell(f"{plain(str(certificate))}: signed by key {signature.public_key}")


def signature_faults(certificate: Path, key: Path) -> list[str]:
    """Return why a certificate is not one that this public key signed, a line each; empty where it is.

    Raises:
        CertificateError: The file has not the shape of a certificate.
        KeyInvalidError: The key cannot be read or is no Ed25519 public key.
    """
    from gnl_qualify.verify import read_unchecked  # noqa: PLC0415
    from gnl_semantic.errors import CertificateSignatureError  # noqa: PLC0415
    from gnl_semantic.judge.signature import check_signature  # noqa: PLC0415

    try:
        data = key.read_bytes()
    except OSError as error:
        raise KeyInvalidError(f"{key}: cannot be read: {error.strerror}") from None
    paper, _ = read_unchecked(certificate)
    try:
        check_signature(paper.content(), paper.signature, [data])
    except CertificateSignatureError as error:
        return [f"signature: {error}"]
    return []


def _pem(key: Ed25519PublicKey) -> bytes:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _create(option: str, path: Path, data: bytes, *, mode: int) -> None:
    """Write a new file whose rights are narrow from its first byte on."""
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
    except OSError as error:
        raise OutputPathError(f"{option} {path}: cannot be written: {error.strerror}") from None
