"""The audited record of a recovery: what it continued from, and with which evidence (E-section 7)."""

from ledger_app.domain.effects import EffectState
from ledger_app.queries import iterate_effect_summaries
from ledger_app.services import audit
from tasks_app.domain.checkpoint import CheckpointDocument, digest
from tasks_app.engine import transitions
from tasks_app.engine.session import SliceSession
from tasks_app.events.catalogue import EventType


def write(session: SliceSession, document: CheckpointDocument | None) -> None:
    """Tell journal and audit how the task goes on.

    Transaction: its own. Locks: the task row, then the audit stream.
    """
    task = session.task
    begun = [
        effect.key
        for effect in iterate_effect_summaries(
            tenant_id=task.tenant_id, task_id=task.id, states=[EffectState.BEGUN]
        )
    ]
    with session.owned():
        transitions.append_event(
            task.id, task.tenant_id, EventType.SNAPSHOT, {"reason": "recovered"}
        )
        audit.append(
            stream=f"task:{task.id}",
            tenant_id=task.tenant_id,
            actor="system:engine",
            action="task.recovered",
            target=f"task:{task.id}",
            new_version=task.state_version,
            details={
                "fence": task.fence,
                "checkpoint": None if document is None else document.checkpoint_seq,
                "checkpoint_sha256": None if document is None else digest(document.text()),
                "next_position": session.next_position,
                "steering_cursor": task.steering_cursor,
                "effects_begun": begun[:50],
            },
        )
