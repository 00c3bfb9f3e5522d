"""Whatever fits, or does not fit, the OpenAPI document is answered as the document says.

Requests are made from the committed document and sent to a real web process over a real database:
each operation by itself, and chains along the document's links. The seed is fixed.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import schemathesis
from django.utils import timezone
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi import checks

from tasks_app.admission.idempotency import HEADER
from tasks_app.models.access import ROLES
from tasks_app.policy.capabilities import CAPABILITIES
from tests import factories
from tests.api.world import make_world
from tests.support.committed import committed
from tests.support.syncdir import SyncDir
from tests.support.workers import WebProcess, environment

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/reference/openapi.yaml"
# A stream has no end to wait for; tests/events and tests/clients read it.
ENDLESS = "followTask"


def known_code(context: Any, response: Any, case: Any) -> None:
    """A problem has a code that the operation lists."""
    if response.headers.get("content-type", [""])[0] == "application/problem+json":
        listed = case.operation.definition.raw["x-error-codes"]
        code = response.json()["code"]
        assert code in listed, f"{code} is not among {listed}"


CHECKS = (
    known_code,
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
)
EXAMPLES, CHAINS, LINKS_IN_A_CHAIN = 8, 50, 10
BOUNDED = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@dataclass(frozen=True)
class Caller:
    """A person with every right in a tenant that has something of every kind."""

    url: str
    key: str

    def send(self, case: Any) -> None:
        """Send a request and check its answer."""
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {self.key}"}
        case.call_and_validate(base_url=self.url, checks=list(CHECKS), timeout=60)


def make_caller(url: str) -> Caller:
    world = make_world()
    user = factories.make_user(username=f"any-{uuid4().hex}")
    factories.make_member(world.tenant, ROLES, user)
    _, key = factories.make_api_key(world.tenant, user, tuple(CAPABILITIES))
    error = {"code": "too_many_recoveries", "message": "It is held."}
    factories.make_task(
        tenant=world.tenant, status="dead_lettered", error=error, held_at=timezone.now(),
        initiator=world.owner,
    )  # fmt: skip
    return Caller(url, key)


@pytest.fixture(scope="module")
def db(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The test database with real commits, instead of pytest-django's fixture of this name."""
    yield from committed(django_db_blocker)


@pytest.fixture(scope="module")
def site(db: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a web process."""
    folder = tmp_path_factory.mktemp("site")
    SyncDir(folder / "sync")
    web = WebProcess("web", folder, environment(folder))
    try:
        web.wait_ready()
        yield web.url
    finally:
        web.kill_group()


def document() -> Any:
    """Return the committed document without what never ends."""
    loaded = schemathesis.openapi.from_path(DOCUMENT, config=SchemathesisConfig())
    loaded.config.generation.update(with_security_parameters=False)
    return loaded.exclude(operation_id=ENDLESS)


def asked() -> list[tuple[str, str]]:
    """Return each operation with how it is asked; what takes nothing cannot be asked wrongly."""
    found = []
    for result in document().get_all_operations():
        raw = result.ok().definition.raw
        takes = bool(raw.get("parameters") or raw.get("requestBody"))
        modes = ("positive", "negative") if takes else ("positive",)
        found += [(raw["operationId"], mode) for mode in modes]
    return found


@pytest.mark.parametrize(("name", "mode"), asked())
def test_an_operation_answers_as_it_is_written(site: str, name: str, mode: str) -> None:
    """No server error, no status, header or body that the document lacks."""
    caller = make_caller(site)
    operation = document().find_operation_by_id(name)

    each = given(case=operation.as_strategy(generation_mode=GenerationMode(mode)))
    BOUNDED(each(caller.send))()


REASON = {"reason": "because"}
# What chance does not find: beginnings of chains that can be gone on with. Links add to them.
SENSIBLE: dict[str, Callable[[], dict[str, Any]]] = {
    "createTask": lambda: {"workflow": "scripted", "goal": {"script": []}},
    "createSchedule": lambda: {
        "name": uuid4().hex, "workflow": "scripted", "goal": {"script": []}, "cron": "0 7 * * *",
    },
    "createKey": lambda: {"name": "k", "scopes": ["tasks:read"]},
    "decideApproval": lambda: {"decision": "approve", **REASON},
    "steerTask": lambda: {"type": "set_priority", "payload": {"priority": 1}, **REASON},
    "repairTask": lambda: {"verb": "requeue", **REASON},
}  # fmt: skip
LINKED = ("expectedVersion", "argsSha256")


def _linked(body: dict[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in LINKED if name in body}


# How many kinds of acts on something that exists chains have to get done, or they prove nothing.
REACHED = 6


def test_chains_of_operations_answer_as_they_are_written(site: str) -> None:
    """Along the links: start, look, steer, decide, repair, schedule, each with the last answer."""
    fitting = document()
    fitting.config.generation.update(modes=[GenerationMode.POSITIVE])
    machine = fitting.as_state_machine()
    done: Counter[str] = Counter()

    class Chain(machine):  # type: ignore[misc, valid-type]
        def setup(self) -> None:
            self.caller = make_caller(site)

        def before_call(self, case: Any, **kwargs: Any) -> None:
            name = case.operation.definition.raw["operationId"]
            case.query = {}
            # Random keys would often be unusable; a new one each time is what programs send.
            case.headers = {HEADER: uuid4().hex} if HEADER in (case.headers or {}) else {}
            if name in SENSIBLE and isinstance(case.body, dict):
                case.body = {**SENSIBLE[name](), **_linked(case.body)}

        def call(self, case: Any, **kwargs: Any) -> Any:
            case.headers = {**(case.headers or {}), "Authorization": f"Bearer {self.caller.key}"}
            answer = case.call(base_url=site, timeout=60, **kwargs)
            if answer.status_code < 300 and "{" in case.operation.path:
                done[case.operation.definition.raw["operationId"]] += 1
            return answer

        def validate_response(self, response: Any, case: Any, **kwargs: Any) -> None:
            case.validate_response(response, checks=list(CHECKS))

    Chain.run(settings=settings(BOUNDED, max_examples=CHAINS, stateful_step_count=LINKS_IN_A_CHAIN))
    assert len(done) >= REACHED, done
