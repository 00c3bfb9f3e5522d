"""What every pass of the sweeper does with the rows it has found."""

import logging
from collections.abc import Callable, Iterable
from typing import Any

from django.db import InterfaceError, OperationalError

from tasks_app.domain.errors import LeaseLost

logger = logging.getLogger(__name__)


def each(act: Callable[..., object], rows: Iterable[tuple[Any, ...]]) -> int:
    """Do each row's work and return how many were done.

    A row that moved on meanwhile is somebody else's already. One whose work fails is logged and
    keeps nobody from the others: it would come first in every pass.

    Transaction: one for each row, the act's own.
    Raises: OperationalError, InterfaceError when the database is away.
    """
    done = 0
    for row in rows:
        try:
            act(*row)
        except LeaseLost:
            continue
        except (OperationalError, InterfaceError):
            raise
        except Exception:
            facts = {"work": act.__qualname__, "row": [str(part) for part in row]}
            logger.exception("sweep.row_failed", extra=facts)
            continue
        done += 1
    return done
