"""Tests, mirrored after the packages."""
