"""Servers as they are published, in the words that their own pages tell people to paste.

Each with one call that shows it works in a box: the tool, its arguments, and what its answer says.
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
    #: Stands in the result's text.
    says: str
    tools: int
    fails: bool = False
    #: Tools that are offered only to clients that can be asked something.
    more: int = 0

    def pasted(self) -> dict:
        return {'command': self.command, 'args': self.args}


#: Versions stand here so that an upload cannot change what is tested.
NPM_SERVERS = {
    'everything': Published(
        'npx', ['-y', f'{NPM}everything@2026.8.31'], 'echo', {'message': 'hi'}, 'hi', 13, more=1
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
        # It refuses such addresses by itself: a real answer, and no network that a test would need.
        {'url': 'http://127.0.0.1:1/'},
        '127.0.0.1',
        1,
        fails=True,
    ),
}

SERVERS = NPM_SERVERS | PYPI_SERVERS

#: As it is published it takes the newest library, which no longer has what it calls.
SQLITE = Published(
    'uvx', ['mcp-server-sqlite@2025.4.25', '--db-path', '/workspace/a.db'], 'list_tables', {}, '[]', 6
)
OLDER_LIBRARY = ['mcp<2']


def document(servers: dict[str, Published]) -> dict:
    return {'mcpServers': {name: server.pasted() for name, server in servers.items()}}
