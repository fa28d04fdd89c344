# `make demo` and `make test` set up .venv by themselves; PYTHON names the interpreter to start from (3.11 or newer).
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
SOURCES := src tests benchmarks examples docs/conf.py docs/making
SITE := $(RUN)/sphinx-build --fail-on-warning --quiet --jobs auto --doctree-dir build/docs/doctrees
TESTS := $(RUN)/python -m pytest -q -n auto --dist loadgroup --ignore tests/lint

.PHONY: demo test check docs docs-links bench torture lint rehearsal kills hostile results all-algorithms conformance

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(RUN)/pip install --quiet --upgrade -c constraints.txt setuptools wheel
	$(RUN)/pip install --quiet -c constraints.txt torch
	$(RUN)/pip install --quiet -c constraints.txt -e ".[dev]"
	touch $(VENV)/ready

demo: $(VENV)/ready  ## a complete comparison on bundled data, with a report
	$(RUN)/python examples/demo.py

test: $(VENV)/ready  ## the fast tests and the doctests: five to fifteen minutes on two cores
	$(TESTS) -m "not slow"

lint: $(VENV)/ready
	$(RUN)/ruff check $(SOURCES)
	$(RUN)/pyright
	$(RUN)/lint-imports --no-logo
	$(RUN)/pylint src/apiece
	$(RUN)/codespell
	$(RUN)/python -m pytest -q tests/lint

docs: $(VENV)/ready  ## the site, in build/docs/html; notebooks are executed when they changed (NOTEBOOKS=off: never)
	$(SITE) -b html docs build/docs/html

docs-links: $(VENV)/ready  ## whether the addresses of other sites answer; needs a network
	$(SITE) -b linkcheck docs build/docs/links

check: lint docs  ## what has to pass before a change goes in, every test: three quarters of an hour on two cores
	$(TESTS)

bench: $(VENV)/ready  ## bare loops, each lift, other simulators (gigabytes under .peers, once), many clients; writes docs/results/speed.md
	$(RUN)/python benchmarks --page docs/results/speed.md

torture: $(VENV)/ready  ## SIGKILL at random moments, for every algorithm; writes docs/results/torture.md
	$(RUN)/python tests/torture.py --out docs/results/torture.md

rehearsal: $(VENV)/ready  ## deployed runs on this machine against --lift wired; writes docs/results/rehearsal.md (half an hour)
	$(RUN)/python tests/rehearsal.py --out docs/results/rehearsal.md

kills: $(VENV)/ready  ## SIGKILL at random moments of deployed runs; writes docs/results/kills.md (an hour; goes on where it was ended)
	$(RUN)/python tests/kills.py --out docs/results/kills.md

hostile: $(VENV)/ready  ## a deployment that is attacked and broken; writes the table of docs/threat-model.md (ten minutes; as root)
	$(RUN)/python tests/hostile.py --out docs/threat-model.md

conformance: $(VENV)/ready  ## docs/conformance.md, from what the tests measure of every algorithm and composition
	$(RUN)/python tests/conformance.py

results: $(VENV)/ready  ## the table of docs/results/first-run.md (an hour or two; resumable)
	$(RUN)/python examples/first_run.py

all-algorithms: $(VENV)/ready  ## the table of docs/results/all-algorithms.md (two hours; resumable by cell)
	$(RUN)/python examples/all_algorithms.py
