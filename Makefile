# Short names for what one does often. Everything works without make: see CONTRIBUTING.md.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help demo up down test crash check fix lock hooks

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## Show the product on this machine
	$(PYTHON) manage.py demo

up: ## Start the local stack and stay
	$(PYTHON) manage.py up

down: ## Stop the local stack
	$(PYTHON) manage.py down

test: ## Run all tests but those that kill processes
	$(PYTHON) manage.py test

crash: ## Run the tests that kill real workers
	$(PYTHON) manage.py test --crash

check: ## Lint, format, types, imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	DJANGO_SETTINGS_MODULE=runtime_project.settings_test $(BIN)/mypy runtime_project tasks_app ledger_app deploy tests

fix: ## Mend what ruff can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## Write the hashed locks anew (needs uv and the network)
	cd requirements && for name in build runtime oauth dev; do \
	  uv pip compile --universal --generate-hashes --no-header --no-emit-index-url \
	    --python-version 3.11 --output-file $$name.txt $$name.in || exit 1; done

hooks: ## Run the quick checks before each commit
	pre-commit install
