"""How MCP clients come by a token: metadata, and the built-in authorization server's page.

Whose a token is, and what it may do, is decided in `admission.tokens`.
"""
