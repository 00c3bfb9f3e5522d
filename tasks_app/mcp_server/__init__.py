"""The MCP door: workflows as tools, tasks as the Tasks extension shows them (mcp.md).

`asgi` lets requests in, `server` says which handler serves which method. Handlers write through
admission and read through `queries`, as REST does; nothing is kept in the process.
"""
