# make run [ARGS="--config=configs/multi30k.py --config.data.dir=FOLDER"], make test; in CI, make test includes test-colab.
# make test-colab, make test-newest: the core of the tests with a Colab runtime's versions, or the newest ones.
# Each makes the virtual environment that it needs from nothing but python3.

PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed
PYTEST := -m pytest -n 2 --dist loadfile --no-loadscope-reorder
CORE := $(patsubst %,tests/%.py,training/test_loop inference/test_search runs/test_checkpoint nn/test_kernels)

.PHONY: run test test-colab test-newest

run: $(INSTALLED)
	$(BIN)/python run.py $(ARGS)

test: $(INSTALLED) $(if $(CI),test-colab)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python $(PYTEST) $(ARGS)

test-colab test-newest: test-%: .venv-%/installed
	.venv-$*/bin/python $(PYTEST) --quiet $(CORE)

# Makes the environment $(1) with the constraints of the file $(2), if it exists.
define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: Python %s is too old; add PYTHON=python3.11 or later" % sys.version.split()[0])'
	@echo "Installing the packages into $(1) takes a minute or two."
	@test "$$($(1)/bin/python -V 2>&1)" = "$$($(PYTHON) -V)" || rm -rf $(1)
	$(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install $(addprefix --constraint ,$(wildcard $(2))) --editable '.[figures,tables,test]'
	touch $(1)/installed
endef

$(INSTALLED): pyproject.toml constraints.txt
	$(call install,.venv,constraints.txt)

.venv-%/installed: pyproject.toml $(wildcard constraints-*.txt)
	$(call install,.venv-$*,constraints-$*.txt)
