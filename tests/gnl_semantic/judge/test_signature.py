"""Signed certificates: who signed, and which field was edited since."""

import json
import sys
from datetime import UTC, datetime

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from gnl_core.errors import ConfigError, MissingExtraError
from gnl_semantic.errors import (
    CertificateProvisionalError,
    CertificateSignatureError,
    CertificateUnreadableError,
    KeyInvalidError,
)
from gnl_semantic.judge.certificate import Certificate, check_certificate, parse_certificate
from gnl_semantic.judge.prompt import PROMPT_VERSION, PROMPTS
from gnl_semantic.judge.signature import parse_public_key, read_private_key, sign_content


def pem(key):
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


@pytest.fixture(scope="module")
def key():
    return Ed25519PrivateKey.generate()


@pytest.fixture(scope="module")
def other():
    return Ed25519PrivateKey.generate()


@pytest.fixture
def unsigned():
    return Certificate.issue(
        v=1,
        fixture_set_id="0123456789abcdef",
        judge_model_id="judge@1",
        judge_prompt_version=PROMPT_VERSION,
        paraphrase_recall=0.8,
        near_miss_fp=0.0,
        passed_at="2999-01-01T00:00:00+00:00",
        status="provisional",
        expires_at=None,
        prompt_sha256=PROMPTS[PROMPT_VERSION].sha256,
        parser_version="1",
        ruleset_version="1",
        library_version="0.1.0",
        transcript_sha256="a" * 64,
        seed=7,
        judge_spec="judge.py",
        judge_engine="python-file",
        judge_parameters={"deep": [{"ş": None}]},
        fixture_set_name="çift",
        fixture_set_private=True,
        fixture_set_sampled_from=None,
        pairs_by_label={"dup-paraphrase": 10, "near-miss": 10},
        pairs_by_language={"tr": 20},
        counts_by_label={"dup-paraphrase": {"same": 8, "different": 2}, "near-miss": {"different": 10}},
        recall={"k": 8, "n": 10, "low": 0.49, "high": 0.94, "bound": 0.49},
        false_alarms={"k": 0, "n": 10, "low": 0.0, "high": 0.28, "bound": 0.26},
        recall_by_domain=None,
        false_alarms_by_domain=None,
        worst_domain=None,
        worst_domain_right=None,
        repeat=None,
        order=None,
        latency={"p50_ms": None, "p95_ms": None, "max_ms": None, "limit_ms": 8000.0},
        tokens_in=None,
        tokens_out=None,
        baselines=[],
        sitting=3,
    )


@pytest.fixture
def signed(unsigned, key):
    return unsigned.model_copy(update={"signature": sign_content(unsigned.content(), key)})


def check(certificate, **options):
    return check_certificate(
        certificate,
        judge_model_id="judge@1",
        prompt_version=PROMPT_VERSION,
        prompt_sha256=PROMPTS[PROMPT_VERSION].sha256,
        now=datetime(2999, 1, 2, tzinfo=UTC),
        **options,
    )


def test_a_signed_certificate_is_read_back_and_holds_for_whoever_trusts_the_key(signed, key, other):
    again = parse_certificate(json.loads(signed.to_json()))
    assert again == signed
    assert check(again, trusted_keys=[pem(other), pem(key)]) == ()
    assert check(again, trusted_keys=[key.public_key().public_bytes_raw().hex()]) == ()
    assert check(again, trusted_keys=[pem(key).decode()]) == ()


def test_an_unsigned_one_holds_where_nobody_asks_and_nowhere_else(unsigned, key):
    assert check(unsigned) == ()
    for keys in ([pem(key)], []):
        with pytest.raises(CertificateSignatureError, match="not signed") as caught:
            check(unsigned, trusted_keys=keys)
        assert caught.value.detail["cause"] == "unsigned"


