"""Published MCP servers, with the command from their documentation.

Each has one call that shows that it works in a box: the tool, its arguments, and a part of the result.
"""

from __future__ import annotations

from dataclasses import dataclass

NPM = '@modelcontextprotocol/server-'


@dataclass(frozen=True)
class Published:
    command: str
    args: list[str]
    tool: str
    arguments: dict
    #: Contained in the text of the result.
    expected: str
    tools: int
    fails: bool = False
    #: Number of additional tools for clients with elicitation.
    additional_tools: int = 0

    def entry(self) -> dict:
        return {'command': self.command, 'args': self.args}


#: Pinned versions, so that a new upload cannot change what is tested.
NPM_SERVERS = {
    'everything': Published(
        'npx', ['-y', f'{NPM}everything@2026.8.31'], 'echo', {'message': 'hi'}, 'hi', 13, additional_tools=1
    ),
    'filesystem': Published(
        'npx',
        ['-y', f'{NPM}filesystem@2026.8.31', '/workspace'],
        'write_file',
        {'path': '/workspace/note', 'content': 'hello'},
        '/workspace/note',
        14,
    ),
    'memory': Published(
        'npx',
        ['-y', f'{NPM}memory@2026.8.31'],
        'read_graph',
        {},
        'entities',
        9,
    ),
    'sequential-thinking': Published(
        'npx',
        ['-y', f'{NPM}sequential-thinking@2026.8.31'],
        'sequentialthinking',
        {'thought': 'so', 'nextThoughtNeeded': False, 'thoughtNumber': 1, 'totalThoughts': 1},
        'thoughtHistoryLength',
        1,
    ),
}

PYPI_SERVERS = {
    'time': Published(
        'uvx',
        ['mcp-server-time@2026.10.19'],
        'convert_time',
        {'source_timezone': 'UTC', 'time': '12:00', 'target_timezone': 'Asia/Tokyo'},
        '21:00',
        2,
    ),
    'git': Published(
        'uvx',
        ['mcp-server-git@2026.10.19'],
        'git_status',
        {'repo_path': '/workspace/none'},
        '/workspace/none',
        12,
        fails=True,
    ),
    'fetch': Published(
        'uvx',
        ['mcp-server-fetch@2026.10.24'],
        'fetch',
        # The server refuses loopback addresses itself, so the call needs no network.
        {'url': 'http://127.0.0.1:1/'},
        '127.0.0.1',
        1,
        fails=True,
    ),
}

SERVERS = NPM_SERVERS | PYPI_SERVERS

#: The published server installs the newest library, which lacks a function that the server calls.
SQLITE = Published(
    'uvx', ['mcp-server-sqlite@2025.4.25', '--db-path', '/workspace/a.db'], 'list_tables', {}, '[]', 6
)
OLDER_LIBRARY = ['mcp<2']


def document(servers: dict[str, Published]) -> dict:
    return {'mcpServers': {name: server.entry() for name, server in servers.items()}}
