"""Declared keys -> normalised identity, and when a declaration cannot identify."""

import enum
import uuid
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gnl_core import Identity, IdentityDeclarationError, SemanticIdentity, Unusable, normalize_identity_value


class Depot(enum.Enum):
    IZMIR = "İzmir"


class Kind(enum.IntEnum):
    FIRST = 1


@dataclass
class Address:
    city: str


class Order(pydantic.BaseModel):
    sku: str


SKU = SemanticIdentity(keys=("sku",))


def test_the_default_sentence_holds_tool_and_normalised_keys_only():
    identity = SKU.build("createProduct", {"sku": " ABC ", "price": 12, "note": "again"})
    assert isinstance(identity, Identity)
    assert identity.sentence == "createProduct: abc"
    assert identity.values == {"sku": "abc"}
    assert identity.amounts == {}


def test_describe_is_the_only_text_that_leaves():
    secret = SemanticIdentity(keys=("iban",), describe=lambda args: f"pay {str(args['iban'])[-4:]}")
    identity = secret.build("pay", {"iban": "TR55 0000 1234"})
    assert isinstance(identity, Identity)
    assert identity.sentence == "pay 1234"


def test_a_failing_describe_is_never_replaced_by_the_default_sentence():
    def describe(args):
        raise LookupError("no name")

    with pytest.raises(LookupError):
        SemanticIdentity(keys=("sku",), describe=describe).build("t", {"sku": "a"})


def test_a_describe_that_returns_no_text_is_an_error():
    with pytest.raises(TypeError, match="describe"):
        SemanticIdentity(keys=("sku",), describe=lambda args: None).build("t", {"sku": "a"})  # type: ignore[arg-type,return-value]


def test_an_amount_may_be_larger_than_any_float():
    identity = SemanticIdentity(keys=("sku",), amount_fields=("n",)).build("t", {"sku": 10**400, "n": 10**400})
    assert isinstance(identity, Identity)
    assert identity.amounts == {"n": 10**400}


def test_a_discriminator_may_have_thousands_of_digits():
    identity = SemanticIdentity(keys=("sku",), discriminator_fields=("n",)).build("t", {"sku": "a", "n": 10**5000})
    assert isinstance(identity, Identity)
    assert identity.discriminators["n"].startswith("0x")


def test_amounts_are_finite_numbers_and_discriminators_are_texts():
    identity = SemanticIdentity(
        keys=("sku",), amount_fields=("price", "tax", "fee", "n"), discriminator_fields=("cancel",)
    ).build("t", {"sku": "x", "price": Decimal("9.90"), "tax": float("nan"), "fee": "3", "n": True, "cancel": True})
    assert isinstance(identity, Identity)
    assert identity.amounts == {"price": Decimal("9.90")}
    assert identity.discriminators == {"cancel": "true"}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("INV-1", "inv-1"),
        ("İNV", "inv"),
        ("ınv", "inv"),
        ("i\u0307nv", "inv"),
        ("Straße", "strasse"),
        ("ﬁrma", "firma"),
        ("ＴＶ－４２", "tv-42"),
        ("\ufeff x\u3000", "x"),
        (None, ""),
        (True, "true"),
        (1, "1"),
        (1.0, "1"),
        (-0.0, "0"),
        (Decimal("1.00"), "1"),
        (Decimal("100"), "100"),
        (Decimal("0.50"), "0.5"),
        (1e22, "10000000000000000000000"),
        (12345678901234567890, "12345678901234567890"),
        (10**400, "1" + "0" * 400),
        (Decimal("12345678901234567890123456789012345"), "12345678901234567890123456789012345"),
        (Depot.IZMIR, "izmir"),
        (Kind.FIRST, "1"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (date(2026, 4, 1), "2026-04-01"),
        (datetime(2026, 4, 1, 3, tzinfo=timezone(timedelta(hours=3))), "2026-04-01t00:00:00+00:00"),
        (datetime(2026, 4, 1, 0, tzinfo=UTC), "2026-04-01t00:00:00+00:00"),
    ],
)
def test_normalised_value(value, text):
    assert normalize_identity_value(value) == text


