"""Slow tests of who is served when, with real processes and many rows."""
