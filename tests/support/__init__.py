"""Servers, processes and the outside world for tests."""
