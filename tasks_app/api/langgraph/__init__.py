"""The run door: threads and runs in the form that LangGraph clients speak (runs contract)."""
