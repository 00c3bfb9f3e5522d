"""Execution: the only writers of a running task."""
