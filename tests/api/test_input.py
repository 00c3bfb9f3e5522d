"""What gets past the door, and what is refused with a name and a place."""

import json
import uuid
from typing import Any

import pytest

from tasks_app.api import parsing
from tasks_app.api.errors import HttpFaultError
from tasks_app.domain import json_text
from tasks_app.models import Task, Thread
from tasks_app.models.access import ROLES
from tests.api.calls import Api, api_of, task_body
from tests.api.world import make_world
from tests.factories import make_agent, make_tenant

TASKS = "/runtime/tasks"
SURROGATE = '"\\ud800"'


def goal_text(value: str) -> str:
    """Return a task's body with this raw JSON text inside its goal."""
    return f'{{"workflow":"scripted","goal":{{"script":[],"note":{value}}}}}'


@pytest.fixture
def api() -> Api:
    return api_of(make_tenant(), "submitter")


@pytest.mark.django_db
class TestA39:
    """A39: nothing that PostgreSQL, a hash or a person cannot read is a 500 or gets in."""

    @pytest.mark.parametrize(
        "body",
        [
            pytest.param("[" * 5000 + "]" * 5000, id="depth 5000"),
            pytest.param(goal_text("[" * 40 + "]" * 40), id="depth 40"),
            pytest.param('{"workflow":"a","workflow":"b","goal":{}}', id="duplicate key"),
            pytest.param(goal_text('{"a":1,"a":2}'), id="duplicate key inside"),
            pytest.param(goal_text("NaN"), id="NaN"),
            pytest.param(goal_text("-Infinity"), id="Infinity"),
            pytest.param(goal_text("1e400"), id="1e400"),
            pytest.param(goal_text(str(2**60)), id="2^60"),
            pytest.param(goal_text("9" * 6000), id="6000 digits"),
            pytest.param(goal_text('"\\u0000"'), id="NUL"),
            pytest.param(goal_text('{"\\u0000":1}'), id="NUL in a key"),
            pytest.param(goal_text(SURROGATE), id="lone surrogate"),
            pytest.param(goal_text('"' + "x" * 262_145 + '"'), id="long string"),
            pytest.param(goal_text("[" + "1," * 50_000 + "1]"), id="50000 values"),
            pytest.param(b"\xff\xfe{}", id="not UTF-8"),
            pytest.param("{", id="half"),
            pytest.param('"' + '\\"' * 200_000, id="string without an end"),
        ],
    )
    def test_hostile_json_is_refused(self, api: Api, body: str | bytes) -> None:
        answer = api.post(TASKS, body)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_json")
        assert not Task.objects.all_tenants("nothing was stored").exists()

    @pytest.mark.django_db(transaction=True)
    @pytest.mark.parametrize(
        "path", ["/api/runs", "/api/runs/wait", "/api/runs/stream", "/api/threads/search",
                 "/runtime/repairs", "/runtime/schedules", "/runtime/budgets"],
    )  # fmt: skip
    @pytest.mark.parametrize(
        "body", ['{"a":1,"a":2}', '{"a":NaN}', '{"a":9007199254740993}', "[" * 40 + "]" * 40,
                 '{"a":"\\u0000"}', "{"],
    )  # fmt: skip
    def test_every_door_reads_alike(self, path: str, body: str) -> None:
        """S124: whoever may do everything, by either kind of view."""
        answer = api_of(make_tenant(), *ROLES).post(path, body)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_json")

    def test_five_megabytes_are_too_many(self, api: Api) -> None:
        answer = api.post(TASKS, goal_text('"' + "x" * 5_000_000 + '"'))
        assert (answer.status_code, answer.json()["code"]) == (413, "payload_too_large")

    def test_encoded_bodies_are_refused(self, api: Api) -> None:
        """A body is read as it was sent: nothing is unpacked."""
        answer = api.post(TASKS, "{}", Content_Encoding="gzip")
        assert answer.status_code == 415

    def test_other_charsets_are_refused(self, api: Api) -> None:
        headers = {"Authorization": f"Bearer {api.key}"}
        for kind, status in (
            ("application/json; charset=bz2", 400),
            ("application/json; charset=utf-16", 400),
            ("text/plain", 415),
            ("application/x-www-form-urlencoded", 415),
            ("multipart/form-data; boundary=x", 415),
        ):
            answer = api.client.generic("POST", TASKS, b"{}", content_type=kind, headers=headers)
            assert answer.status_code == status, kind
            assert "code" in answer.json()


def test_parser_names_the_place() -> None:
    """A pointer leads to the value that is refused."""
    with pytest.raises(HttpFaultError) as refused:
        parsing.loads(b'{"a":[{"b/c":"\\u0000"}]}')
    assert [problem.pointer for problem in refused.value.errors] == ["/a/0/b~1c"]


def test_parser_takes_what_is_within_the_limits() -> None:
    """Deep, long and large, but readable."""
    nested: Any = "x"
    for _ in range(json_text.MAX_DEPTH):
        nested = [nested]
    for value in (nested, {"n": 2**53 - 1, "f": -1.5e10, "s": "é" * 1000, "brackets": "[" * 999}):
        assert parsing.loads(json.dumps(value).encode()) == value


