import pytest

from gnl_core.identity import normalize_identity_value
from gnl_semantic.judge.local.atoms import MOST_ATOMS, atoms
from gnl_semantic.judge.local.matching import match


def matched(a, b):
    """Kinds of the pairs that are not spelt alike, and what is left over on either side."""
    a, b = sorted(map(normalize_identity_value, (a, b)))
    left, right = atoms(a), atoms(b)
    found = match(left, right)
    kinds = {kind for _, _, kind in found.pairs} - {"equal"}
    return kinds, [left[n].text for n in found.rest_left], [right[n].text for n in found.rest_right]


@pytest.mark.parametrize(
    ("a", "b", "kinds"),
    [
        ("two boxes", "2 boxes", {"reading"}),
        ("mil quinientos", "1500", {"reading"}),
        ("iki yüz elli", "250", {"reading"}),
        ("on beş bin", "15.000", {"reading"}),
        ("第二倉庫", "第2倉庫", {"reading"}),
        ("三十", "30", {"reading"}),
        ("kilogram", "kg", {"reading"}),
        ("€", "euros", {"reading"}),
        ("こもれび", "コモレビ", {"reading"}),
        ("phase IV", "phase 4", {"reading"}),
        ("12 März 2025", "12.03.2025", {"groups"}),
        ("3. februar 2025", "03.02.25", {"groups"}),
        ("21.02 11.45", "21/02 11:45", {"joined"}),
        ("2025-04-01", "1.4.25", {"groups"}),
        ("600 451", "600451", {"joined"}),
        ("air fryer", "airfryer", {"joined"}),
        ("+7 916 204-77-18", "89162047718", {"joined"}),
        ("450 mm", "45 cm", {"scaled"}),
        ("0,8 kg", "800 g", {"scaled"}),
        ("3 apples", "15 apples", {"clock"}),
        ("limited", "ltd", {"skeleton"}),
        ("personal computer", "pc", {"acronym"}),
        ("warehouses", "warehouse", {"stem"}),
        ("receipt", "reciept", {"typo"}),
    ],
)
def test_two_writings_of_one_thing_find_each_other(a, b, kinds):
    assert matched(a, b) == (kinds, [], [])
    assert matched(b, a) == (kinds, [], [])


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("12 cl", "12 oz"),
        ("450 mm", "46 cm"),
        ("3.5 %", "35 %"),
        ("march", "4"),
        ("two three", "23"),
        ("red", "blue"),
        ("2 kg", "2000 ml"),
        ("倉庫", "店"),
    ],
)
def test_what_differs_is_left_over_on_both_sides(a, b):
    _, left, right = matched(a, b)
    assert left
    assert right


def test_number_words_side_by_side_are_one_number_only_where_they_spell_one():
    assert [atom.value for atom in atoms("twenty five")] == [25]
    assert [atom.value for atom in atoms("two 3 four")] == [2, 3, 4]
    assert [atom.value for atom in atoms("seven hundred thousand")] == [700_000]


def test_a_word_of_several_languages_keeps_all_its_readings():
    (mar,) = atoms("mar")
    assert {"mar", "#3", "day:1"} <= mar.keys  # March in Spanish, Tuesday in French


def test_the_work_is_bounded():
    assert len(atoms("a1 " * 5000)) == MOST_ATOMS
    assert len(atoms("货" * 10_000)) == MOST_ATOMS
