"""Rules S67 to S75: limits are granted once, reserved before a call, settled with its result."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel
from typing_extensions import override

from ledger_app.models import Usage
from tasks_app.admission import tasks
from tasks_app.domain.errors import BudgetInsufficientError, BudgetRequiredError, InvalidInputError
from tasks_app.models import Budget, Event, Price, Reservation, Task
from tasks_app.workflows import (
    Collect,
    EffectNotDoneError,
    Estimate,
    ItemError,
    Retry,
    StepContext,
    Workflow,
    effect,
    registry,
    step,
    workflow,
)
from tests.support.engine import Engine

QUICK = Retry(max=2, first_seconds=0.01, max_seconds=0.02)


class Calls(BaseModel):
    """What the calls of the test workflow do."""

    uses: list[int]
    fail_first: bool = False
    report: bool = True
    acts: int = 0
    not_done: bool = False
    over: list[int] = []
    unforeseen: list[int] = []
    unforeseen_items: list[int] = []
    child: list[int] = []
    share: float | None = None
    wait: bool = True
    twins: int = 1


RUNS: list[str] = []


class Spender(Workflow[Calls, None]):
    """Calls a model several times, then acts."""

    @override
    def plan(self, goal: Calls, p: Any) -> Any:
        for number, used in enumerate(goal.uses):
            p.step(self.ask, number, used, goal.fail_first, goal.report)
        if goal.over:
            p.map(self.classify, goal.over, chunk=3, on_error=Collect())
        for number, used in enumerate(goal.unforeseen):
            p.step(self.wonder, number, used)
        if goal.unforeseen_items:
            p.map(self.wonder_about, goal.unforeseen_items)
        for _ in range(goal.twins if goal.child else 0):
            child_goal = {"uses": goal.child}
            p.child(Spender, child_goal, wait=goal.wait, budget_share=goal.share)
        for number in range(goal.acts):
            p.effect(self.act, number, goal.not_done)

    @step(retry=QUICK, estimate=Estimate(tokens=100, model="small"))
    def ask(self, ctx: StepContext, number: int, used: int, fail_first: bool, report: bool) -> int:
        key = f"{ctx.task_id}:{number}"
        RUNS.append(key)
        tried = RUNS.count(key)
        if report:
            ctx.usage(f"{ctx.step_key}:{tried}", model="small", input_tokens=used)
        if fail_first and tried == 1:
            raise ConnectionError("the line was cut")
        return used

    @step(estimate=Estimate(tokens=10))
    def classify(self, ctx: StepContext, item: int) -> int:
        RUNS.append(f"{ctx.task_id}:item {item}")
        if item < 0:
            raise ItemError("negative", "no")
        return item

    @step()
    def wonder(self, ctx: StepContext, number: int, used: int) -> None:
        RUNS.append(f"{ctx.task_id}:wonder {number}")
        if used:
            ctx.usage(ctx.step_key, model="small", input_tokens=used)

    @step(pure=True)
    def wonder_about(self, ctx: StepContext, used: int) -> None:
        RUNS.append(f"{ctx.task_id}:about")
        ctx.usage(str(len(RUNS)), model="small", input_tokens=used, cost_micros=used)

    @effect(kind="keyed", retry=QUICK)
    def act(self, ctx: StepContext, number: int, not_done: bool) -> str:
        RUNS.append(f"{ctx.task_id}:act {number}")
        if not_done:
            raise EffectNotDoneError("refused", "the other side says no")
        return ctx.effect_key


@pytest.fixture
def spender() -> Iterator[None]:
    workflow(name="spender", version=1)(Spender)
    yield
    registry.forget("spender")


@pytest.fixture
def submit(engine: Engine, spender: None) -> Any:
    def admit(uses: list[int], *, budget: dict[str, int] | None = None, **goal: Any) -> UUID:
        return tasks.admit_task(
            engine.submitter,
            workflow="spender",
            goal={"uses": uses, **goal},
            source="code",
            budget=budget,
        ).task_id

    return admit


def budget(engine: Engine, task_id: UUID | None, kind: str) -> tuple[int, int]:
    """Return (spent, reserved) of a task, or of the tenant."""
    rows = Budget.objects.for_tenant(engine.tenant.id)
    row = rows.get(task_id=task_id, kind=kind)
    return row.spent, row.reserved


def limit_tenant(engine: Engine, kind: str, amount: int) -> Budget:
    return Budget.objects.create(tenant_id=engine.tenant.id, kind=kind, limit_amount=amount)


def test_reported_use_replaces_the_estimate(engine: Engine, submit: Any) -> None:
    """A call reserves its upper bound and is settled with what it really used."""
    task_id = submit([30, 70], budget={"tokens": 200})
    assert engine.drive(task_id).status == "completed"
    assert budget(engine, task_id, "tokens") == (100, 0)
    assert sum(Usage.objects.filter(task_id=task_id).values_list("input_tokens", flat=True)) == 100


def test_unreported_use_counts_as_estimated(engine: Engine, submit: Any) -> None:
    """Who reports nothing pays the upper bound."""
    task_id = submit([1, 1], budget={"tokens": 200}, report=False)
    assert engine.drive(task_id).status == "completed"
    assert budget(engine, task_id, "tokens") == (200, 0)


def test_call_without_room_is_not_made(engine: Engine, submit: Any) -> None:
    """The second call could pass the limit: it is not made, and the task says why it ended."""
    task_id = submit([60, 60], budget={"tokens": 150})
    task = engine.drive(task_id)
    assert (task.status, task.stop_reason) == ("failed", "budget_exceeded")
    assert task.error["kind"] == "tokens"
    assert RUNS.count(f"{task_id}:1") == 0
    assert budget(engine, task_id, "tokens") == (60, 0)
    engine.assert_audit_verifies(task_id)


def test_overrun_is_kept_and_ends_the_task(engine: Engine, submit: Any) -> None:
    """A call that cost more than its estimate is counted in full; no further one starts (S72)."""
    task_id = submit([170, 10], budget={"tokens": 200})
    assert engine.drive(task_id).stop_reason == "budget_exceeded"
    assert budget(engine, task_id, "tokens") == (170, 0)


@pytest.mark.parametrize(
    ("limit", "uses", "done"),
    [(1200, [500] * 20, 3), (1000, [500, 500, 0, 0], 4), (0, [500] * 3, 1), (0, [0, 0], 2)],
)
def test_use_that_nobody_foresaw_ends_the_task(
    engine: Engine, submit: Any, limit: int, uses: list[int], done: int
) -> None:
    """S72: steps without an estimate pass a limit by one call at most; other steps go on."""
    task_id = submit([], unforeseen=uses, budget={"tokens": limit})
    task = engine.drive(task_id)
    assert sum(line.startswith(f"{task_id}:wonder") for line in RUNS) == done
    assert task.stop_reason == ("" if done == len(uses) else "budget_exceeded")


def test_use_of_an_earlier_slice_ends_the_task(engine: Engine, submit: Any) -> None:
    """The next worker knows what was spent before it."""
    task_id = submit([], unforeseen=[300], acts=1, budget={"tokens": 200})
    assert engine.drive(task_id).stop_reason == "budget_exceeded"
    late = submit([90], fail_first=True, unforeseen=[1], budget={"tokens": 150})
    assert engine.drive(late).stop_reason == "budget_exceeded"


@pytest.mark.parametrize("kind", ["tokens", "money_micros"])
def test_items_pass_a_limit_by_one_call(engine: Engine, submit: Any, kind: str) -> None:
    """A map looks at what was used after each item, not only after each range."""
    task_id = submit([], unforeseen_items=[50] * 40, budget={kind: 120})
    assert engine.drive(task_id).stop_reason == "budget_exceeded"
    assert RUNS.count(f"{task_id}:about") == 3
    assert budget(engine, task_id, kind) == (150, 0)


def notices(engine: Engine, task_id: UUID) -> list[tuple[str, int, int]]:
    events = Event.objects.for_tenant(engine.tenant.id).filter(task_id=task_id, type="budget")
    return [
        (event.data["kind"], event.data["percent"], event.data["spent"])
        for event in events.order_by("seq")
    ]


def test_people_hear_of_counted_limits(engine: Engine, submit: Any) -> None:
    """S74: steps and active time are told of like what calls use, over slices and ranges."""
    task_id = submit([0] * 4, budget={"steps": 3})
    assert engine.drive(task_id).stop_reason == "budget_exceeded"
    assert notices(engine, task_id) == [("steps", 100, 3)]
    ranges = submit([], over=list(range(10)), budget={"steps": 10})
    engine.drive(ranges)
    assert notices(engine, ranges) == [("steps", 80, 9), ("steps", 100, 10)]
    timed = submit([0], budget={"active_seconds": 0})
    engine.drive(timed)
    assert [kind for kind, _, _ in notices(engine, timed)] == ["active_seconds"]


def test_people_hear_of_eighty_percent_once(engine: Engine, submit: Any) -> None:
    """S74: one event when 80 % and one when 100 % of a limit are used."""
    task_id = submit([210], budget={"tokens": 200})
    engine.drive(task_id)
    events = Event.objects.for_tenant(engine.tenant.id).filter(task_id=task_id, type="budget")
    assert [event.data["percent"] for event in events.order_by("seq")] == [100]
    other = submit([90, 80], budget={"tokens": 200})
    engine.drive(other)
    events = Event.objects.for_tenant(engine.tenant.id).filter(task_id=other, type="budget")
    assert [event.data["percent"] for event in events.order_by("seq")] == [80]


def test_failed_try_counts_and_keeps_one_reservation(engine: Engine, submit: Any) -> None:
    """What a failed try used is spent; the next try finds the reservation and reserves no second."""
    task_id = submit([40], budget={"tokens": 150}, fail_first=True)
    engine.run(task_id)
    assert budget(engine, task_id, "tokens") == (40, 100)
    assert engine.drive(task_id).status == "completed"
    assert budget(engine, task_id, "tokens") == (80, 0)
    assert Reservation.objects.for_tenant(engine.tenant.id).filter(task_id=task_id).count() == 1


def test_map_reserves_by_range(engine: Engine, submit: Any) -> None:
    """Items of a map are reserved and settled by ranges; failed items were calls too."""
    task_id = submit([], over=[1, 2, -3, 4], budget={"tokens": 100})
    assert engine.drive(task_id).status == "completed"
    assert budget(engine, task_id, "tokens") == (40, 0)
    poor = submit([], over=[1, 2, 3, 4, 5, 6], budget={"tokens": 35})
    assert engine.drive(poor).stop_reason == "budget_exceeded"
    assert budget(engine, poor, "tokens") == (30, 0)


def test_steps_are_counted_exactly(engine: Engine, submit: Any) -> None:
    """A task of so many steps does so many, also inside a map, over slices and recoveries."""
    task_id = submit([1, 1, 1], budget={"steps": 2})
    task = engine.drive(task_id)
    assert (task.stop_reason, task.steps_done, task.error["kind"]) == (
        "budget_exceeded",
        2,
        "steps",
    )
    exact = submit([1, 1], budget={"steps": 2})
    assert engine.drive(exact).status == "completed"
    inside = submit([1], over=list(range(50)), budget={"steps": 5})
    assert engine.drive(inside).steps_done == 5


def test_active_time_ends_a_task(engine: Engine, submit: Any) -> None:
    """Slices add up; a limit of no time allows nothing."""
    task_id = submit([1], budget={"active_seconds": 0})
    assert engine.drive(task_id).error["kind"] == "active_seconds"
    free = submit([1], budget={"active_seconds": 60})
    assert engine.drive(free).active_seconds > 0


def test_passed_deadline_stops_a_working_task(engine: Engine, submit: Any) -> None:
    """The deadline is looked at before each step, not only while a task waits."""
    task_id = submit([1])
    Task.objects.for_tenant(engine.tenant.id).filter(pk=task_id).update(
        deadline_at="2020-01-01T00:00:00Z"
    )
    assert engine.drive(task_id).stop_reason == "max_duration"


def test_act_is_one_tool_call(engine: Engine, submit: Any) -> None:
    """Acts are counted before they are made; one that was refused is given back."""
    task_id = submit([], acts=3, budget={"tool_calls": 2})
    assert engine.drive(task_id).error["kind"] == "tool_calls"
    assert [line for line in RUNS if line.startswith(f"{task_id}:act")] == [
        f"{task_id}:act 0",
        f"{task_id}:act 1",
    ]
    refused = submit([], acts=1, not_done=True, budget={"tool_calls": 2})
    engine.drive(refused)
    assert budget(engine, refused, "tool_calls") == (0, 0)


def test_money_needs_a_price(engine: Engine, submit: Any) -> None:
    """Where money is limited a model without a price is refused before the call (S73)."""
    task_id = submit([10], budget={"money_micros": 1_000})
    assert engine.drive(task_id).stop_reason == "price_unknown"
    assert RUNS.count(f"{task_id}:0") == 0
    for unit in ("input_token", "output_token"):
        Price.objects.create(
            tenant_id=engine.tenant.id,
            subject="small",
            unit=unit,
            version=1,
            micros_per_million=2_500_000,
        )
    paid = submit([11], budget={"money_micros": 1_000})
    assert engine.drive(paid).status == "completed"
    # 11 tokens at 2.5 micros each, rounded up.
    assert budget(engine, paid, "money_micros") == (28, 0)


class TestTenant:
    """What stands above a task."""

    def test_grant_comes_back_but_for_what_was_used(self, engine: Engine, submit: Any) -> None:
        """A task takes its limit out of the tenant's and gives back the rest when it ends."""
        limit_tenant(engine, "tokens", 1_000)
        task_id = submit([30], budget={"tokens": 400})
        assert budget(engine, None, "tokens") == (0, 400)
        engine.drive(task_id)
        assert budget(engine, None, "tokens") == (30, 0)

    def test_two_tasks_never_take_the_same(self, engine: Engine, submit: Any) -> None:
        """The second task finds what the first has left, and is told so."""
        limit_tenant(engine, "tokens", 500)
        submit([1], budget={"tokens": 400})
        with pytest.raises(BudgetInsufficientError):
            submit([1], budget={"tokens": 101})
        assert Task.objects.for_tenant(engine.tenant.id).count() == 1
        submit([1], budget={"tokens": 100})

    def test_task_must_name_its_part(self, engine: Engine, submit: Any) -> None:
        """Under a limited tenant no task is unlimited."""
        limit_tenant(engine, "tokens", 500)
        with pytest.raises(BudgetRequiredError):
            submit([1])

    def test_cancelled_task_gives_back(self, engine: Engine, submit: Any) -> None:
        """However a task ends, the rest of its grant returns."""
        limit_tenant(engine, "tokens", 500)
        task_id = submit([1], budget={"tokens": 400})
        engine.steer(task_id, "cancel")
        assert budget(engine, None, "tokens") == (0, 0)

    def test_broken_off_call_counts_in_full(self, engine: Engine, submit: Any) -> None:
        """Nobody knows what a call used whose worker died: it stays reserved, then counts (S71)."""
        limit_tenant(engine, "tokens", 500)
        task_id = submit([40], budget={"tokens": 150}, fail_first=True, report=False)
        engine.run(task_id)
        assert budget(engine, task_id, "tokens") == (0, 100)
        engine.steer(task_id, "cancel")
        assert budget(engine, None, "tokens") == (100, 0)

    def test_new_period_starts_anew(self, engine: Engine, submit: Any) -> None:
        """A day's limit is full again on the next day; what is still reserved stays so."""
        Budget.objects.create(
            tenant_id=engine.tenant.id,
            kind="tokens",
            period="day",
            period_start="2020-01-01",
            limit_amount=100,
            spent=90,
        )
        submit([1], budget={"tokens": 60})
        assert budget(engine, None, "tokens") == (0, 60)


