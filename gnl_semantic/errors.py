"""Every error of the semantic layer, derived from the runtime's tree.

GnlError
├── EmbedderError                     an embedder could not turn texts into vectors
│   ├── EmbedderInputError            a text that no embedder can take
│   └── StampMismatchError            vectors of two models were about to be compared
├── JudgeError                        one call of a judge failed; the call costs no question
│   ├── JudgeTimeoutError             no answer within the limit
│   ├── JudgeRateLimitedError         429; carries the seconds to wait where the server said them
│   ├── JudgeServerError              5xx
│   ├── JudgeRefusedError             any other 4xx: key, model name or request are wrong
│   ├── JudgeUnreachableError         no connection
│   └── JudgeAnswerMissingError       a recorded judge has no answer to this prompt
└── ConfigError
    ├── ModelNotFoundError            no such model folder, or its files are missing
    ├── ModelInvalidError             the files are there and cannot be used
    ├── ModelCacheError               the built-in model cannot be written to the cache folder
    ├── JudgeConfigError              a judge that cannot be loaded
    ├── RulesError                    a ladder configuration that means nothing
    ├── KeyInvalidError               a key that cannot sign, or cannot verify a signature
    └── CertificateError              a judge certificate that does not hold here
        ├── CertificateMissingError       none was given
        ├── CertificateUnreadableError    no certificate, or a number was edited
        ├── CertificateUnwritableError    cannot be put on disk
        ├── CertificateVersionError       written in a format this release does not read
        ├── CertificateSignatureError     unsigned, signed by a stranger, or edited under its signature
        ├── CertificateModelError         issued for another judge model
        ├── CertificatePromptError        issued for another prompt
        ├── CertificateRecallError        paraphrase recall below the bar
        ├── CertificateFalseAlarmError    near-miss false alarms above the bar
        ├── CertificateLanguageError      none or too few of its pairs are in a language that is needed
        ├── CertificateProvisionalError   provisional, where certified ones alone are accepted
        └── CertificateExpiredError       past the expiry written into it
"""

from __future__ import annotations

from gnl_core.errors import ConfigError, GnlError


class EmbedderError(GnlError):
    """An embedder could not turn texts into vectors."""

    code = "embedder_failed"
    http_status = 502
    resumable = True


class EmbedderInputError(EmbedderError):
    """A text that no embedder can take: not a string, or with half a surrogate pair."""

    code = "embedder_input_invalid"
    http_status = 422
    resumable = False


class StampMismatchError(EmbedderError):
    """Vectors of two models were about to be compared; their cosine means nothing."""

    code = "embedder_stamp_mismatch"
    http_status = 409
    resumable = False


class ModelNotFoundError(ConfigError):
    """No such model folder, or files of it are missing."""

    code = "model_not_found"
    http_status = 404


class ModelInvalidError(ConfigError):
    """The model's files are there and cannot be used."""

    code = "model_invalid"


class ModelCacheError(ConfigError):
    """The built-in model cannot be built into the cache folder."""

    code = "model_cache_failed"
    http_status = 507


class JudgeError(GnlError):
    """One call of a judge failed. It is never credited and costs no question."""

    code = "judge_failed"
    http_status = 502
    resumable = True


class JudgeTimeoutError(JudgeError):
    """No answer within the limit."""

    code = "judge_timeout"
    http_status = 504


class JudgeRateLimitedError(JudgeError):
    """The server asked to slow down; `retry_after` in seconds where it said how long."""

    code = "judge_rate_limited"
    http_status = 429

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message, retry_after=retry_after)
        self.retry_after = retry_after


class JudgeServerError(JudgeError):
    """The server failed with a 5xx."""

    code = "judge_server_error"


class JudgeRefusedError(JudgeError):
    """The server refused the request: the key, the model name or the request is wrong."""

    code = "judge_refused"
    resumable = False


class JudgeUnreachableError(JudgeError):
    """No connection to the server."""

    code = "judge_unreachable"


class JudgeAnswerMissingError(JudgeError):
    """A recorded judge has no answer to this prompt."""

    code = "judge_answer_missing"
    resumable = False


class JudgeConfigError(ConfigError):
    """A judge that cannot be loaded."""

    code = "judge_config_invalid"


class RulesError(ConfigError):
    """A ladder configuration that means nothing."""

    code = "rules_invalid"


class KeyInvalidError(ConfigError):
    """A key that cannot sign, or cannot verify a signature: no Ed25519 key, or locked by another passphrase."""

    code = "key_invalid"


class CertificateError(ConfigError):
    """A judge certificate that does not hold here."""

    code = "certificate_invalid"


class CertificateMissingError(CertificateError):
    """No certificate was given."""

    code = "certificate_missing"


class CertificateUnreadableError(CertificateError):
    """The file is no certificate, or was edited after it was issued."""

    code = "certificate_unreadable"


class CertificateUnwritableError(CertificateError):
    """The certificate cannot be put on disk."""

    code = "certificate_unwritable"
    http_status = 507


class CertificateVersionError(CertificateError):
    """The certificate has a format that this release does not read."""

    code = "certificate_version"


class CertificateSignatureError(CertificateError):
    """The certificate is unsigned, signed by a key that is not trusted here, or was edited after it was signed."""

    code = "certificate_signature"


class CertificateModelError(CertificateError):
    """The certificate was issued for another judge model."""

    code = "certificate_model"


class CertificatePromptError(CertificateError):
    """The certificate was issued for another prompt."""

    code = "certificate_prompt"


class CertificateRecallError(CertificateError):
    """The certified paraphrase recall lies below the bar."""

    code = "certificate_recall"


class CertificateFalseAlarmError(CertificateError):
    """The certified near-miss false alarms lie above the bar."""

    code = "certificate_false_alarms"


class CertificateLanguageError(CertificateError):
    """None of the exam's pairs, or too few, were in a language that the judge is needed for."""

    code = "certificate_language"


class CertificateProvisionalError(CertificateError):
    """The certificate is provisional, where only certified ones are accepted."""

    code = "certificate_provisional"


class CertificateExpiredError(CertificateError):
    """The certificate's own expiry has passed."""

    code = "certificate_expired"
