"""Shared by the LangBot and MCP suites: the daemon under test, and checks for leftover processes."""
