"""The JSON parser of REST and MCP: what PostgreSQL, hashes and people cannot read never gets in (S124)."""

import re
from collections.abc import Mapping
from typing import IO, Any, NoReturn

from rest_framework.exceptions import UnsupportedMediaType
from rest_framework.parsers import BaseParser
from typing_extensions import override

from tasks_app.api.errors import HttpFaultError
from tasks_app.domain import json_text
from tasks_app.domain.errors import FieldProblem
from tasks_app.domain.json_text import JsonTextError

MAX_BYTES = 1_048_576


class StrictJSONParser(BaseParser):
    """Parses `application/json` and keeps the raw text out of everything else."""

    media_type = "application/json"

    @override
    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the value of the body.

        Raises:
            HttpFaultError: `payload_too_large`, `invalid_json`, or what the view's `inspect` says.
        """
        request = (parser_context or {}).get("request")
        encoding = request.META.get("HTTP_CONTENT_ENCODING", "") if request else ""
        if encoding.lower() not in {"", "identity"}:
            raise UnsupportedMediaType(encoding, "Bodies are taken without Content-Encoding.")
        data = read_limited(stream, request.META.get("CONTENT_LENGTH") if request else None)
        charset = re.search(r"charset\s*=\s*\"?([^\s;\"]+)", media_type or "", re.IGNORECASE)
        if charset and charset[1].lower() not in {"utf-8", "utf8"}:
            refuse("JSON is UTF-8.")
        view = (parser_context or {}).get("view")
        if view is not None and hasattr(view, "inspect_body"):
            view.inspect_body(data)
        return loads(data)


def read_limited(stream: IO[bytes], length: str | None) -> bytes:
    """Return the whole body, or refuse as soon as it is too large."""
    announced = int(length) if length and length.isdigit() else 0
    data = b"" if announced > MAX_BYTES else stream.read(MAX_BYTES + 1)
    if announced > MAX_BYTES or len(data) > MAX_BYTES:
        raise HttpFaultError("payload_too_large", f"At most {MAX_BYTES} bytes.")
    return data


def loads(data: bytes) -> Any:
    """Return the value of UTF-8 JSON text that keeps to the limits.

    Raises:
        HttpFaultError: `invalid_json`, with a pointer where one can be named.
    """
    try:
        return json_text.loads(data.decode("utf-8"))
    except UnicodeDecodeError:
        refuse("The body is not UTF-8.")
    except JsonTextError as error:
        refuse(error.detail, error.pointer)


def refuse(detail: str, pointer: str = "") -> NoReturn:
    """Refuse the body."""
    errors = (FieldProblem(pointer, "invalid_json", detail),) if pointer else ()
    raise HttpFaultError("invalid_json", detail, errors)
