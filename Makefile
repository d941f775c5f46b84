# make run [ARGS="--config=configs/multi30k.py --config.data.dir=FOLDER"], make test.
# Each makes the virtual environment that it needs from nothing but python3.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

.PHONY: run test

run: $(INSTALLED)
	$(BIN)/python run.py $(ARGS)

test: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder $(ARGS)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: Python %s is too old; add PYTHON=python3.11 or later" % sys.version.split()[0])'
	@echo "Installing the packages into .venv takes a minute or two."
	@test "$$(.venv/bin/python -V 2>&1)" = "$$($(PYTHON) -V)" || rm -rf .venv
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[figures,tables,test]'
	touch $@
