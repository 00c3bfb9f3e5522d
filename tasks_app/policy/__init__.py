"""May this happen? Answers only; nothing here writes."""
