"""Stands in for the PDF reader: limits itself as the real one does, then never answers."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
from tasks_app.workflows.contracts.pdf_child import _limit

_limit(1, 2**31)
while True:
    pass
