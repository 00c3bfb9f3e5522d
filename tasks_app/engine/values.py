"""Results at rest and arguments on their way to a step.

A result is stored inline up to 16 KiB of JSON (stack 2.2) and as a blob above; arguments are
literals or references to results, validated to the annotations of the step's method.
"""

import inspect
import json
import typing
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any
from uuid import UUID

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from typing_extensions import override

from ledger_app.domain.canonical import canonical_bytes, check, check_kept, cleaned, digest_of
from ledger_app.domain.errors import NotCanonicalError
from tasks_app.domain.errors import ConfigurationError
from tasks_app.models import Step, StepRange
from tasks_app.tools import artifact_store
from tasks_app.workflows import ItemList, MapItem, MapResults
from tasks_app.workflows.values import ItemFault

# A number that is not finite is seen, instead of being written as null.
_EXACT = ConfigDict(ser_json_inf_nan="constants")
INLINE_LIMIT_BYTES = 16_384
# Made once: `json.dumps` makes an encoder at every call that asks for another form.
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def pack(tenant_id: UUID, value: Any) -> dict[str, Any]:
    """Return what a result column stores for a JSON value."""
    if len(_text(value)) <= INLINE_LIMIT_BYTES:
        return {"inline": value}
    data = canonical_bytes(value)
    stored = artifact_store.put_blob(tenant_id, data)
    return {"blob": stored.sha256, "size_bytes": stored.size_bytes}


def _text(value: Any) -> bytes:
    """Return about the bytes that a value takes; the canonical form is only for what is hashed."""
    return _encode(value).encode()


def unpack(tenant_id: UUID, stored: dict[str, Any] | None) -> Any:
    """Return the JSON value of a result column; None for a step without a result."""
    if stored is None:
        return None
    if "blob" in stored:
        return json.loads(artifact_store.read_blob(tenant_id, stored["blob"]))
    return stored["inline"]


class ResultInvalidError(ConfigurationError):
    """What a step returned is not what its annotation promises, or cannot be stored."""

    code = "result_invalid"


def to_json(method: Any, value: Any) -> tuple[Any, str]:
    """Return a step's return value as JSON data by its return annotation, and what was changed.

    The data is what the annotation can be read from again. Text that PostgreSQL or a hash would
    refuse is replaced and large numbers become text: then the second value tells where, for people.

    Raises:
        ResultInvalidError: the value is none of the annotated type, or has no JSON form.
    """
    annotation = _signature(*_function(method))[1]
    if annotation is type(None):
        return None, "" if value is None else "it is annotated as None and was not kept"
    try:
        adapter = _adapter(annotation)
        data = adapter.dump_python(value, mode="json", warnings=False)
        if annotation is not Any:
            adapter.validate_python(data)
    except ValidationError as error:
        raise ResultInvalidError(
            f"{method.__qualname__} returned no {_name(annotation)}: {_first(error)}"
        ) from error
    except Exception as error:
        raise ResultInvalidError(
            f"{method.__qualname__} returned no JSON value: {error}"
        ) from error
    try:
        return nearest(data)
    except NotCanonicalError as error:
        raise ResultInvalidError(f"{method.__qualname__} returned {error.message}") from error


def nearest(data: Any) -> tuple[Any, str]:
    """Return the nearest JSON data that a row takes, and the first place where it differs.

    Raises:
        NotCanonicalError: something would be lost: a number that is not finite, or what is nested
            too deep.
    """
    try:
        check(data, allow_nul=False)
    except NotCanonicalError as error:
        check_kept(data)
        return cleaned(data), error.message
    return data, ""


def _name(annotation: Any) -> str:
    return annotation.__name__ if inspect.isclass(annotation) else str(annotation)


