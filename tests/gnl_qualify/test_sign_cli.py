"""Signing as its users meet it: real processes, real keys, a passphrase that never stands on a command line."""

import json
import shutil
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from gnl_semantic.judge.certificate import Certificate, read_certificate

LOCK = {"GNL_SIGN_PASSPHRASE": "bir şifre"}


@pytest.fixture(scope="module")
def sat(room, tmp_path_factory):
    """A folder with a set, a certificate with its transcript, and a pair of keys."""
    folder = tmp_path_factory.mktemp("imza odası 日本")
    room.write_set(folder / "pairs.json", room.set_of(10))
    (folder / "judge.py").write_text(room.PERFECT, encoding="utf-8")
    done = room.run("--judge", "judge.py", "--model", "m", "--fixtures", "pairs.json", "--out", "c.json", cwd=folder)
    assert done.returncode == 0, done.stderr
    made = room.run("keygen", cwd=folder, env=LOCK)
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture
def desk(sat, tmp_path):
    """A copy of that folder to work in."""
    return Path(shutil.copytree(sat, tmp_path / sat.name))


@pytest.fixture
def ask(room, desk):
    return lambda *args, env=LOCK: room.run(*args, cwd=desk, env=env)


def edit(desk, **changes):
    """Edit the certificate and hash it again, as someone would who means it."""
    path = desk / "c.json"
    raw = json.loads(path.read_text(encoding="utf-8")) | changes
    raw["sha256"] = Certificate.model_validate(raw).content_sha256()
    path.write_text(json.dumps(raw), encoding="utf-8")


def test_from_keygen_to_verify(ask, desk):
    assert stat.S_IMODE((desk / "private.pem").stat().st_mode) == 0o600
    assert b"ENCRYPTED" in (desk / "private.pem").read_bytes()
    before = read_certificate(desk / "c.json")
    signed = ask("sign", "c.json", "--key", "private.pem")
    assert signed.returncode == 0, signed.stderr
    after = read_certificate(desk / "c.json")
    assert after.signature.public_key in signed.stdout
    assert after.model_copy(update={"signature": None}) == before
    files = ("--transcript", "c.transcript.jsonl", "--fixtures", "pairs.json")
    done = ask("verify", "c.json", "--key", "public.pem", *files, env={})
    assert (done.returncode, done.stderr) == (0, "")
    assert "signed by this key as it stands, and every field follows from the transcript" in done.stdout
    assert ask("verify", "c.json", *files, env={}).returncode == 0


def test_an_edited_certificate_is_refused_with_its_field(ask, desk):
    ask("sign", "c.json", "--key", "private.pem")
    edit(desk, judgeModelId="a-better-model")
    done = ask("verify", "c.json", "--key", "public.pem")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("signature: edited after it was signed: judgeModelId: ")


def test_an_unsigned_and_a_foreign_one_are_told_apart(ask, desk):
    done = ask("verify", "c.json", "--key", "public.pem")
    assert done.returncode == 1
    assert done.stdout.startswith("signature: the certificate is not signed")
    assert ask("keygen", "--private", "p2.pem", "--public", "q2.pem").returncode == 0
    assert ask("sign", "c.json", "--key", "p2.pem").returncode == 0
    done = ask("verify", "c.json", "--key", "public.pem")
    assert done.returncode == 1
    assert "none of the 1 trusted ones" in done.stdout
    again = ask("sign", "c.json", "--key", "private.pem")
    assert "is replaced" in again.stderr
    assert ask("verify", "c.json", "--key", "public.pem").returncode == 0


def test_a_key_made_elsewhere_signs_too(ask, desk):
    bare = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (desk / "own.pem").write_bytes(bare)
    assert ask("sign", "c.json", "--key", "own.pem", env={}).returncode == 0


@pytest.mark.parametrize(
    ("args", "env", "message"),
    [
        (("keygen",), LOCK, "--private private.pem: exists"),
        (("keygen", "--private", "x.pem"), LOCK, "--public public.pem: exists"),
        (("keygen", "--private", "x.pem", "--public", "x.pem"), LOCK, "the output of --private too"),
        (("keygen", "--private", "no/x.pem", "--public", "y.pem"), LOCK, "cannot be written"),
        (("keygen", "--private", "x.pem", "--public", "y.pem"), {}, "GNL_SIGN_PASSPHRASE: is not set"),
        (("sign", "c.json", "--key", "private.pem"), {}, "locked by a passphrase"),
        (("sign", "c.json", "--key", "private.pem"), {"GNL_SIGN_PASSPHRASE": "x"}, "the passphrase is wrong"),
        (("sign", "c.json", "--key", "private.pem", "--passphrase-env", "OTHER"), LOCK, "locked by a passphrase"),
        (("sign", "c.json", "--key", "public.pem"), LOCK, "no private key"),
        (("sign", "none.json", "--key", "private.pem"), LOCK, "there is no certificate"),
        (("sign", "pairs.json", "--key", "private.pem"), LOCK, "sit the exam again"),
        (("verify", "c.json"), {}, "--transcript of the exam, the --key"),
        (("verify", "c.json", "--key", "none.pem"), {}, "none.pem: cannot be read"),
        (("verify", "c.json", "--key", "private.pem"), {}, "neither a public key in PEM"),
        (("verify", "c.json", "--key", "public.pem", "--fixtures", "pairs.json"), {}, "without --transcript"),
    ],
)
def test_what_cannot_be_used_exits_2_with_one_line(ask, desk, args, env, message):
    before = (desk / "c.json").read_bytes()
    done = ask(*args, env=env)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert (desk / "c.json").read_bytes() == before
    assert not (desk / "x.pem").exists()