@pytest.mark.parametrize(
    "value", ["x", 1, 1.5, True, False, Decimal(1), uuid.UUID(int=1), Depot.IZMIR, date(2026, 1, 1)]
)
def test_values_that_identify(value):
    assert isinstance(SKU.build("t", {"sku": value}), Identity)


@pytest.mark.parametrize(
    ("value", "cause", "word"),
    [
        (None, "absent", "spelling"),
        ("", "absent", "spelling"),
        ("  \u3000", "absent", "spelling"),
        ([1, 2], "list", "flatten"),
        ((1, 2), "list", "flatten"),
        ({1}, "list", "flatten"),
        ({"city": "İzmir"}, "object", "object"),
        (Address("x"), "object", "object"),
        (Order(sku="x"), "object", "object"),
        (float("nan"), "not-a-number", "finite"),
        (float("inf"), "not-a-number", "finite"),
        (Decimal("NaN"), "not-a-number", "finite"),
        (Decimal("1E+9999999"), "endless", "digits"),
        (Decimal("1E-9999999"), "endless", "digits"),
        (10**1100, "endless", "digits"),
        (b"abc", "bytes", "bytes"),
        (len, "callable", "callable"),
        (lambda: 1, "callable", "callable"),
        (object(), "unsupported", "type"),
    ],
)
def test_values_that_identify_nothing_stand_the_layer_down(value, cause, word):
    fault = SKU.build("t", {"sku": value})
    assert isinstance(fault, Unusable)
    assert fault.cause == cause
    assert fault.keys == ("sku",)
    assert word in fault.message


def test_the_diagnosis_names_fields_and_never_values():
    fault = SemanticIdentity(keys=("customer", "iban")).diagnose({"customer": "Ayşe", "iban": ["TR55-SECRET"]})
    assert fault is not None
    assert fault.keys == ("iban",)
    assert "SECRET" not in fault.message
    assert "Ayşe" not in fault.message


def test_an_absent_optional_key_beside_a_present_one_is_usable():
    both = SemanticIdentity(keys=("sku", "warehouse"))
    identity = both.build("t", {"sku": "a"})
    assert isinstance(identity, Identity)
    assert identity.values == {"sku": "a", "warehouse": ""}
    assert identity.sentence == "t: a"


def test_one_object_poisons_the_whole_declaration():
    fault = SemanticIdentity(keys=("sku", "where")).diagnose({"sku": "a", "where": {"x": 1}})
    assert fault is not None
    assert fault.cause == "object"


@pytest.mark.parametrize("name", ["constructor", "__class__", "keys", "items"])
def test_attributes_of_the_argument_object_are_no_arguments(name):
    fault = SemanticIdentity(keys=(name,)).diagnose({"sku": "a"})
    assert fault is not None
    assert fault.cause == "absent"


@pytest.mark.parametrize(
    "options",
    [
        {"keys": ()},
        {"keys": []},
        {"keys": "sku"},
        {"keys": ("",)},
        {"keys": (1,)},
        {"keys": ("a", "a")},
        {"keys": None},
        {"keys": ("a",), "amount_fields": "price"},
        {"keys": ("a",), "discriminator_fields": (None,)},
    ],
)
def test_a_declaration_that_cannot_work_is_refused_at_once(options):
    with pytest.raises(IdentityDeclarationError):
        SemanticIdentity(**options)


def test_a_list_of_names_is_accepted():
    assert SemanticIdentity(keys=["sku"]).keys == ("sku",)  # type: ignore[arg-type]


@given(st.text())
def test_normalising_is_a_fixed_point(text):
    once = normalize_identity_value(text)
    assert normalize_identity_value(once) == once


@given(st.text(alphabet=st.sampled_from("iIıİ \u0307aA-1ﬁßΣς"), max_size=12))
def test_case_never_splits_one_job(text):
    assert normalize_identity_value(text.upper()) == normalize_identity_value(text)


def test_a_float_that_writes_itself_otherwise_is_its_number():
    class Scalar(float):  # as numpy's float64
        def __repr__(self):
            return f"Scalar({float(self)})"

    assert normalize_identity_value(Scalar(1.5)) == "1.5"


def test_a_time_beyond_the_range_of_utc_is_kept():
    first = datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))
    assert normalize_identity_value(first) == "0001-01-01t00:00:00+14:00"