def _first(error: ValidationError) -> str:
    """Return the first thing that is wrong, without the value."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = "/".join(str(part) for part in problem["loc"])
    return f"{place}: {problem['msg']}" if place else problem["msg"]


def typed(annotation: Any, value: Any) -> Any:
    """Return JSON data as a value of an annotated type.

    Raises:
        ConfigurationError: it does not fit, as after a change of the type.
    """
    try:
        return _adapter(annotation).validate_python(value)
    except ValidationError as error:
        raise ConfigurationError(
            f"a value does not fit {_name(annotation)}: {_first(error)}"
        ) from error


def dump(annotation: Any, value: Any) -> Any:
    """Return a value of an annotated type as JSON data."""
    return _adapter(annotation).dump_python(value, mode="json")


def schema_of(annotation: Any) -> dict[str, Any]:
    """Return the JSON schema of an annotated type."""
    return _adapter(annotation).json_schema()


def result_of(function: Any, value: Any) -> Any:
    """Return a step's stored result by the return annotation of its function."""
    return typed(_signature(*_function(function))[1], value)


def from_person(method: Any, value: Any) -> Any:
    """Return a result that a person gives in a method's place, in the form that it would return.

    Raises:
        ConfigurationError: the method's return annotation does not allow it.
    """
    annotation = _signature(*_function(method))[1]
    return cleaned(dump(annotation, typed(annotation, value)))


