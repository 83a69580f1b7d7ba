# All set-up is done here: a fresh clone on Linux with Python >= 3.11 and pip needs nothing else.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
UV := $(shell command -v uv || echo .uv/bin/uv)
VENV ?= .venv
CLIENTS ?= .clients
RUN := $(VENV)/bin
EXTRAS := --extra dev --extra env-gym --extra env-compatible --extra agents
# What belongs to the project; your own policies may lie beside it.
CHECKED := src tests benchmarks scripts docs README.md CONTRIBUTING.md SECURITY.md

export UV_COMPILE_BYTECODE = 1
export UV_PYTHON_DOWNLOADS = never
export UV_NO_PROGRESS = 1
# Trust what the system trusts, as pip does where it was configured so.
export UV_SYSTEM_CERTS ?= 1
export VENV

.PHONY: demo test test-all lint format bench lock schemas envs clean

# The smallest thing that shows the whole loop: no key, no network, about 10 seconds of playing.
demo: $(VENV)/.base
	@rm -rf runs/demo
	$(RUN)/evopolicygym run --env gym/cartpole --budget 64 --root runs/demo
	@echo
	@echo "Look at runs/demo/workspace/TASK.md (what the agent was told), at"
	@echo "runs/demo/workspace/feedback/latest.json (what it learned) and at runs/demo/run.json."

test: lint $(CLIENTS)/.installed
	$(RUN)/pytest -n 2 --dist loadfile -m "not slow"
	scripts/other-pythons.sh -n 2 --dist loadfile -m "not slow" tests/unit

# Every extra in the installation that it belongs to: hours, and some 12 GB.
test-all: lint $(CLIENTS)/.installed
	scripts/check-extras.sh
	$(RUN)/pytest
	scripts/other-pythons.sh

lint: $(VENV)/.dev
	$(RUN)/ruff check $(CHECKED)
	$(RUN)/ruff format --check $(CHECKED)
	$(RUN)/mypy

format: $(VENV)/.dev
	$(RUN)/ruff check --fix $(CHECKED)
	$(RUN)/ruff format $(CHECKED)

bench: $(VENV)/.dev
	$(RUN)/python benchmarks/speed.py bench.json

lock: $(UV)
	$(PYTHON) scripts/lock.py $(UV)

schemas: $(VENV)/.dev
	$(RUN)/python -m evopolicygym.run.schemas docs/schemas

# docs/envs/discovered.json and env_list.md, from checks of every environment of every extra.
envs: $(VENV)/.dev
	scripts/check-extras.sh --document

clean:
	rm -rf .venv .venv-* .uv .clients .checked .mypy_cache .ruff_cache .pytest_cache .hypothesis dist bench.json

.uv/bin/uv:
	@$(PYTHON) -m pip --version > /dev/null || { \
		echo "make needs Python >= 3.11 with pip (Debian: apt install python3-pip), or uv on PATH"; \
		echo "another Python: make demo PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --target .uv uv

# What people who play need; `.dev` below adds the rest and keeps this one valid.
$(VENV)/.base: uv.lock pyproject.toml benchmarks/cartpole/pyproject.toml | $(UV)
	scripts/install.sh $(UV) $(PYTHON) $(VENV)
	@touch $@

$(VENV)/.dev: uv.lock pyproject.toml benchmarks/cartpole/pyproject.toml | $(UV)
	scripts/install.sh $(UV) $(PYTHON) $(VENV) $(EXTRAS)
	@touch $(VENV)/.base $@

# The real coding agents that tests drive, offline. Where they can't be installed, tests say so.
$(CLIENTS)/.installed: scripts/clients.sh tests/e2e/agents/clients/node.txt \
		tests/e2e/agents/clients/package-lock.json | $(UV)
	PYTHON="$(PYTHON)" UV="$(UV)" scripts/clients.sh $(CLIENTS)
