"""The suite's fixtures, through the public interface for authors (names from its sources)."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import override

from tasks_app.workflows import (
    McpTool,
    Question,
    Retry,
    StepContext,
    Workflow,
    effect,
    inline_tool,
    step,
    workflow,
)
from tasks_app.workflows.inline import list_tools

ONCE = Retry(max=1)
NAME = {"properties": {"name": {"type": "string"}}, "required": ["name"]}


class Nothing(BaseModel):
    """No arguments."""


class Named(BaseModel):
    name: str


class Seconds(BaseModel):
    seconds: float = Field(1, ge=0, le=3600)
    label: str = ""


class File(BaseModel):
    filename: str = "notes.txt"


class JobFailedError(Exception):
    """What a job reports that has run and did not succeed."""

    code = "job_failed"


@inline_tool(name="greet", title="Greet", description="Greets somebody at once.")
def greet(asked: Named) -> str:
    return f"Hello, {asked.name}!"


@inline_tool(name="test_simple_text", description="Returns a text.")
def simple_text(asked: Nothing) -> str:
    return "This is a simple text response for testing."


@inline_tool(name="test_error_handling", description="Fails.")
def error_handling(asked: Nothing) -> str:
    raise ValueError("This tool intentionally returns an error for testing")


class Headers(BaseModel):
    region: str = Field("", json_schema_extra={"x-mcp-header": "Region"})


@inline_tool(name="test_headers", description="Has an argument that headers repeat.")
def headers(asked: Headers) -> str:
    return asked.region


def ask_name(
    goal: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Question]:
    return {} if "user_name" in answers else {"user_name": Question("What is your name?", NAME)}


@inline_tool(
    name="test_input_required_result_elicitation",
    description="Asks for a name, then greets.",
    preflight=ask_name,
)
def greet_after_asking(asked: Named) -> str:
    return f"Hello, {asked.name}!"


@inline_tool(
    name="test_streaming_elicitation", description="Asks on its answer.", preflight=ask_name
)
def greet_in_a_stream(asked: Named) -> str:
    return f"Hello, {asked.name}!"


@inline_tool(name="test_logging_tool", description="Says nothing besides its result.")
def log_nothing(asked: Nothing) -> str:
    return "done"


@inline_tool(name="test_trigger_tool_change", description="Brings one more tool.")
def trigger_tool_change(asked: Nothing) -> str:
    def one_more(asked: Nothing) -> str:
        return "one more"

    inline_tool(name=f"one_more_{len(list_tools())}")(one_more)
    return "there is one more tool"


class Confirmed(BaseModel):
    ok: bool


def ask_ok(
    goal: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Question]:
    schema = {"properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    return {} if "confirm" in answers else {"confirm": Question("Please confirm", schema)}


@inline_tool(
    name="test_input_required_result_request_state",
    description="Asks for a yes and keeps a state.",
    preflight=ask_ok,
)
def with_state(asked: Confirmed) -> str:
    return f"state-ok: {asked.ok}"


@inline_tool(
    name="test_input_required_result_tampered_state",
    description="Asks for a yes and refuses a state that is not its own.",
    preflight=ask_ok,
)
def with_sealed_state(asked: Confirmed) -> str:
    return f"state-ok: {asked.ok}"


class Coloured(BaseModel):
    name: str
    color: str


def ask_twice(
    goal: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Question]:
    colour = {"properties": {"color": {"type": "string"}}, "required": ["color"]}
    if "step1" not in answers:
        return {"step1": Question("Step 1: What is your name?", NAME)}
    if "step2" not in answers:
        return {"step2": Question("Step 2: What is your favorite color?", colour)}
    return {}


@inline_tool(
    name="test_input_required_result_multi_round",
    description="Asks twice.",
    preflight=ask_twice,
)
def in_rounds(asked: Coloured) -> str:
    return f"{asked.name} likes {asked.color}"


class ContactMethod(BaseModel):
    """The suite's schema with the words that JSON Schema 2020-12 has."""

    model_config = ConfigDict(extra="forbid")

    @override
    @classmethod
    def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "$defs": {
                "address": {
                    "$anchor": "addressDef",
                    "type": "object",
                    "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
                }
            },
            "properties": {
                "name": {"type": "string"},
                "address": {"$ref": "#/$defs/address"},
                "contactMethod": {"type": "string", "enum": ["phone", "email"]},
                "phone": {"type": "string"},
                "email": {"type": "string"},
            },
            "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
            "if": {
                "properties": {"contactMethod": {"const": "phone"}},
                "required": ["contactMethod"],
            },
            "then": {"required": ["phone"]},
            "else": {"required": ["email"]},
            "additionalProperties": False,
        }


@inline_tool(name="json_schema_2020_12_tool", description="Tool with JSON Schema 2020-12 features")
def schema_tool(asked: ContactMethod) -> str:
    return "ok"


