"""HTML pages: parse, call admission or queries, render. No decision is made here."""
