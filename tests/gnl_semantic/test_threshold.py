"""What is said of a candidate threshold when it is configured."""

from gnl_semantic.embedder import EmbedderProfile, MeasuredThreshold, threshold_warning


def measured(form="canonical", value=0.9, unrelated_p05=0.84):
    return MeasuredThreshold(
        form=form,
        value=value,
        low=value - 0.01,
        high=value + 0.01,
        unrelated_p05=unrelated_p05,
        unrelated_passed=0.5,
        set_id="0" * 16,
    )


def test_an_unmeasured_embedder_is_sent_to_calibrate():
    warning = threshold_warning("folder:m", None, None)
    assert "folder:m" in warning
    assert "`gnl-semantic-qualify calibrate --fixtures pairs.json --embedder NAME`" in warning
    assert "SemanticGate(min_similarity=…)" in warning
    assert "--embed-model-id folder:m." in warning
    assert "--embed-model-id 'my model; rm'" in threshold_warning("my model; rm", None, None)
    # Whoever names a threshold has measured it, or knows better.
    assert threshold_warning("folder:m", 0.6, None) is None


def test_a_threshold_that_separates_nothing_is_said_aloud():
    warning = threshold_warning("m", 0.60, measured())
    assert "0.6 separates nothing" in warning
    assert "0.900" in warning
    assert threshold_warning("m", 0.84, measured()) is not None
    assert threshold_warning("m", 0.85, measured()) is None
    assert threshold_warning("m", None, measured()) is None


def test_a_model_whose_own_threshold_separates_nothing_says_so():
    warning = threshold_warning("m", None, measured(value=0.8))
    assert "0.8 separates nothing" in warning
    assert "another embedder" in warning


def test_each_form_of_the_sentence_has_its_threshold():
    profile = EmbedderProfile(dimension=2, candidate_threshold=0.9, measured=(measured(), measured("bare", 0.87)))
    assert (profile.threshold_for("canonical"), profile.threshold_for("bare")) == (0.9, 0.87)
    own = EmbedderProfile(dimension=2, candidate_threshold=0.95, measured=(measured(),))
    assert (own.threshold_for("canonical"), own.threshold_for("bare")) == (0.95, 0.95)