def test_a_strangers_signature_is_refused_with_his_key(signed, other, key):
    with pytest.raises(CertificateSignatureError, match=key.public_key().public_bytes_raw().hex()[:16]) as caught:
        check(signed, trusted_keys=[pem(other)])
    assert caught.value.detail["cause"] == "foreign"
    assert check(signed) == ()


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"nearMissFp": 0.01}, "nearMissFp"),
        ({"expiresAt": "2999-09-09T00:00:00+00:00"}, "expiresAt"),
        ({"judgeParameters": {"deep": [{"ş": 1}]}}, "judgeParameters"),
        ({"sitting": 1}, "sitting"),
    ],
)
def test_an_edited_field_is_named_even_under_a_fresh_hash(signed, key, change, name):
    raw = json.loads(signed.to_json()) | change
    with pytest.raises(CertificateUnreadableError, match=rf"edited: {name}\)"):
        parse_certificate(raw)
    raw["sha256"] = Certificate.model_validate(raw).content_sha256()
    with pytest.raises(CertificateSignatureError, match=f"edited after it was signed: {name}:") as caught:
        check(parse_certificate(raw), trusted_keys=[pem(key)])
    assert caught.value.detail == {"cause": "edited", "fields": [name]}
    with pytest.raises(CertificateSignatureError, match=f"edited after it was signed: {name}:"):
        check(parse_certificate(raw))


def test_digests_edited_along_with_their_field_do_not_fit_the_signature(signed, key, other):
    edited = signed.model_copy(update={"sitting": 1})
    fresh = sign_content(edited.content(), other).fields
    forged = edited.model_copy(update={"signature": signed.signature.model_copy(update={"fields": fresh})})
    with pytest.raises(CertificateSignatureError) as caught:
        check(forged, trusted_keys=[pem(key)])
    assert caught.value.detail["cause"] == "forged"


def test_a_signature_moved_from_another_certificate_names_what_differs(signed, unsigned, key):
    other = unsigned.model_copy(update={"judge_model_id": "judge@2"})
    moved = signed.model_copy(update={"signature": sign_content(other.content(), key)})
    with pytest.raises(CertificateSignatureError, match="judgeModelId"):
        check(moved, trusted_keys=[pem(key)])


def test_the_same_key_over_other_words_is_no_signature_of_a_certificate(signed, key):
    bare = key.sign(json.dumps(signed.signature.fields).encode()).hex()
    with pytest.raises(CertificateSignatureError):
        check(
            signed.model_copy(update={"signature": signed.signature.model_copy(update={"value": bare})}),
            trusted_keys=[pem(key)],
        )


@pytest.mark.parametrize(
    "bad", ["", "abc", b"\xff", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----", "0" * 63, "ş" * 64]
)
def test_a_trusted_key_that_is_none_is_a_fault_of_the_configuration(signed, bad):
    with pytest.raises(KeyInvalidError, match="neither"):
        check(signed, trusted_keys=[bad])


def test_keys_of_another_kind_are_refused(tmp_path):
    foreign = X25519PrivateKey.generate()
    with pytest.raises(KeyInvalidError, match="must be an Ed25519 public key"):
        parse_public_key(pem(foreign))
    path = tmp_path / "k.pem"
    path.write_bytes(foreign.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    with pytest.raises(KeyInvalidError, match="must be an Ed25519 private key"):
        read_private_key(path, None)


def test_a_locked_key_opens_with_its_passphrase_alone(tmp_path, key):
    path = tmp_path / "k.pem"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption("şifre".encode())))
    assert read_private_key(path, "şifre").private_bytes_raw() == key.private_bytes_raw()
    for passphrase, message in ((None, "locked"), ("", "locked"), ("sifre", "passphrase is wrong")):
        with pytest.raises(KeyInvalidError, match=message):
            read_private_key(path, passphrase)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    assert read_private_key(path, "not needed").private_bytes_raw() == key.private_bytes_raw()


def test_what_is_no_private_key_is_said_to_be_none(tmp_path):
    with pytest.raises(KeyInvalidError, match="cannot be read"):
        read_private_key(tmp_path / "none.pem", None)
    (tmp_path / "k.pem").write_text("hello")
    with pytest.raises(KeyInvalidError, match="no private key"):
        read_private_key(tmp_path / "k.pem", None)


def test_a_provisional_certificate_is_accepted_unless_certified_is_required(signed):
    assert check(signed) == check(signed, require="provisional") == ()
    with pytest.raises(CertificateProvisionalError, match=r"0\.490 for recall .* 0\.260 for false alarms"):
        check(signed, require="certified")
    with pytest.raises(ConfigError, match="require is 'failed'"):
        check(signed, require="failed")


def test_without_cryptography_the_extra_is_named_and_unasked_certificates_hold(signed, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)
    for use in (lambda: check(signed, trusted_keys=["0" * 64]), lambda: read_private_key(tmp_path / "k.pem", None)):
        with pytest.raises(MissingExtraError, match=r"pip install 'gnl-semantic\[sign\]'"):
            use()
    assert check(signed) == ()
