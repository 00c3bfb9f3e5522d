"""The project's Celery application, with a broker that can be told to deliver everything thrice.

Workers of crash tests are started with it; nothing imports it. While the file `tripled` lies in
the folder of sync points, every message that the process sends is sent three times.
"""

import os
from pathlib import Path
from typing import Any

from runtime_project.celery import app

_send_once = app.send_task


def _send(*args: Any, **options: Any) -> Any:
    if (Path(os.environ["RUNTIME_SYNCPOINT_DIR"]) / "tripled").exists():
        _send_once(*args, **options)
        _send_once(*args, **options)
    return _send_once(*args, **options)


# The fault that is injected.
setattr(app, "send_task", _send)  # noqa: B010 - a method, which mypy guards
