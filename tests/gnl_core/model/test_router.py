import subprocess
import sys
import warnings

import pytest

from gnl_core.errors import ConfigError, MissingExtraError, ModelSpecError
from gnl_core.model.fallback import FallbackModel
from gnl_core.model.router import register_model_provider, resolve_model
from gnl_core.testing.scripted import ScriptedModel


@pytest.fixture
def register():
    """Register providers for one test."""
    undo = []

    def add(prefix, factory):
        undo.append(register_model_provider(prefix, factory))
        return undo[-1]

    yield add
    for one in undo:
        one()


def named(model_id):
    return ScriptedModel(["hi"], spec=f"x/{model_id}")


async def test_a_registered_provider_gets_everything_after_the_first_slash(register):
    register("nvidia", named)
    assert resolve_model("nvidia/meta/llama-3.1-70b-instruct").spec == "x/meta/llama-3.1-70b-instruct"


def test_a_model_and_a_list_resolve_too():
    model = ScriptedModel(["hi"])
    assert resolve_model(model) is model
    chain = resolve_model([model, model])
    assert isinstance(chain, FallbackModel)
    assert chain.candidates == ("#0", "#1")


@pytest.mark.parametrize(
    "prefix", ["", " openai", "openai ", "OPENAI", "Nvidia", "openai\n", "nvi dia", "-x", "__class__", "нvidia", "a/b"]
)
def test_a_prefix_is_refused_as_it_is_spelt(prefix):
    with pytest.raises(ModelSpecError, match="lower-case"):
        register_model_provider(prefix, named)
    with pytest.raises(ModelSpecError):
        resolve_model(f"{prefix}/model")


@pytest.mark.parametrize(
    "model_id",
    [
        "",
        "gpt\n",
        "\ngpt",
        "../../etc",
        "a/../b",
        "a/..",
        "https://evil.example/v1",
        "a b",
        "-x",
        "/x",
        ".x",
        "a\u0000",
        "a?b=c",
        "a#b",
        "a%2e%2e",
        "a\\b",
        "modèle",
        "a" * 201,
    ],
)
def test_a_model_id_is_checked_before_it_reaches_a_factory(register, model_id):
    register("nvidia", lambda _: pytest.fail("the factory was called"))
    with pytest.raises(ModelSpecError):
        resolve_model(f"nvidia/{model_id}")


@pytest.mark.parametrize("model_id", ["a" * 200, "a..b", "a...", "llama3:8b", "accounts/x/models/y-1.5", "7B"])
def test_model_ids_of_real_servers_pass(register, model_id):
    register("nvidia", named)
    assert resolve_model(f"nvidia/{model_id}").spec == f"x/{model_id}"


@pytest.mark.parametrize("prefix", ["constructor", "items", "azure"])
def test_an_unknown_provider_is_told_the_known_ones(register, prefix):
    register("nvidia", named)
    with pytest.raises(ModelSpecError, match="known are anthropic, google, mistral, nvidia, openai"):
        resolve_model(f"{prefix}/x")


@pytest.mark.parametrize("spec", ["gpt-4o", ""])
def test_a_name_without_a_provider(spec):
    with pytest.raises(ModelSpecError, match="names no provider"):
        resolve_model(spec)


@pytest.mark.parametrize("model", [None, 3, {"a": 1}, []])
def test_what_is_no_model(model):
    with pytest.raises(ConfigError):
        resolve_model(model)


def test_built_in_providers_cannot_be_replaced():
    for prefix in ("openai", "anthropic", "google", "mistral"):
        with pytest.raises(ModelSpecError, match="built in"):
            register_model_provider(prefix, named)


def test_replacing_warns_once_and_each_function_takes_back_its_own_only(register):
    first = register("mine", lambda m: ScriptedModel(["1"], spec=f"one/{m}"))
    with pytest.warns(UserWarning, match="'mine' was registered before") as caught:
        second = register("mine", lambda m: ScriptedModel(["2"], spec=f"two/{m}"))
    assert len(caught) == 1
    first()
    assert resolve_model("mine/x").spec == "two/x"
    second()
    second()
    with pytest.raises(ModelSpecError, match="unknown"):
        resolve_model("mine/x")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        register("mine", named)


def test_the_same_factory_registered_twice_is_two_registrations(register):
    first = register("mine", named)
    with pytest.warns(UserWarning, match="before"):
        register("mine", named)
    first()
    assert resolve_model("mine/x").spec == "x/x"


def test_a_factory_that_returns_no_model(register):
    register("mine", lambda _: "gpt")
    with pytest.raises(ModelSpecError, match="returned str"):
        resolve_model("mine/x")


@pytest.mark.parametrize(
    ("spec", "module"),
    [("openai/x", "openai"), ("anthropic/x", "anthropic"), ("google/x", "google.genai"), ("mistral/x", "mistralai")],
)
def test_a_missing_sdk_names_the_command(monkeypatch, spec, module):
    monkeypatch.setitem(sys.modules, module, None)
    extra = spec.partition("/")[0]
    with pytest.raises(MissingExtraError, match=rf"pip install 'gnl-semantic\[{extra}\]'"):
        resolve_model(spec)


def test_names_resolve_without_loading_an_sdk():
    code = (
        "import sys; from gnl_core.model.router import resolve_model\n"
        "for p in ('openai','anthropic','google','mistral'): assert resolve_model(p + '/m-1').spec == p + '/m-1'\n"
        "bad = {'openai','anthropic','google.genai','mistralai','httpx','httpx2','pydantic'} & set(sys.modules)\n"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
