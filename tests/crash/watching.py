"""Eyes on what processes leave behind: how their slices ended, and what they told listeners."""

import json
import threading
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import UUID

from tasks_app.events import transport
from tasks_app.events.channels import task_channel
from tests.support.syncdir import Hit
from tests.support.workers import Fleet


class SliceEnds:
    """Follows the workers' logs, reading each line once."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._read: dict[Path, int] = {}
        self._outcomes: dict[tuple[str, int, int], str] = {}
        self._jobs_ended: dict[int, int] = defaultdict(int)
        self.read()

    def read(self) -> None:
        """Take in what was logged since the last look."""
        for worker in self._fleet.workers:
            with worker.log.open("rb") as log:
                log.seek(self._read.get(worker.log, 0))
                text = log.read()
            # The last line may be half written.
            whole = text[: text.rfind(b"\n") + 1]
            self._read[worker.log] = self._read.get(worker.log, 0) + len(whole)
            for line in whole.splitlines():
                self._take(line)

    def is_over(self, task_id: UUID, hit: Hit) -> bool:
        """Tell whether the process that made a hit has ended what it was doing then."""
        if hit.fence:
            return (str(task_id), hit.pid, hit.fence) in self._outcomes
        return self._jobs_ended[hit.pid] > 0

    def outcome(self, task_id: UUID, hit: Hit) -> str:
        """Return how the slice of a hit ended; empty before its end."""
        return self._outcomes.get((str(task_id), hit.pid, hit.fence), "")

    def forget_jobs(self, pid: int) -> None:
        """Count a process's jobs from here on."""
        self._jobs_ended[pid] = 0

    def _take(self, line: bytes) -> None:
        if b"slice.finished" not in line and b"run_slice[" not in line:
            return
        try:
            record = json.loads(line)
        except ValueError:
            return
        event = str(record.get("event", ""))
        if event == "slice.finished":
            key = (record["task_id"], record["pid"], record["fence"])
            self._outcomes[key] = record["outcome"]
        elif "succeeded in" in event or "raised" in event:
            self._jobs_ended[record["pid"]] += 1


class Published:
    """Listens to every event that any process publishes, as a stream would."""

    def __init__(self) -> None:
        self._seqs: dict[str, list[int]] = defaultdict(list)
        self._client = transport.connect(socket_timeout=0.2)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(5)
        self._client.close()

    def seqs(self, task_id: UUID) -> list[int]:
        """Return the numbers of a task's events in the order in which they were published."""
        return list(self._seqs[task_channel(task_id)])

    def count(self, task_id: UUID) -> int:
        """Return how many events of a task were published so far."""
        return len(self._seqs[task_channel(task_id)])

    def _listen(self) -> None:
        client: Any = self._client  # redis leaves this method without types
        with client.pubsub(ignore_subscribe_messages=True) as subscription:
            subscription.subscribe("events_channel")
            while not self._stop.is_set():
                message = subscription.get_message(timeout=0.1)
                if message is not None:
                    told = json.loads(message["data"])
                    self._take(told["channel"], json.loads(told["data"]))

    def _take(self, channel: str, data: Any) -> None:
        if channel.startswith("task-") and isinstance(data, dict) and "seq" in data:
            self._seqs[channel].append(int(data["seq"]))
