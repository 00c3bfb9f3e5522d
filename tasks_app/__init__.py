"""Tasks: admission, engine, doors and pages. The ledger is another application."""
