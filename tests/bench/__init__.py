"""Measures the engine: `python3 manage.py bench engine`. No test is collected from here."""
