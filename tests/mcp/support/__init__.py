"""Clients, servers and gateways that the tests of MCP use."""
