"""The ladder's options: data that is validated, written down and read back."""

import json
import re

import pytest

from gnl_semantic.errors import RulesError
from gnl_semantic.rules import RULE_IDS, RULESET_VERSION, Rules


def test_the_defaults_are_data() -> None:
    assert json.loads(json.dumps(Rules().parameters())) == {
        "ruleset_version": RULESET_VERSION,
        "size_ladders": [
            ["xs", "s", "m", "l", "xl", "xxl", "xxxl"],
            ["xs", "s", "m", "l", "xl", "2xl", "3xl", "4xl", "5xl"],
        ],
        "gazetteers": [],
        "short_code_max_len": 4,
        "disable": [],
    }


@pytest.mark.parametrize("option", [None, False])
def test_no_ladder(option) -> None:
    assert Rules.from_option(option) is None


def test_options_replace_defaults_one_by_one() -> None:
    rules = Rules.from_option({"gazetteers": [["new york", "boston"]], "disable": ["size-ladder"]})
    assert rules == Rules(gazetteers=(("new york", "boston"),), disable=("size-ladder",))
    assert Rules.from_option(True) == Rules()
    assert Rules.from_option(rules) is rules


def test_parameters_are_read_back() -> None:
    rules = Rules(gazetteers=(("depo 1", "depo 2"),), short_code_max_len=0, disable=RULE_IDS)
    assert Rules.from_option(json.loads(json.dumps(rules.parameters()))) == rules


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (1.5, "is float, must be True, False, Rules or a mapping"),
        ("true", "is str"),
        ({"gazeteers": []}, "unknown option 'gazeteers'; the options are size_ladders, gazetteers"),
        ({"ruleset_version": "0"}, "ruleset_version is '0', this release has '1'"),
        ({"gazetteers": "ahmet"}, "gazetteers is str, must be a list of lists"),
        ({"gazetteers": ["ahmet"]}, "gazetteers holds 'ahmet', must be a list of texts"),
        ({"gazetteers": [["ahmet", 7]]}, "must be a list of texts"),
        ({"gazetteers": [["ahmet"]]}, "a list of 1 entries; it takes two to differ"),
        ({"gazetteers": [["ahmet", "--"]]}, "'--' has no letter or digit"),
        ({"gazetteers": [["new york", "New-York"]]}, "'New-York' stands in its list twice"),
        ({"size_ladders": [["s", "S"]]}, "'S' stands in its list twice"),
        ({"short_code_max_len": -1}, "must lie between 0 and 8"),
        ({"short_code_max_len": True}, "must be a whole number"),
        ({"disable": ["prefix"]}, "disable names 'prefix', the rules are punct-space"),
        ({"disable": "size-ladder"}, "disable holds 'size-ladder', must be a list of texts"),
    ],
)
def test_what_means_nothing_is_refused(option, message: str) -> None:
    with pytest.raises(RulesError, match=re.escape(message)):
        Rules.from_option(option)
