"""The plug-in is used here as an author uses it."""

from tasks_app.testing.plugin import durable

__all__ = ["durable"]
