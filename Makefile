# Everything a checkout needs; `make` alone lists it. Needs only make, Python >= 3.11 and the Python package index.

PYTHON ?= python3
VENV := .venv
PIP := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check

# The tests export models, which needs torch; the service does not. Pinned, so that everybody compares with the same one.
# On Linux the package index has it with CUDA (some GB); TORCH="torch==2.13.0 --index-url ..." with PyTorch's own index of
# CPU builds takes the smaller one.
TORCH ?= torch==2.13.0

# make up PORT=8100 MODEL=... API=2 WORKERS=2 ENGINE=...; whatever else `fillmask up --help` lists goes into ARGS.
UP = $(if $(HOST),--host '$(HOST)') $(if $(PORT),--port '$(PORT)') $(if $(MODEL),--model '$(MODEL)') \
	$(if $(API),--api '$(API)') $(if $(WORKERS),--workers '$(WORKERS)') $(if $(ENGINE),--engine '$(ENGINE)') $(ARGS)

.PHONY: help up test lint bench bench-pipe loadtest compare scale drill soak screenshots audit lock clean

help:
	@echo 'make up          run it here: Redis, a front-end, a worker; PORT= MODEL= API= WORKERS= ENGINE= HOST= ARGS='
	@echo 'make test        lint, types and all tests'
	@echo 'make lint        lint and types only'
	@echo 'make bench       the engines side by side; with a CUDA device, the GPU check'
	@echo 'make bench-pipe  measure the pipe between front-end and worker'
	@echo 'make loadtest    scenarios with known answers, and a report; HOST=http://... of a running one, SCENARIO= RATE= SECONDS='
	@echo 'make compare     the same load on what the tutorials build and on this service'
	@echo 'make scale       how throughput grows with workers and front-ends, and how many a rate needs'
	@echo 'make drill       break things under load and count what became of every request'
	@echo 'make soak        MINUTES=n of texts of random length; does anything grow?'
	@echo 'make screenshots the pictures of the page in README.md, anew'
	@echo 'make audit       ask the advisory database about what the images install'
	@echo 'make lock        what the images install, anew from requirements-*.in, with hashes; ARGS=--upgrade takes newer versions'
	@echo 'make clean       remove .venv and what tools leave behind'

up: $(VENV)/.installed
	@exec $(VENV)/bin/fillmask up $(UP)

test: lint
	@$(VENV)/bin/python -m pytest $(ARGS)

lint: $(VENV)/.installed-dev
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/mypy

bench: $(VENV)/.installed-dev
	@exec $(VENV)/bin/python -m loadtest.bench $(ARGS)

bench-pipe: $(VENV)/.installed-dev
	@exec $(VENV)/bin/python -m loadtest.bench_pipe $(ARGS)

loadtest: $(VENV)/.installed-dev
	@exec $(VENV)/bin/python -m loadtest.run $(if $(HOST),--host '$(HOST)') $(if $(PORT),--port '$(PORT)') \
		$(if $(SCENARIO),--scenario '$(SCENARIO)') $(if $(RATE),--rate '$(RATE)') $(if $(SECONDS),--seconds '$(SECONDS)') $(ARGS)

scale: $(VENV)/.installed-dev
	@exec $(VENV)/bin/python -m loadtest.scale $(ARGS)

compare: $(VENV)/.installed-dev
	@exec $(VENV)/bin/python -m loadtest.compare $(ARGS)

soak: $(VENV)/.installed-dev
	@exec $(VENV)/bin/python -m loadtest.soak $(if $(MINUTES),--minutes '$(MINUTES)') $(ARGS)

drill: $(VENV)/.installed-dev
	@exec $(VENV)/bin/python -m loadtest.drill $(ARGS)

screenshots: $(VENV)/.installed-dev
	@PYTHONPATH=.:tests exec $(VENV)/bin/python tests/browser/screenshots.py

# --strict: what the database does not know, or cannot be asked about, is no pass.
audit: $(VENV)/.audit/bin/pip-audit
	@for part in build front-end worker-cpu worker-cuda; do \
		echo "$$part:"; $< --strict --disable-pip --require-hashes -r deploy/docker/requirements-$$part.txt || exit 1; done

lock: $(VENV)/.lock/bin/uv
	@PATH="$(CURDIR)/$(VENV)/.lock/bin:$$PATH" deploy/docker/lock.sh $(ARGS)

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo 'fillmask needs Python >= 3.11; name one: make PYTHON=python3.12' >&2; exit 1; }
	@echo 'making $(VENV)'
	@$(PYTHON) -m venv $(VENV) \
		|| { rm -rf $(VENV); echo '$(PYTHON) cannot make a venv; on Debian and Ubuntu: apt install python3-venv' >&2; exit 1; }

$(VENV)/.audit/bin/pip-audit: | $(VENV)/bin/python
	@$(PYTHON) -m venv $(VENV)/.audit
	@$(VENV)/.audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit

$(VENV)/.lock/bin/uv: | $(VENV)/bin/python
	@$(PYTHON) -m venv $(VENV)/.lock
	@$(VENV)/.lock/bin/python -m pip install --quiet --disable-pip-version-check uv

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	@echo 'installing fillmask into $(VENV)'
	@$(PIP) --editable .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	@echo 'installing what the tests need'
	@$(PIP) $(TORCH)
	@$(PIP) --editable '.[dev]'
	@touch $@
