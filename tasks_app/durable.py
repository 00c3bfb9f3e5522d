"""Workflows that come with the product; importing them registers them."""

from tasks_app.workflows import scripted, scripted_loop
from tasks_app.workflows.contracts import workflow as contracts

__all__ = ["contracts", "scripted", "scripted_loop"]
