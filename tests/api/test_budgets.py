"""Limits over REST: for one agent, and by the names that every kind has."""

from typing import Any

import pytest

from tasks_app.models import Budget, Task
from tests.api.calls import api_of, task_body
from tests.factories import make_agent, make_tenant

pytestmark = pytest.mark.django_db

LIMIT = {"kind": "tokens", "period": "month", "limit": 500, "reason": "plan B"}


def test_limit_of_one_agent_is_set() -> None:
    """`agentId` is a choice here, though elsewhere only the server states it."""
    tenant = make_tenant()
    admin, agent = api_of(tenant, "admin"), make_agent(tenant)
    answer = admin.post("/runtime/budgets", {**LIMIT, "agentId": str(agent.pk)})
    assert answer.status_code == 200, answer.content
    assert answer.json()["agentId"] == str(agent.pk)
    assert Budget.objects.for_tenant(tenant.pk).get().agent_id == agent.pk


@pytest.mark.parametrize("key", ["agent_id", "AgentId", "tenantId"])
def test_other_spellings_and_facts_stay_reserved(key: str) -> None:
    """Only the documented key is read; nothing else gets past as if it meant the same."""
    answer = api_of(make_tenant(), "admin").post("/runtime/budgets", {**LIMIT, key: "x"})
    assert (answer.status_code, answer.json()["code"]) == (400, "reserved_key")


def test_limit_of_another_tenants_agent_is_like_none() -> None:
    """A2: 404, and nothing is stored."""
    body = {**LIMIT, "agentId": str(make_agent(make_tenant()).pk)}
    assert api_of(make_tenant(), "admin").post("/runtime/budgets", body).status_code == 404


@pytest.mark.parametrize(
    "budget", [{"active_seconds": 60, "tool_calls": 2}, {"activeSeconds": 60, "toolCalls": 2}]
)
def test_kinds_are_read_by_their_names_and_in_camel_case(budget: dict[str, Any]) -> None:
    """What limits, events and errors call a kind is a key of a task's budget, too."""
    tenant = make_tenant()
    answer = api_of(tenant, "submitter").post("/runtime/tasks", task_body(budget=budget))
    assert answer.status_code == 201, answer.content
    task = Task.objects.for_tenant(tenant.pk).get()
    assert task.budget == {"active_seconds": 60, "tool_calls": 2}
