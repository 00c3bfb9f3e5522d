"""The backend that `ENGINE` names: Django's, which asks the server only when it has said something."""

import select
from typing import Any

import psycopg
from django.db.backends.postgresql import base
from psycopg_pool import ConnectionPool
from typing_extensions import override


class DatabaseWrapper(base.DatabaseWrapper):
    """Takes connections out of the pool without a round trip for each.

    A server that ends a session says so: something lies there to be read. Django's own check
    (`CONN_HEALTH_CHECKS`) asks every time, which costs a request as much as one of its queries.
    """

    @override
    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Return a connection that works, as far as this host can know.

        Raises:
            psycopg_pool.PoolTimeout: the server gives none for as long as the pool waits.
        """
        while True:
            connection = super().get_new_connection(conn_params)
            pool: ConnectionPool | None = self.pool  # type: ignore[attr-defined]  # not in the stubs
            if pool is None or _is_working(connection):
                return connection
            # The pool throws it away and opens another.
            pool.putconn(connection)


def _is_working(connection: psycopg.Connection) -> bool:
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    if not poll.poll(0):
        return True
    try:
        ConnectionPool.check_connection(connection)
    except psycopg.Error:
        return False
    return True