class TestChild:
    """A task that another one has started spends out of its parent's budget."""

    def test_child_spends_of_its_parents(self, engine: Engine, submit: Any) -> None:
        """A share is reserved in the parent while the child lives, and counted when it ends."""
        limit_tenant(engine, "tokens", 1_000)
        task_id = submit([20], child=[30], share=0.5, budget={"tokens": 400})
        engine.run(task_id)
        child = Task.objects.for_tenant(engine.tenant.id).get(parent_id=task_id)
        assert child.budget == {"tokens": 200}
        assert budget(engine, task_id, "tokens") == (20, 200)
        engine.drive(child.id)
        assert budget(engine, task_id, "tokens") == (50, 0)
        assert engine.drive(task_id).status == "completed"
        assert budget(engine, None, "tokens") == (50, 0)

    def test_child_outlives_its_parent(self, engine: Engine, submit: Any) -> None:
        """What a running child holds stays reserved above, and reaches the tenant when it ends."""
        limit_tenant(engine, "tokens", 1_000)
        task_id = submit([20], child=[30], share=0.5, wait=False, budget={"tokens": 400})
        assert engine.drive(task_id).status == "completed"
        assert budget(engine, None, "tokens") == (20, 200)
        child = Task.objects.for_tenant(engine.tenant.id).get(parent_id=task_id)
        engine.drive(child.id)
        assert budget(engine, None, "tokens") == (50, 0)

    def test_child_without_room_is_not_started(self, engine: Engine, submit: Any) -> None:
        """Two children cannot both have more than half; the second fails its step, nothing else."""
        task_id = submit([], child=[1], share=0.6, wait=False, twins=2, budget={"tokens": 100})
        task = engine.drive(task_id)
        assert (task.status, task.error["code"]) == ("failed", "budget_insufficient")
        assert Task.objects.for_tenant(engine.tenant.id).filter(parent_id=task_id).count() == 1
        engine.assert_audit_verifies(task_id)


@pytest.mark.parametrize(
    ("limits", "pointer"),
    [
        ({"tokens": -1}, "/budget/tokens"),
        ({"tokens": 1.5}, "/budget/tokens"),
        ({"tokens": True}, "/budget/tokens"),
        ({"coffee": 1}, "/budget/coffee"),
    ],
)
def test_bad_limit_is_refused(
    engine: Engine, submit: Any, limits: dict[str, Any], pointer: str
) -> None:
    """Limits are whole numbers from 0 on, of known kinds; nothing is stored otherwise."""
    with pytest.raises(InvalidInputError) as refused:
        submit([1], budget=limits)
    assert [problem.pointer for problem in refused.value.errors] == [pointer]
    assert not Task.objects.for_tenant(engine.tenant.id).exists()
