"""Every kill point × kind of effect × fault, each a case with its own name (E90)."""

from collections.abc import Iterator

import pytest
from django.conf import settings
from django.test import override_settings

from tasks_app import syncpoints
from tests.crash import matrix
from tests.crash.bed import Bed
from tests.crash.cases import CASES, KINDS, PASSES, Case
from tests.crash.matrix import Bench, Trial
from tests.crash.watching import Published
from tests.support.outside import Outside
from tests.support.workers import Fleet

# The first case waits for all of them.
pytestmark = [pytest.mark.crash, pytest.mark.timeout(900)]

# Fewer than there are: a killed one is replaced within seconds, a frozen one later.
PROCESSES = 12


@pytest.fixture(scope="module")
def bench(
    fleet: Fleet, outside: Outside, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    """The shared fleet with more children, so that frozen ones leave enough who work."""
    runtime = {**settings.RUNTIME, "outbox_retry_seconds": 0.5}
    more = [fleet.add_worker(concurrency=8) for _ in range(2)]
    bed = Bed(fleet, outside, tmp_path_factory.mktemp("matrix"))
    # A case holds the process that its own message wakes.
    (fleet.folder / "sync" / "literal").touch()
    try:
        for worker in more:
            worker.wait_ready()
        with override_settings(RUNTIME=runtime), Published() as published:
            yield Bench(bed, published)
    finally:
        for worker in more:
            fleet.dismiss(worker)
        bed.sync.clear()


@pytest.fixture(scope="module")
def trials(bench: Bench, request: pytest.FixtureRequest) -> dict[Case, Trial]:
    """Every chosen case, done and not yet judged; all run in one go, many at once."""
    chosen = {
        item.callspec.params["case"]
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname == test_kill_point.__name__
    }
    cases = [case for case in CASES if case in chosen]
    return matrix.run_all(bench, cases, processes=PROCESSES)


def test_the_matrix_is_whole() -> None:
    """A new sync point of a slice comes with its cases."""
    kinds = ("claim.", "step.", "effect.", "finish.")
    assert set(PASSES) == {name for name in syncpoints.POINTS if name.startswith(kinds)}
    assert len(CASES) == 225


@pytest.mark.parametrize("kind", KINDS)
def test_an_undisturbed_task_passes_every_stop(bench: Bench, kind: str) -> None:
    """No pass is left out, and none is listed that never comes."""
    task_id = bench.submit(kind, f"quiet-{kind}")
    assert bench.bed.wait_rest(task_id).status == "completed"
    bench.bed.wait(
        lambda: bool(bench.bed.sync.hits("finish.after_terminal", task_id)), "the last point"
    )
    assert {name: len(bench.bed.sync.hits(name, task_id)) for name in PASSES} == PASSES


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_kill_point(trials: dict[Case, Trial], case: Case) -> None:
    """Nothing is lost, nothing happens twice; what nobody can know goes to a person."""
    trials[case].judge()
