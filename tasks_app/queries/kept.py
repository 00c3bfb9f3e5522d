"""Queries that are built and compiled once, then run with other values, for the hottest reads.

To put a large query together costs Django ten times what PostgreSQL needs to answer it. Here only
its text is kept: what it selects, for whom it is scoped and how rows are read stays the queryset's.
"""

import copy
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Generic, TypeVar
from uuid import UUID

from django.core.exceptions import EmptyResultSet
from django.db import connection, connections
from django.db.models import Model, QuerySet
from django.db.models.query import ModelIterable
from psycopg import sql

from ledger_app.services.statements import fetch_rows

M = TypeVar("M", bound=Model)

# Stand for values that each run gives; no row has them.
SOME_ID = UUID("6f1d3c1e-0b7a-4f52-9d5e-8a2f5c7e9b01")
SOME_TENANT = UUID("6f1d3c1e-0b7a-4f52-9d5e-8a2f5c7e9b02")
SOME_USER = 1_899_999_937
SOME_TEXT = "some text that is given later"


class KeptQuery(Generic[M]):
    """The first row of a queryset, which was built with marks in place of values."""

    def __init__(self, rows: QuerySet[M], **marks: object) -> None:
        """Compile the queryset.

        Args:
            marks: what stands for each value, by the name that `first` gives it.
        """
        self._compiler: Any = rows[:1].query.get_compiler(rows.db)
        self._source: Any = SimpleNamespace(
            db=rows.db, model=rows.model, _known_related_objects={}, query=None
        )
        try:
            text, parameters = self._compiler.as_sql()
        except EmptyResultSet:
            self._text = ""
            return
        names = {repr(mark): name for name, mark in marks.items()}
        self._text = text % tuple(_placed(value, names) for value in parameters)
        if any(str(mark) in self._text for mark in marks.values()):
            raise ValueError("a mark of a kept query did not reach the database as it is")
        select = [column[0] for column in self._compiler.select]
        self._converters = self._compiler.get_converters(select)

    def first(self, values: Mapping[str, object]) -> M | None:
        """Run the query with these values in place of its marks."""
        if not self._text:
            return None
        found = fetch_rows(self._text, values)
        compiler = copy.copy(self._compiler)
        compiler.connection = connections[self._source.db]
        compiler.execute_sql = lambda **_: [found]
        compiler.get_converters = lambda _: self._converters
        source = copy.copy(self._source)
        source.query = SimpleNamespace(get_compiler=lambda **_: compiler)
        rows: list[M] = list(ModelIterable(source))
        return rows[0] if rows else None


def _placed(value: object, names: Mapping[str, str]) -> str:
    name = names.get(repr(value))
    if name is not None:
        return f"%({name})s"
    connection.ensure_connection()
    return sql.Literal(value).as_string(connection.connection).replace("%", "%%")
