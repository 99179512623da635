"""Published servers from npm and PyPI: import, connection, calls by every client, offline restart."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.clients import LONG, PROTOCOLS
from support.hosted import Host, text_of
from support.published import NPM_SERVERS, OLDER_LIBRARY, PYPI_SERVERS, SERVERS, SQLITE, document

PHASES = ['session_create', 'dep_install', 'process_start', 'relay_connect', 'mcp_init', 'runtime']
#: Timeout for an installation from the network, concurrent with three others.
INSTALL_SEC = 300


@pytest.fixture(scope='module')
def published(hosting: Host) -> Host:
    """All servers, imported over the API (PyPI) and over the command line (npm)."""
    imported = hosting.paste(document(PYPI_SERVERS | {'sqlite': SQLITE}))
    assert set(imported['added']) == {*PYPI_SERVERS, 'sqlite'}, imported
    assert imported['skipped'] == []
    hosting.add('sqlite-older', SQLITE.command, *SQLITE.args, **{'with': OLDER_LIBRARY})
    # The command returns when the servers are connected, and prints their progress.
    imported = hosting.cli('import', '-', stdin=json.dumps(document(NPM_SERVERS)))
    assert '`memory`: it stores its data in `/workspace/memory.jsonl`' in imported.stderr
    return hosting


@pytest.mark.parametrize('name', SERVERS)
def test_each_server_connects_in_its_own_box(published: Host, name: str):
    found = published.connected(name, INSTALL_SEC)
    assert found['box_session_id'] == f'mcp-{name}'
    assert found['box_enabled'] is True
    assert f'mcp-{name}' in published.sessions()
    assert found['tool_count'] == len(found['tools']) == SERVERS[name].tools
    assert all(tool['parameters']['type'] == 'object' for tool in found['tools'])
    # A phase can appear twice, because the installer has its own box.
    first_seen = list(dict.fromkeys(step['phase'] for step in found['steps']))
    assert first_seen == PHASES
    assert all(step['started_at'] for step in found['steps'])
    assert all(step['ended_at'] for step in found['steps'][:-1])


@pytest.mark.anyio
@pytest.mark.parametrize('protocol', PROTOCOLS)
@pytest.mark.parametrize('name', SERVERS)
async def test_the_python_client(published: Host, name: str, protocol: str):
    server = SERVERS[name]
    published.connected(name, INSTALL_SEC)
    async with published.client(name, protocol) as client:
        listed = await client.list_tools()
        assert len(listed.tools) == server.tools
        result = await client.call_tool(server.tool, server.arguments)
    assert bool(result.is_error) == server.fails, result
    assert server.expected in result.content[0].text


def test_the_inspector(published: Host):
    """Lists tools with the modern version and calls one with the legacy version.

    The short form has a server of each registry, one with tools for clients with elicitation, and one that fails.
    """
    names = list(SERVERS) if LONG else ['everything', 'filesystem', 'git']

    def inspect(name: str) -> tuple[dict, dict]:
        server = SERVERS[name]
        listed = published.inspector(name, 'modern', '--method', 'tools/list', '--strict')
        pairs = []
        for key, value in server.arguments.items():
            text = value if isinstance(value, str) else json.dumps(value)
            pairs += ['--tool-arg', f'{key}={text}']
        call = ['--method', 'tools/call', '--tool-name', server.tool, *pairs]
        return listed, published.inspector(name, 'legacy', *call, may_fail=server.fails)

    for name in names:
        published.connected(name, INSTALL_SEC)
    with ThreadPoolExecutor(2) as pool:
        for name, (listed, called) in zip(names, pool.map(inspect, names), strict=True):
            # The Inspector supports elicitation, so it is offered the additional tools.
            assert len(listed['tools']) == SERVERS[name].tools + SERVERS[name].additional_tools, name
            assert SERVERS[name].expected in text_of(called), f'{name}: {called}'


@pytest.mark.parametrize('name', SERVERS)
def test_the_rust_client(published: Host, name: str):
    server = SERVERS[name]
    published.connected(name, INSTALL_SEC)
    for protocol in ['legacy', 'modern']:
        found = published.rmcp(name, server.tool, server.arguments, protocol)
        assert len(found['tools']) == server.tools, protocol
        assert bool(found['result'].get('isError')) == server.fails, protocol
        assert server.expected in text_of(found['result']), protocol


def test_the_aggregate(published: Host):
    for name in SERVERS:
        published.connected(name, INSTALL_SEC)
    found = published.rmcp('_all', 'time__convert_time', SERVERS['time'].arguments)
    assert '21:00' in text_of(found['result'])
    for name, server in SERVERS.items():
        tools = [tool for tool in found['tools'] if tool.startswith(f'{name}__')]
        assert len(tools) == server.tools, name
        assert f'{name}__{server.tool}' in tools


def test_the_memory_server_stores_its_data_in_the_workspace(published: Host):
    """Its default directory is read-only in a box; the import sets another one."""
    published.connected('memory', INSTALL_SEC)
    ada = {'name': 'Ada', 'entityType': 'person', 'observations': ['wrote notes']}
    published.call('memory', 'create_entities', entities=[ada])
    assert 'wrote notes' in text_of(published.call('memory', 'read_graph'))


def test_an_incompatible_library_is_reported(published: Host):
    """The server crashes in its library before the handshake."""
    found = published.failed('sqlite', INSTALL_SEC)
    assert found['error_phase'] == 'mcp_init'
    assert found['error_message'].startswith('Failed after 4 attempts: ')
    # The error message contains the exception, so the logs are not needed.
    assert 'AttributeError' in found['error_message'], found
    assert 'with' in found['hint'], found
    assert 'AttributeError' in published.logs('sqlite')['stderr']
    status = published.cli('status', 'sqlite')
    assert 'mcp_init' in status.stdout and 'AttributeError' in status.stdout


def test_an_older_library_can_be_selected(published: Host):
    found = published.connected('sqlite-older', INSTALL_SEC)
    assert found['tool_count'] == SQLITE.tools
    called = published.call('sqlite-older', SQLITE.tool)
    assert SQLITE.expected in text_of(called)


@pytest.mark.parametrize('name', SERVERS)
def test_the_second_start_needs_no_network(published: Host, name: str):
    published.connected(name, INSTALL_SEC)
    published.do(name, 'stop')
    published.until(name, 'stopped', 30)
    assert f'mcp-{name}' not in published.sessions()
    published.edit(name, box={'network': 'off'})
    published.do(name, 'start')
    found = published.connected(name, 60)
    assert found['retry_count'] == 0
    # An installer would have network access even if the server has none, so none may have run.
    phases = [step['phase'] for step in found['steps']]
    assert 'dep_install' not in phases and 'mcp_init' in phases, phases
    session = published.session(f'mcp-{name}')
    assert session['network'] == 'off'
    server = SERVERS[name]
    assert server.expected in text_of(published.call(name, server.tool, **server.arguments))


@pytest.mark.parametrize('name', ['time', 'everything'])
def test_a_profile_without_network_uses_installed_packages(published: Host, name: str):
    published.connected(name, INSTALL_SEC)
    server = SERVERS[name]
    settings = {'profile': 'offline_readonly', 'network': 'off'}
    offline = f'{name}-offline'
    published.add(offline, server.command, *server.args, box=settings)
    published.connected(offline, 60)
    assert server.expected in text_of(published.call(offline, server.tool, **server.arguments))
    published.remove(offline)
