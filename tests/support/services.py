"""PostgreSQL and Redis for one test run: embedded, in a throw-away folder, as durable as real ones.

`start()` must run before Django reads its settings; `stop()` runs at exit by itself.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from runtime_project.local.services import LocalServices

_running: LocalServices | None = None


def start() -> LocalServices:
    """Return this process's servers, started once; puts their addresses into the environment.

    `DATABASE_URL` and `REDIS_URL` that are already set are used instead (and not stopped).
    """
    global _running
    if _running is None:
        home = Path(tempfile.mkdtemp(prefix="perdure-test-"))
        services = LocalServices(home)
        try:
            services.start()
        except BaseException:
            shutil.rmtree(home, ignore_errors=True)
            raise
        os.environ.update(services.environment())
        atexit.register(stop)
        _running = services
    return _running


def stop() -> None:
    """Stop the servers and remove their folder; safe to call twice."""
    global _running
    services, _running = _running, None
    if services is not None:
        services.stop()
        shutil.rmtree(services.home, ignore_errors=True)
