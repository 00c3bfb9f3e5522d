"""The web pages: parse, call admission or queries, render."""
