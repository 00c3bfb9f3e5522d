"""A workflow whose own code fails: the caller is told which one, and nothing is stored."""

import logging
from typing import Any

import pytest
from pydantic import BaseModel, field_validator
from typing_extensions import override

from tasks_app.domain.errors import ConfigurationError
from tasks_app.workflows import StepContext, Workflow, registry, step, workflow
from tests.api.calls import Api, api_of
from tests.factories import make_tenant

pytestmark = pytest.mark.django_db


class Goal(BaseModel):
    fails: str = ""

    @field_validator("fails")
    @classmethod
    def _look_up(cls, fails: str) -> str:
        return {}[fails] if fails == "goal" else fails


class Fails(Workflow[Goal, Any]):
    """Fails where the goal says."""

    @override
    def check(self, goal: Goal) -> None:
        if goal.fails == "check":
            raise AttributeError("secret detail")

    @override
    def plan(self, goal: Goal, p: Any) -> Any:
        match goal.fails:
            case "plan":
                Goal.model_validate({"fails": 5})
            case "rule":
                raise ConfigurationError("no such kind")
            case "text":
                return p.step(self.say, "x\x00")
            case "number":
                return p.step(self.say, float("nan"))
            case "name":
                return p.approval("a" * 95, deadline=None)
        return p.step(self.say, "fine")

    @step()
    def say(self, ctx: StepContext, text: str) -> str:
        return text


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Api:
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    workflow(name="fails.here", version=1)(Fails)
    return api_of(make_tenant(), "submitter")


@pytest.mark.parametrize("part", ["goal", "check", "plan", "name"])
def test_failing_code_has_a_code_of_its_own(
    api: Api, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It names the workflow, keeps what it said for the log, and leaves no task."""
    with caplog.at_level(logging.ERROR):
        answer = api.post("/runtime/tasks", {"workflow": "fails.here", "goal": {"fails": part}})
    body = answer.json()
    assert (answer.status_code, body["code"]) == (500, "workflow_failed")
    assert (body["workflow"], "fails.here" in body["detail"]) == ("fails.here", True)
    assert "secret detail" not in body["detail"]
    assert api.get("/runtime/tasks").json()["items"] == []
    [logged] = [line for line in caplog.records if line.getMessage() == "workflow.failed"]
    assert logged.exc_info is not None


@pytest.mark.parametrize("part", ["rule", "text", "number"])
def test_plan_that_breaks_a_rule_names_its_workflow(api: Api, part: str) -> None:
    """What a plan may not hold is refused before it is stored."""
    answer = api.post("/runtime/tasks", {"workflow": "fails.here", "goal": {"fails": part}})
    body = answer.json()
    assert (answer.status_code, body["code"]) == (500, "configuration_error")
    assert body["detail"].startswith("fails.here: ")
    assert api.get("/runtime/tasks").json()["items"] == []


def test_wrong_goal_is_still_the_callers(api: Api) -> None:
    """A goal that the model refuses is told field by field."""
    answer = api.post("/runtime/tasks", {"workflow": "fails.here", "goal": {"fails": 5}})
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_input")
