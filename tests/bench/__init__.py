"""Measures engine, streams and API: `python3 manage.py bench`. No test is collected from here."""
