"""Rules: the New task page says what a workflow does outside, and asks for what admission needs."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from pydantic import BaseModel
from typing_extensions import override

from tasks_app.admission.budgets import set_limit
from tasks_app.admission.principal import from_user
from tasks_app.models import AgentIdentity, Task, Tenant
from tasks_app.workflows import Budget, StepContext, Workflow, effect, registry, workflow
from tests import factories

pytestmark = pytest.mark.django_db(transaction=True)

FORM = "/tasks/new/letters.send/"


class Letter(BaseModel, extra="forbid"):
    customer: str


@pytest.fixture
def flow() -> Iterator[type[Workflow[Any, Any]]]:
    """A workflow with an act of which its author says nothing in words."""

    @workflow(name="letters.send", version=1, title="Send a letter")
    class Letters(Workflow[Letter, None]):
        @override
        def plan(self, goal: Letter, p: Any) -> Any:
            return p.effect(self.post, goal.customer)

        @effect(kind="keyed")
        def post(self, ctx: StepContext, customer: str) -> None:
            pass

    yield Letters
    registry.forget("letters.send")


@pytest.fixture
def tenant() -> Tenant:
    return factories.make_tenant()


@pytest.fixture
def client(tenant: Tenant) -> Client:
    client = Client()
    client.force_login(factories.make_member(tenant, ["submitter"]))
    return client


def limit(tenant: Tenant, kind: str, amount: int, **more: Any) -> None:
    """Set a limit as an admin of the tenant does."""
    admin = from_user(factories.make_member(tenant, ["admin"]), tenant.pk)
    set_limit(admin, kind=kind, limit=amount, reason="plan", **more)


@pytest.mark.parametrize("path", ["/tasks/new/", FORM])
@pytest.mark.usefixtures("flow")
def test_undeclared_acts_are_named(client: Client, path: str) -> None:
    """Without the author's words the declared names stand there; nothing false does."""
    page = client.get(path).content.decode()
    assert '<li class="mono">post</li>' in page
    assert "asks nobody" not in page
    assert "Does nothing outside." not in page


@pytest.mark.usefixtures("flow")
def test_limits_of_the_task_are_sent_with_it(client: Client) -> None:
    """They may be set without any limit above, and are empty at first."""
    assert "budget/tokens" in client.get(FORM).content.decode()
    form = {"goal/customer": "Wu", "budget/tokens": "500", "budget/steps": ""}
    answer = client.post(FORM, form)
    assert answer.status_code == 302
    task = Task.objects.all_tenants("test").get()
    assert task.budget == {"tokens": 500}


@pytest.mark.usefixtures("flow")
def test_limit_above_asks_for_its_kind(client: Client, tenant: Tenant) -> None:
    """The field is open and needed; leaving it out is told once, at the field."""
    limit(tenant, "tokens", 1000)
    page = client.get(FORM).content.decode()
    assert "A limit stands above this task" in page
    assert 'name="budget/tokens" type="number" dir="auto" value="" required' in page
    refused = client.post(FORM, {"goal/customer": "Wu"})
    text = refused.content.decode()
    assert refused.status_code == 422
    assert '<a href="#budget-tokens">Tokens</a>' in text
    assert text.count("There is a budget for tokens") == 2  # in the list, and at the field
    assert client.post(FORM, {"goal/customer": "Wu", "budget/tokens": "9"}).status_code == 302


@pytest.mark.usefixtures("flow")
def test_limit_of_the_agent_asks_too_and_of_another_does_not(
    client: Client, tenant: Tenant
) -> None:
    """Tasks are started for the tenant's default agent."""
    rows = AgentIdentity.objects.for_tenant(tenant.pk)
    own = rows.get_or_create(name="default", tenant_id=tenant.pk)[0]
    other = factories.make_agent(tenant, name="other")
    limit(tenant, "steps", 10, agent_id=other.pk)
    assert "A limit stands above" not in client.get(FORM).content.decode()
    limit(tenant, "steps", 10, agent_id=own.pk)
    assert "A limit stands above" in client.get(FORM).content.decode()


def test_limit_that_the_workflow_sets_itself_is_not_asked_for(
    client: Client, tenant: Tenant, flow: type[Workflow[Any, Any]]
) -> None:
    """It is enough that the workflow says how much."""
    flow.budget = Budget(tokens=100)
    limit(tenant, "tokens", 1000)
    assert "A limit stands above" not in client.get(FORM).content.decode()


@pytest.mark.usefixtures("flow")
def test_limit_that_is_no_number_is_told_at_its_field(client: Client) -> None:
    """Nothing is stored, the text is kept."""
    text = client.post(FORM, {"goal/customer": "Wu", "budget/steps": "many"}).content.decode()
    assert '<a href="#budget-steps">Steps</a>: A whole number from 0 on.' in text
    assert 'value="many"' in text
    assert not Task.objects.all_tenants("test").exists()
