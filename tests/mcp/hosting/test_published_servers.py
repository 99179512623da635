"""Published servers from npm and PyPI: pasted, connected, called by every client, started again offline."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.hosted import Host, text_of
from support.published import NPM_SERVERS, OLDER_LIBRARY, PYPI_SERVERS, SERVERS, SQLITE, document
from support.clients import PROTOCOLS, LONG

WAY = ['session_create', 'dep_install', 'process_start', 'relay_connect', 'mcp_init', 'runtime']
#: For an install from the network beside three others.
PATIENCE = 300


@pytest.fixture(scope='module')
def published(hosting: Host) -> Host:
    """All of them, half pasted into the command and half into the API."""
    imported = hosting.paste(document(PYPI_SERVERS | {'sqlite': SQLITE}))
    assert set(imported['added']) == {*PYPI_SERVERS, 'sqlite'}, imported
    assert imported['skipped'] == []
    hosting.add('sqlite-older', SQLITE.command, *SQLITE.args, **{'with': OLDER_LIBRARY})
    # Comes back when they are connected, and shows the way there.
    told = hosting.cli('import', '-', stdin=json.dumps(document(NPM_SERVERS)))
    assert '`memory`: it stores its data in `/workspace/memory.jsonl`' in told.stderr
    return hosting


@pytest.mark.parametrize('name', SERVERS)
def test_each_is_connected_in_a_box_of_its_own(published: Host, name: str):
    found = published.connected(name, PATIENCE)
    assert found['box_session_id'] == f'mcp-{name}'
    assert found['box_enabled'] is True
    assert f'mcp-{name}' in published.sessions()
    assert found['tool_count'] == len(found['tools']) == SERVERS[name].tools
    assert all(tool['parameters']['type'] == 'object' for tool in found['tools'])
    # Its box is made after the one of the install, so a phase may stand there twice.
    first_seen = list(dict.fromkeys(step['phase'] for step in found['steps']))
    assert first_seen == WAY
    assert all(step['started_at'] for step in found['steps'])
    assert all(step['ended_at'] for step in found['steps'][:-1])


@pytest.mark.anyio
@pytest.mark.parametrize('protocol', PROTOCOLS)
@pytest.mark.parametrize('name', SERVERS)
async def test_the_python_client(published: Host, name: str, protocol: str):
    server = SERVERS[name]
    published.connected(name, PATIENCE)
    async with published.client(name, protocol) as client:
        listed = await client.list_tools()
        assert len(listed.tools) == server.tools
        result = await client.call_tool(server.tool, server.arguments)
    assert bool(result.is_error) == server.fails, result
    assert server.says in result.content[0].text


def test_the_inspector(published: Host):
    """Both protocol versions: one lists, the other calls. Several at once, because most of it is Node starting.

    The short form has a server of each registry, one with tools for some clients alone, and one that fails.
    """
    names = list(SERVERS) if LONG else ['everything', 'filesystem', 'git']

    def look(name: str) -> tuple[dict, dict]:
        server = SERVERS[name]
        listed = published.inspector(name, 'modern', '--method', 'tools/list', '--strict')
        pairs = []
        for key, value in server.arguments.items():
            worded = value if isinstance(value, str) else json.dumps(value)
            pairs += ['--tool-arg', f'{key}={worded}']
        call = ['--method', 'tools/call', '--tool-name', server.tool, *pairs]
        return listed, published.inspector(name, 'legacy', *call, may_fail=server.fails)

    for name in names:
        published.connected(name, PATIENCE)
    with ThreadPoolExecutor(2) as pool:
        for name, (listed, called) in zip(names, pool.map(look, names), strict=True):
            # The Inspector can be asked, so it has a process of its own.
            assert len(listed['tools']) == SERVERS[name].tools + SERVERS[name].more, name
            assert SERVERS[name].says in text_of(called), f'{name}: {called}'


@pytest.mark.parametrize('name', SERVERS)
def test_the_rust_client(published: Host, name: str):
    server = SERVERS[name]
    published.connected(name, PATIENCE)
    for protocol in ['legacy', 'modern']:
        found = published.rmcp(name, server.tool, server.arguments, protocol)
        assert len(found['tools']) == server.tools, protocol
        assert bool(found['result'].get('isError')) == server.fails, protocol
        assert server.says in text_of(found['result']), protocol


def test_all_of_them_at_one_address(published: Host):
    for name in SERVERS:
        published.connected(name, PATIENCE)
    found = published.rmcp('_all', 'time__convert_time', SERVERS['time'].arguments)
    assert '21:00' in text_of(found['result'])
    for name, server in SERVERS.items():
        mine = [tool for tool in found['tools'] if tool.startswith(f'{name}__')]
        assert len(mine) == server.tools, name
        assert f'{name}__{server.tool}' in mine


def test_one_that_writes_beside_its_code_writes_to_the_workspace(published: Host):
    """Pasted as it is: its own place is read-only here, and it does not have to be told."""
    published.connected('memory', PATIENCE)
    ada = {'name': 'Ada', 'entityType': 'person', 'observations': ['wrote notes']}
    published.call('memory', 'create_entities', entities=[ada])
    assert 'wrote notes' in text_of(published.call('memory', 'read_graph'))


def test_one_that_is_broken_as_published_says_so(published: Host):
    """It starts and dies of its own library before it answers."""
    found = published.failed('sqlite', PATIENCE)
    assert found['error_phase'] == 'mcp_init'
    assert found['error_message'].startswith('Failed after 4 attempts: ')
    # What it died of, in its own words, without a walk through the logs.
    assert 'AttributeError' in found['error_message'], found
    assert 'with' in found['hint'], found
    assert 'AttributeError' in published.logs('sqlite')['stderr']
    told = published.cli('status', 'sqlite')
    assert 'mcp_init' in told.stdout and 'AttributeError' in told.stdout


def test_it_works_with_the_library_it_was_written_for(published: Host):
    found = published.connected('sqlite-older', PATIENCE)
    assert found['tool_count'] == SQLITE.tools
    called = published.call('sqlite-older', SQLITE.tool)
    assert SQLITE.says in text_of(called)


@pytest.mark.parametrize('name', SERVERS)
def test_the_second_start_needs_no_network(published: Host, name: str):
    published.connected(name, PATIENCE)
    published.do(name, 'stop')
    published.until(name, 'stopped', 30)
    assert f'mcp-{name}' not in published.sessions()
    published.edit(name, box={'network': 'off'})
    published.do(name, 'start')
    found = published.connected(name, 60)
    assert found['retry_count'] == 0
    # An installer has the network whatever the server has: none may have run.
    phases = [step['phase'] for step in found['steps']]
    assert 'dep_install' not in phases and 'mcp_init' in phases, phases
    session = published.session(f'mcp-{name}')
    assert session['network'] == 'off'
    server = SERVERS[name]
    assert server.says in text_of(published.call(name, server.tool, **server.arguments))


@pytest.mark.parametrize('name', ['time', 'everything'])
def test_a_profile_without_a_network_uses_what_was_installed(published: Host, name: str):
    published.connected(name, PATIENCE)
    server = SERVERS[name]
    settings = {'profile': 'offline_readonly', 'network': 'off'}
    offline = f'{name}-offline'
    published.add(offline, server.command, *server.args, box=settings)
    published.connected(offline, 60)
    assert server.says in text_of(published.call(offline, server.tool, **server.arguments))
    published.remove(offline)
