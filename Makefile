# Two verbs set everything up on a fresh machine: `make run` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run serve test test-all test-device unit-explorer unit-research install lint format types unit papers pictures test-slow test-models test-portable test-versions test-mutations coverage docs docs-serve wheel first-contact bench bench-peers bench-learning clean

run: install
	$(BIN)/hessmap map
	@echo "All of it in a browser: make serve (or $(BIN)/hessmap serve), then open the link that it prints."

# The explorer, with the embedded example and the stored results.
serve: install
	$(BIN)/hessmap serve

# The library: style, types, tests.
test: lint types unit

# The explorer and the studies as well.
test-all: test test-device unit-explorer unit-research

install: $(VENV)/.installed

# All three packages, editable: what is installed is this folder.
PACKAGES := --editable '.[dev]' --editable ./explorer --editable ./research
PROJECTS := pyproject.toml explorer/pyproject.toml research/pyproject.toml constraints.txt

$(VENV)/.installed: $(PROJECTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt $(PACKAGES)
	touch $@

lint: install
	$(BIN)/ruff check .

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: install
	$(BIN)/mypy --num-workers auto

# One process for each core, one thread for each process: tiny problems lose by more. Bytecode is kept, wherever the
# environment says otherwise: some tests start a fresh Python, which would compile the package again.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -q --numprocesses auto --dist loadfile

unit: install
	$(PYTEST)

# Tests on a device, in a process of their own: DEVICE=second is a stand-in on the CPU, DEVICE=cuda a real one.
DEVICE ?= second
test-device: install
	HESSMAP_DEVICE=$(DEVICE) OMP_NUM_THREADS=1 $(BIN)/pytest -q tests/device

unit-explorer: install
	$(PYTEST) explorer

unit-research: install
	$(PYTEST) research

# Figures of the studies, drawn again from their stored results, and of the guides, by their examples.
pictures: install
	$(BIN)/python research/docs/hooks/pictures.py
	$(BIN)/python docs/hooks/example_pictures.py

# After a change of the registry or of research/results: the stored outcomes, and the tables that are made from them.
papers: install
	$(BIN)/python -m hessmap_research.papers.documents research/docs research/results

# Long tests, tests on downloaded data, and properties on ten times as many examples as in `make test`.
test-slow: install
	$(BIN)/pytest -q -m 'slow or data or hypothesis' --hypothesis-profile=long tests src explorer research

# Models of other projects, from configurations with random weights; nothing is downloaded.
test-models: .venv-models/.installed
	PYTHONPATH=tests/models/kernels .venv-models/bin/pytest -q -m models tests/models

.venv-models/.installed: $(PROJECTS) benchmarks/models/requirements.txt
	test -x .venv-models/bin/python || $(PYTHON) -m venv .venv-models
	.venv-models/bin/pip install --quiet --constraint constraints.txt $(PACKAGES) --requirement benchmarks/models/requirements.txt
	touch $@

# The numeric tests with the kernels of other processors; ROWS="avx2" runs the rows whose names hold that.
test-portable: install
	$(BIN)/python .ci/matrix.py portable $(ROWS)

# The suite on the oldest and newest dependencies and on every Python from 3.11 on that is here (6 GB for each).
test-versions: install
	$(BIN)/python .ci/matrix.py versions $(ROWS)

# Small faults of the library that no test notices, or only those of the explorer and the research (200, resumable);
# FAULTS="theory --count 20 --seconds 600" says where and how many, FAULTS=--write stores the outcome.
test-mutations: install
	OMP_NUM_THREADS=1 $(BIN)/python .ci/mutations.py $(FAULTS)

# Lines and branches that the tests of `make test-all` run; the report is in htmlcov/.
coverage: install
	$(PYTEST) tests src explorer research --cov --cov-report=html --cov-report=term

# The site, into site/, and the research pages, into site/research: a broken link, anchor or reference ends it.
docs: .venv-docs/.installed
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet --config-file research/mkdocs.yml

docs-serve: .venv-docs/.installed
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs serve

.venv-docs/.installed: $(PROJECTS)
	test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/pip install --quiet --constraint constraints.txt --editable '.[docs]' --editable ./explorer --editable ./research
	touch $@

# dist/*.whl and dist/*.tar.gz of the three packages, as they would be published; then what is in them, and that they run.
wheel: install
	rm -rf dist build explorer/build research/build
	for project in . explorer research; do $(BIN)/python -m build --outdir dist $$project || exit 1; done
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl
	HESSMAP_WHEELS=dist $(BIN)/pytest -q -m slow tests/test_wheels.py

# Five minutes: a fresh environment, the install line of the README, its example and its figure; each step is recorded.
first-contact:
	$(PYTHON) benchmarks/first_contact.py

bench: .venv-bench/.installed
	cd benchmarks && for question in dense_hessian conv_hessian reduced_spectrum papers_way certified_rank study_store teacher_hessian input_jacobians; do \
		../.venv-bench/bin/python $$question.py || failed=1; done; test -z "$$failed"

.venv-bench/.installed: $(PROJECTS) benchmarks/requirements.txt
	test -x .venv-bench/bin/python || $(PYTHON) -m venv .venv-bench
	.venv-bench/bin/pip install --quiet --constraint constraints.txt --editable '.[all]' --editable ./research --requirement benchmarks/requirements.txt
	touch $@

# Beside the peers, in an environment of their own; rows that were measured before are not run again.
bench-peers: .venv-peers/.installed
	cd benchmarks/peers && for question in correctness kronecker kronecker_speed rows jax_rows growth; do \
		../../.venv-peers/bin/python $$question.py || failed=1; done; \
	../../.venv-peers/bin/python ../layer_eigenpairs.py || failed=1; \
	../../.venv-peers/bin/python ../lanczos_products.py || failed=1; \
	../../.venv-peers/bin/python table.py; test -z "$$failed"

# Without their requirements, which would bring another torch.
.venv-peers/.installed: $(PROJECTS) benchmarks/peers/requirements.txt
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip install --quiet --constraint constraints.txt --editable '.[all]' --editable ./research
	.venv-peers/bin/pip install --quiet --no-deps --requirement benchmarks/peers/requirements.txt
	touch $@

# Learning coefficients beside devinterp, in an environment of its own.
bench-learning: .venv-devinterp/.installed
	.venv-devinterp/bin/python benchmarks/learning/estimates.py

.venv-devinterp/.installed: $(PROJECTS) benchmarks/learning/requirements.txt
	test -x .venv-devinterp/bin/python || $(PYTHON) -m venv .venv-devinterp
	.venv-devinterp/bin/pip install --quiet --constraint constraints.txt --editable '.[all]' --editable ./research
	.venv-devinterp/bin/pip install --quiet --no-deps --requirement benchmarks/learning/requirements.txt
	touch $@

clean:
	rm -rf $(VENV) .venv-bench .venv-devinterp .venv-docs .venv-peers .venv-models .matrix .mypy_cache .ruff_cache .pytest_cache build explorer/build research/build dist htmlcov site