@workflow(name="slow_compute", version=1, title="Slow compute")
class SlowCompute(Workflow[Seconds, Any]):
    """Sleeps without a process, then computes."""

    @step(pure=True)
    def compute(self, ctx: StepContext, label: str) -> str:
        return f"computed {label}"

    @override
    def plan(self, goal: Seconds, p: Any) -> Any:
        if goal.seconds:
            p.sleep(timedelta(seconds=goal.seconds))
        return p.step(self.compute, goal.label)


@workflow(name="failing_job", version=1, title="Failing job", mcp=McpTool(sync="refuse"))
class FailingJob(Workflow[Nothing, Any]):
    """Runs, and reports that it did not succeed."""

    @step(retry=ONCE)
    def work(self, ctx: StepContext) -> str:
        raise JobFailedError("the job did not succeed")

    @override
    def plan(self, goal: Nothing, p: Any) -> Any:
        p.sleep(timedelta(seconds=0.5))
        return p.step(self.work)


@workflow(
    name="test_missing_capability", version=1, title="For tasks only", mcp=McpTool(sync="refuse")
)
class ForTasksOnly(Workflow[Nothing, Any]):
    """No client that does not know tasks can call it."""

    @step(pure=True)
    def work(self, ctx: StepContext) -> str:
        return "done"

    @override
    def plan(self, goal: Nothing, p: Any) -> Any:
        return p.step(self.work)


@workflow(name="protocol_error_job", version=1, title="Crashing job")
class CrashingJob(Workflow[Nothing, Any]):
    """Its code has a fault."""

    @step(retry=ONCE)
    def work(self, ctx: StepContext) -> str:
        raise RuntimeError("a fault in the code")

    @override
    def plan(self, goal: Nothing, p: Any) -> Any:
        return p.step(self.work)


@workflow(name="confirm_delete", version=1, title="Delete after a yes")
class ConfirmDelete(Workflow[File, Any]):
    """Asks before it goes on."""

    @step(pure=True)
    def delete(self, ctx: StepContext, answer: dict[str, Any], filename: str) -> str:
        return f"deleted {filename}" if answer.get("confirm") else f"kept {filename}"

    @override
    def plan(self, goal: File, p: Any) -> Any:
        schema = {
            "type": "object",
            "properties": {"confirm": {"type": "boolean"}},
            "required": ["confirm"],
        }
        answer = p.question("sure", prompt=f"Delete {goal.filename}?", answer=schema)
        return p.step(self.delete, answer, goal.filename)


class Asking(BaseModel):
    what: str


@workflow(name="ask_one", version=1, mcp=McpTool(listed=False))
class AskOne(Workflow[Asking, Any]):
    """One question of several that are open at once."""

    @step(pure=True)
    def take(self, ctx: StepContext, answer: dict[str, Any]) -> Any:
        return answer

    @override
    def plan(self, goal: Asking, p: Any) -> Any:
        schema = {"type": "object", "properties": {goal.what: {"type": "string"}}}
        return p.step(self.take, p.question("one", prompt=f"What {goal.what}?", answer=schema))


@workflow(name="multi_input", version=1, title="Two questions at once")
class MultiInput(Workflow[Nothing, Any]):
    """Two tasks ask at the same time; the second one's answer is waited for."""

    @override
    def plan(self, goal: Nothing, p: Any) -> Any:
        p.child(AskOne, {"what": "name"}, name="first", wait=False)
        return p.child(AskOne, {"what": "color"}, name="second")


@workflow(
    name="test_tool_with_task", version=1, title="Asks, then runs", mcp=McpTool(sync="refuse")
)
class AsksFirst(Workflow[Named, Any]):
    """Asks for a name before there is a task."""

    @step(pure=True)
    def greet(self, ctx: StepContext, name: str) -> str:
        return f"Hello, {name}!"

    @override
    def preflight(
        self, goal: Mapping[str, Any], answers: Mapping[str, Mapping[str, Any]]
    ) -> Mapping[str, Question]:
        return ask_name(goal, answers)

    @override
    def plan(self, goal: Named, p: Any) -> Any:
        return p.step(self.greet, goal.name)


class Publishing(Workflow[Nothing, Any]):
    """Acts outside after an approval."""

    approve_before = ("publish",)

    @effect(kind="keyed")
    def publish(self, ctx: StepContext) -> str:
        return "published"

    @override
    def plan(self, goal: Nothing, p: Any) -> Any:
        return p.effect(self.publish)


@workflow(name="publish_by_page", version=1)
class PublishByPage(Publishing):
    """Its approval is decided on a page."""


@workflow(name="publish_by_form", version=1, mcp=McpTool(approval="form"))
class PublishByForm(Publishing):
    """Its approval may be decided in the client."""
