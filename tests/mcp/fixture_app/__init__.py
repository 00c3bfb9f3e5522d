"""An installed application whose workflows and tools the conformance suite of MCP expects by name."""
