"""Rules in plain Python: no Django, no database, testable in milliseconds."""