class Arguments:
    """Resolves the arguments of the current plan's steps."""

    def __init__(self, tenant_id: UUID, task_id: UUID) -> None:
        self._tenant_id = tenant_id
        self._task_id = task_id
        self._known: dict[str, Any] = {}

    def remember(self, key: str, value: Any) -> None:
        """Keep a fresh small result, so that the next step need not read it back."""
        self._known[key] = value

    def forget(self, keys: Iterable[str]) -> None:
        """Drop results that nobody asks for again, such as those of a finished turn."""
        for key in keys:
            self._known.pop(key, None)

    def forget_all(self) -> None:
        """Drop what is known, after the plan changed."""
        self._known.clear()

    def value(self, encoded: dict[str, Any]) -> Any:
        """Return a literal, or the referenced result; a map's result is a stream.

        A reference with a `step` means that very row, also of a plan that was replaced.
        """
        if "ref" not in encoded:
            return encoded["v"]
        if "step" in encoded:
            found = self._read(self._rows().get(pk=encoded["step"]))
        else:
            found = self._result(encoded["ref"])
        for name in encoded["path"]:
            if isinstance(found, MapResults) or not isinstance(found, dict):
                found = None
                break
            found = found.get(name)
        return found

    def is_true(self, encoded: dict[str, Any]) -> bool:
        """Tell whether a condition holds; a map's result does when it has items."""
        found = self.value(encoded)
        return found.count > 0 if isinstance(found, MapResults) else bool(found)

    def call(
        self, method: Any, step: Step, first: tuple[Any, ...] = ()
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return validated positional and keyword arguments for a step's method."""
        encoded = step.arguments
        values = [*first, *(self.value(item) for item in encoded["args"][len(first) :])]
        named = {name: self.value(item) for name, item in encoded["kwargs"].items()}
        return bind(method, values, named)

    def plain(self, step: Step) -> dict[str, Any]:
        """Return the arguments as JSON data: what an approval shows and what is hashed."""
        return {
            "args": [self.value(item) for item in step.arguments["args"]],
            "kwargs": {n: self.value(item) for n, item in step.arguments["kwargs"].items()},
        }

    def _result(self, key: str) -> Any:
        if key not in self._known:
            self._known[key] = self._read(self._rows().get(key=key, retired_in=None))
        return self._known[key]

    def _rows(self) -> Any:
        return Step.objects.for_tenant(self._tenant_id).filter(task_id=self._task_id)

    def _read(self, step: Step) -> Any:
        if step.kind == "map" and step.status != "skipped":
            return StoredMapResults(step)
        return unpack(self._tenant_id, step.result)


def bind(method: Any, values: list[Any], named: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Validate JSON values against the annotations of a method or function (after `ctx`).

    Raises:
        ConfigurationError: the method cannot take these arguments.
    """
    parameters, _ = _signature(*_function(method))
    if len(values) > len(parameters):
        raise ConfigurationError(f"{method.__qualname__} takes {len(parameters)} arguments")
    by_name = dict(parameters)
    try:
        positional = [
            _validated(annotation, value)
            for (_, annotation), value in zip(parameters, values, strict=False)
        ]
        keyword = {name: _validated(by_name[name], value) for name, value in named.items()}
    except (ValidationError, KeyError) as error:
        raise ConfigurationError(
            f"{method.__qualname__} cannot take its arguments: {error}"
        ) from error
    return positional, keyword


def _validated(annotation: Any, value: Any) -> Any:
    if isinstance(value, StoredMapResults):
        value.adapt(typing.get_args(annotation))
        return value
    return _adapter(annotation).validate_python(value)


class StoredMapResults(MapResults[Any]):
    """A finished map's results, read range by range from the database."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._result_adapter: TypeAdapter[Any] = _adapter(Any)

    def adapt(self, arguments: tuple[Any, ...]) -> None:
        """Take the result type from the annotation `MapResults[T]`."""
        if arguments:
            self._result_adapter = _adapter(arguments[0])

    @property
    @override
    def count(self) -> int:
        return self._step.next_item

    @property
    @override
    def failed(self) -> int:
        return self._step.items_failed

    @override
    def __iter__(self) -> Iterator[MapItem[Any]]:
        ranges = (
            StepRange.objects.for_tenant(self._step.tenant_id)
            .filter(step_id=self._step.id)
            .order_by("first_item")
        )
        last = -1
        while True:
            stored = ranges.filter(first_item__gt=last).first()
            if stored is None:
                return
            last = stored.first_item
            rows = unpack(self._step.tenant_id, stored.results)
            for number, row in enumerate(rows):
                yield self._item(stored.first_item + number, row)

    def _item(self, index: int, row: dict[str, Any]) -> MapItem[Any]:
        if "error" in row:
            return MapItem(index, row["item"], None, ItemFault(**row["error"]))
        return MapItem(
            index, row["item"], self._result_adapter.validate_python(row["result"]), None
        )


class Items:
    """The items of a map: an `ItemList` in the artifact store, or a plain list."""

    def __init__(self, tenant_id: UUID, source: Any) -> None:
        self._tenant_id = tenant_id
        self._list = source if isinstance(source, list) else None
        self._stored = None if self._list is not None else ItemList.model_validate(source)

    @property
    def count(self) -> int:
        """Return the number of items."""
        return len(self._list) if self._list is not None else self._stored.count  # type: ignore[union-attr]

    def read(self, first: int, end: int) -> list[Any]:
        """Return items [first, end); reads only the part of the list that holds them."""
        if self._list is not None:
            return self._list[first:end]
        assert self._stored is not None  # noqa: S101 - one of the two is set
        stride = self._stored.stride
        with artifact_store.open_blob(self._tenant_id, self._stored.sha256) as source:
            source.seek(self._stored.offsets[first // stride])
            for _ in range(first % stride):
                source.readline()
            return [json.loads(source.readline()) for _ in range(end - first)]


def item_digest(method: str, item: Any, extra: list[Any]) -> str:
    """Return what makes two items of a map the same work: content, method, further arguments."""
    return digest_of([method, item, extra])[:32]


def _function(method: Any) -> tuple[Any, int]:
    """Return the plain function and how many parameters come before the author's own."""
    is_method = hasattr(method, "__func__")
    return _unwrapped(method.__func__ if is_method else method), 1 + is_method


_unwrapped = lru_cache(maxsize=1024)(inspect.unwrap)


@lru_cache(maxsize=1024)
def _signature(function: Any, skipped: int) -> tuple[tuple[tuple[str, Any], ...], Any]:
    hints = typing.get_type_hints(function)
    names = list(inspect.signature(function).parameters)[skipped:]
    return tuple((name, hints.get(name, Any)) for name in names), hints.get("return", Any)


@lru_cache(maxsize=1024)
def _adapter(annotation: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(annotation, config=_EXACT)
    except PydanticUserError:
        # A model, a dataclass: it has a configuration of its own.
        return TypeAdapter(annotation)
