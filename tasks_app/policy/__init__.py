"""May this happen? Answers, never writes."""
