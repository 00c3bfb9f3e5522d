"""What is promised in docs/reference is what the code does."""

import ast
import os
import re
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.contrib.staticfiles import finders
from django.test import Client

from tasks_app.api.errors import KINDS
from tasks_app.api.reference import schema_text
from tasks_app.domain import errors
from tasks_app.policy.capabilities import CAPABILITIES
from tests.api.calls import Api, api_of, openapi
from tests.architecture.sources import called_name, calls, product_files
from tests.factories import make_member, make_tenant

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def test_every_error_code_is_documented_with_its_status() -> None:
    """The page and the table of api/errors.py hold the same codes."""
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \|", (REFERENCE / "errors.md").read_text(), re.M)
    assert {code: int(status) for code, status in rows} == {
        code: kind.status for code, kind in KINDS.items()
    }


def test_every_fault_has_a_status() -> None:
    """No class of domain/errors.py falls through to 500 by accident."""
    codes = {
        value.code
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, errors.RuntimeFault)
    }
    assert codes <= KINDS.keys()


def test_openapi_document_is_the_committed_one() -> None:
    """Drift: run this with UPDATE_REFERENCE=1 and look at the difference before committing it."""
    if os.environ.get("UPDATE_REFERENCE"):
        (REFERENCE / "openapi.yaml").write_text(schema_text())
    assert (REFERENCE / "openapi.yaml").read_text() == schema_text()


def test_every_operation_names_capability_and_codes() -> None:
    """U35: scope, every error code, an answer for each status, an example for each body."""
    document = openapi()
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    for operation in operations:
        first = operation["x-capability"].split()[0]
        assert first in {*CAPABILITIES, "signed_in"}, operation["operationId"]
        codes = operation["x-error-codes"]
        assert set(codes) <= KINDS.keys()
        assert {str(KINDS[code].status) for code in codes} <= operation["responses"].keys()
    for name in ("createTask", "steerTask", "decideApproval", "createKey"):
        operation = next(item for item in operations if item["operationId"] == name)
        (content,) = operation["requestBody"]["content"].values()
        assert content["examples"]


def test_every_problem_code_is_documented() -> None:
    """The codes of single problems that the product makes are those of the page."""
    made = {
        str(code.value)
        for path in product_files()
        for call in calls(path)
        if called_name(call) == "FieldProblem"
        for code in call.args[1:2]
        if isinstance(code, ast.Constant)
    }
    assert made == {row[0] for row in rows_of("errors.md", "problems")}


def table(header: str, rows: Sequence[tuple[str, ...]]) -> str:
    columns = header.count("|") - 1
    lines = [header, "|" + " --- |" * columns, *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def operations() -> list[tuple[str, str, dict[str, Any]]]:
    paths = openapi()["paths"]
    return [
        (method.upper(), path, operation)
        for path, methods in paths.items()
        for method, operation in methods.items()
    ]


def routes_table() -> str:
    rows = [
        (method, f"`{path}`", f"`{operation['operationId']}`", operation["x-capability"],
         operation["description"].partition("\n")[0])
        for method, path, operation in operations()
    ]  # fmt: skip
    return table("| method | path | operation | needs | answer |", rows)


def lists_table() -> str:
    rows = []
    for _, _, operation in operations():
        query = [p for p in operation.get("parameters", []) if p["in"] == "query"]
        orders = next((p["schema"]["enum"] for p in query if p["name"] == "sort"), None)
        if orders:
            names = sorted({p["name"] for p in query} - {"limit", "cursor", "sort"})
            shown = (", ".join(f"`{name}`" for name in part) for part in (names, orders))
            rows.append((f"`{operation['operationId']}`", *shown))
    return table("| list | filters | `sort` |", rows)


@pytest.mark.parametrize(("name", "made"), [("routes", routes_table), ("lists", lists_table)])
def test_every_route_is_in_the_tables(name: str, made: Callable[[], str]) -> None:
    """docs/reference/rest.md has each route and each filter; UPDATE_REFERENCE=1 writes them."""
    page = REFERENCE / "rest.md"
    marks = rf"(<!-- {name} -->\n)(.*?)(<!-- /{name} -->)"
    if os.environ.get("UPDATE_REFERENCE"):
        text = re.sub(marks, lambda m: f"{m[1]}{made()}\n{m[3]}", page.read_text(), flags=re.S)
        page.write_text(text)
    found = re.search(marks, page.read_text(), re.S)
    assert found is not None
    assert found[2].rstrip("\n") == made()


def rows_of(page: str, name: str) -> list[list[str]]:
    found = re.search(
        rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", (REFERENCE / page).read_text(), re.S
    )
    assert found is not None
    return [
        [cell.strip().strip("`") for cell in line.strip("| ").split(" | ")]
        for line in found[1].splitlines()[2:]
    ]


@pytest.mark.django_db
def test_refused_stream_names_its_request() -> None:
    """What docs/reference/errors.md promises of every refusal holds for streams."""
    answer = Client().get(f"/runtime/tasks/{uuid.uuid4()}/events", headers={"X-Request-Id": "r-1"})
    assert (answer.status_code, answer.json()["requestId"]) == (401, "r-1")
    assert answer.headers["X-Request-Id"] == "r-1"


@pytest.mark.django_db
class TestReferencePages:
    """S132: for signed-in callers, unless the installation opens them."""

    def test_schema_needs_a_credential(self) -> None:
        assert Api().get("/runtime/schema").status_code == 401
        answer = api_of(make_tenant(), "viewer").get("/runtime/schema")
        assert yaml.load(answer.content, Loader=yaml.CSafeLoader)["openapi"] == "3.1.0"

    def test_page_needs_a_login(self) -> None:
        client = Client()
        answer = client.get("/runtime/docs")
        assert (answer.status_code, answer.headers["Location"]) == (
            302,
            "/login/?next=/runtime/docs",
        )
        client.force_login(make_member(make_tenant(), "viewer"))
        assert client.get("/runtime/docs").status_code == 200

    def test_open_installation_shows_both(self, settings: Any) -> None:
        settings.RUNTIME = {**settings.RUNTIME, "public_schema": True}
        assert Api().get("/runtime/schema").status_code == 200
        assert Api().get("/runtime/docs").status_code == 200

    def test_page_works_under_the_policy(self, settings: Any) -> None:
        """S123: nothing inline, nothing from elsewhere."""
        settings.RUNTIME = {**settings.RUNTIME, "public_schema": True}
        page = Client().get("/runtime/docs").content.decode()
        assert "<style" not in page
        assert not re.search(r"<script(?![^>]*\bsrc=)", page)
        assert not re.search(r"(?:src|href)=\"(?!/)", page)
        for name in re.findall(r"(?:src|href)=\"/static/([^\"]+)\"", page):
            assert finders.find(name), name
