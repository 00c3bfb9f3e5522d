"""For authors: run a workflow in a test, and break it at every point (engine contract E93).

`pytest_plugins = ["tasks_app.testing.plugin"]` in a conftest.py offers the fixture `durable`.
"""

from tasks_app.testing.tester import DurableTester, Outcome, WeakPointError

__all__ = ["DurableTester", "Outcome", "WeakPointError"]