@pytest.mark.django_db
@pytest.mark.parametrize(
    "key", ["tenant_id", "Tenant-Id", "userId", "IS_INTERNAL", "approved", "provenance",
            "policyVersion", "__proto"]
)  # fmt: skip
@pytest.mark.parametrize("depth", [1, 5])
def test_a9_facts_of_the_server_are_refused(api: Api, key: str, depth: int) -> None:
    """A9: at the top and deep inside, in any case; the pointer names it; nothing is stored."""
    value: Any = {key: "x"}
    pointer = f"/goal/{key}"
    for _ in range(depth - 1):
        value = {"a": value}
        pointer = pointer.replace("/goal", "/goal/a", 1)
    answer = api.post(TASKS, task_body(goal=value))
    assert (answer.status_code, answer.json()["code"]) == (400, "reserved_key")
    assert answer.json()["errors"][0]["pointer"] == pointer
    top = api.post(TASKS, {**task_body(), key: "x"})
    assert (top.status_code, top.json()["code"]) == (400, "reserved_key")
    assert not Task.objects.all_tenants("nothing was stored").exists()


@pytest.mark.django_db
def test_a9_commands_cannot_state_facts() -> None:
    """A9: not in a payload either."""
    world = make_world()
    api = api_of(world.tenant, "operator")
    body = {
        "type": "provide_input",
        "payload": {"answer": {"approved": True}},
        "expectedVersion": 1,
        "reason": "r",
    }
    answer = api.post(world.path("/runtime/tasks/{task}/commands"), body)
    assert (answer.status_code, answer.json()["code"]) == (400, "reserved_key")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("change", "pointer", "code"),
    [
        ({"owner": "me"}, "/owner", "unknown_field"),
        ({"check_point": {}}, "/check_point", "unknown_field"),
        ({"priority": 10}, "/priority", "less_than_equal"),
        ({"priority": "5"}, "/priority", "int_type"),
        ({"priority": True}, "/priority", "int_type"),
        ({"title": ""}, "/title", "string_too_short"),
        ({"goal": []}, "/goal", "dict_type"),
        ({"checkpointPolicy": {"everySteps": 0}}, "/checkpointPolicy/everySteps",
         "greater_than_equal"),
        ({"approvalPolicy": {"before": ["nothing"]}}, "/approvalPolicy/before/0", "unknown_act"),
        ({"goal": {"script": [], "wrong": 1}}, "/goal/wrong", None),
    ],
)  # fmt: skip
def test_body_that_does_not_fit_is_named(
    api: Api, change: dict[str, Any], pointer: str, code: str | None
) -> None:
    """U37: 422 with a pointer to each field."""
    answer = api.post(TASKS, task_body(**change))
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
    (problem,) = answer.json()["errors"]
    assert problem["pointer"] == pointer
    assert code is None or problem["code"] == code
    assert not Task.objects.all_tenants("nothing was stored").exists()


@pytest.mark.django_db
def test_missing_fields_are_named(api: Api) -> None:
    """Both at once."""
    errors = api.post(TASKS, {}).json()["errors"]
    assert {(item["pointer"], item["code"]) for item in errors} == {
        ("/workflow", "required"),
        ("/goal", "required"),
    }


@pytest.mark.django_db
def test_unknown_workflow_has_its_code(api: Api) -> None:
    """Not a field problem: there is no such workflow here."""
    answer = api.post(TASKS, task_body(workflow="no.such"))
    assert (answer.status_code, answer.json()["code"]) == (422, "unknown_workflow")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("offset=3", "?offset"),
        ("status=sleeping", "?status"),
        ("limit=0", "?limit"),
        ("limit=201", "?limit"),
        ("limit=x", "?limit"),
        ("limit=1&limit=2", "?limit"),
        ("initiator__username=root", "?initiator__username"),
    ],
)
def test_queries_that_do_not_fit_are_refused(api: Api, query: str, pointer: str) -> None:
    """U37 and S128: 400, nothing is ignored."""
    answer = api.get(f"{TASKS}?{query}")
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_query")
    assert answer.json()["errors"][0]["pointer"] == pointer


@pytest.mark.django_db
def test_a2_foreign_thread_is_like_none(api: Api) -> None:
    """A2: an id in a body is looked up within what the caller sees."""
    other = make_world()
    thread = Thread.objects.create(tenant=other.tenant, key="t", owner=other.owner)
    answers = [
        api.post(TASKS, task_body(threadId=str(thread_id)))
        for thread_id in (thread.id, uuid.uuid4())
    ]
    assert {answer.status_code for answer in answers} == {404}
    first, second = (
        {key: value for key, value in answer.json().items() if key != "requestId"}
        for answer in answers
    )
    assert first == second
    assert Task.objects.all_tenants("only the other world's").count() == 1


@pytest.mark.django_db
def test_a2_foreign_agent_is_like_none() -> None:
    """A2: a key for another tenant's agent."""
    api = api_of(make_tenant(), "viewer")
    for agent in (make_agent(make_tenant()).id, uuid.uuid4()):
        body = {"name": "k", "scopes": ["tasks:read"], "ownerAgent": str(agent)}
        assert api.post("/runtime/keys", body).status_code == 404
