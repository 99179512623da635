"""The gateway in front of a legacy server, with clients of both protocol versions."""

from __future__ import annotations

import http.client
import json
import time
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp.client.sse import sse_client
from mcp_types import ElicitResult

from harness import daemon
from support.clients import PROTOCOLS
from support.hosted import Host, small, text_of

pytestmark = pytest.mark.anyio

MODERN = '2026-07-28'
META = {
    'io.modelcontextprotocol/protocolVersion': MODERN,
    'io.modelcontextprotocol/clientCapabilities': {},
    'io.modelcontextprotocol/clientInfo': {'name': 'raw', 'version': '1'},
}


@pytest.fixture(scope='module')
def host(hosting: Host, tmp_path_factory: pytest.TempPathFactory):
    directory = tmp_path_factory.mktemp('gateway')
    hosting.add('gate', 'python3', str(small(directory, 'gate')), tools={'deny': ['leave', 'wri*']})
    hosting.add('second', 'python3', str(small(directory, 'second')))
    hosting.connected('gate')
    hosting.connected('second')
    yield hosting
    hosting.remove('gate')
    hosting.remove('second')


def modern(host: Host, method: str, params: dict, name: str = 'gate', about: str = ''):
    message = {'jsonrpc': '2.0', 'id': 'q-1', 'method': method, 'params': {'_meta': META, **params}}
    headers = {'MCP-Protocol-Version': MODERN, 'Mcp-Method': method}
    if about:
        headers['Mcp-Name'] = about
    return host.raw(name, message, headers)


async def cancelled(host: Host) -> list[str]:
    return json.loads(text_of(await anyio.to_thread.run_sync(lambda: host.call('gate', 'cancelled'))))


@pytest.mark.parametrize('protocol', PROTOCOLS)
async def test_the_handshake_uses_the_clients_protocol_version(host: Host, protocol: str):
    # With `auto` the client sends a handshake; with the modern version alone it would send none.
    async with host.client('gate', 'legacy' if protocol == 'legacy' else 'auto') as client:
        assert client.protocol_version == ('2025-11-25' if protocol == 'legacy' else protocol)
        assert client.instructions == 'A small server.'
        assert client.server_capabilities.tools is not None
        greeting = await client.get_prompt('greet')
        assert greeting.messages[0].content.text.startswith('Hello from')
        listed = await client.list_resources()
        read = await client.read_resource(listed.resources[0].uri)
        assert read.contents[0].text.startswith('note of')


@pytest.mark.parametrize('protocol', PROTOCOLS)
async def test_progress(host: Host, protocol: str):
    seen = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total))

    async with host.client('gate', protocol) as client:
        result = await client.call_tool('nap', {'count': 5}, progress_callback=on_progress)
    assert result.content[0].text == 'slept 5'
    assert seen == [(number, 5) for number in range(1, 6)]


async def test_progress_of_two_clients_with_the_same_token(host: Host):
    """Each client gets only the progress of its own call."""

    async def one(count: int, seen: list) -> None:
        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            seen.append(total)

        async with host.client('gate', 'legacy') as client:
            await client.call_tool('nap', {'count': count}, progress_callback=on_progress)

    first, second = [], []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(one, 4, first)
        tasks.start_soon(one, 6, second)
    assert first == [4] * 4 and second == [6] * 6


@pytest.mark.parametrize('protocol', PROTOCOLS)
async def test_a_cancelled_call_is_cancelled_at_the_server(host: Host, protocol: str):
    count = 300 if protocol == 'legacy' else 301
    async with host.client('gate', protocol) as client:
        progress_seen = anyio.Event()

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            progress_seen.set()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: client.call_tool('nap', {'count': count}, progress_callback=on_progress))
            with anyio.fail_after(30):
                await progress_seen.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(30):
            while f'nap {count}' not in await cancelled(host):
                await anyio.sleep(0.1)
        assert (await client.call_tool('echo', {'text': 'on'})).content[0].text == 'on'


async def test_a_closed_stream_cancels_a_modern_call(host: Host):
    name, port = host.runtime.address.rsplit(':', 1)
    connection = http.client.HTTPConnection(name, int(port), timeout=30)
    params = {'name': 'nap', 'arguments': {'count': 302}, '_meta': META | {'progressToken': 'p'}}
    message = {'jsonrpc': '2.0', 'id': 1, 'method': 'tools/call', 'params': params}
    headers = {
        'Content-Type': 'application/json',
        'Accept': 'application/json, text/event-stream',
        'MCP-Protocol-Version': MODERN,
        'Mcp-Method': 'tools/call',
        'Mcp-Name': 'nap',
    }
    connection.request('POST', '/mcp/gate', json.dumps(message), headers)
    answer = connection.getresponse()
    while b'notifications/progress' not in (line := answer.readline()):
        assert line, 'the stream ended before the first progress notification'
    answer.close()
    connection.close()
    with anyio.fail_after(30):
        while 'nap 302' not in await cancelled(host):
            await anyio.sleep(0.1)


@pytest.mark.parametrize('protocol', PROTOCOLS)
async def test_a_long_result(host: Host, protocol: str):
    async with host.client('gate', protocol) as client:
        result = await client.call_tool('big', {'count': 12 * 1024 * 1024})
    assert len(result.content[0].text) == 12 * 1024 * 1024


async def test_unknown_methods_are_forwarded(host: Host):
    answer, messages = modern(host, 'tools/call', {'name': 'odd', 'arguments': {}}, about='odd')
    assert answer.status == 200, messages
    result = messages[-1]['result']
    assert result['content'] == [{'type': 'hologram', 'depth': 3, 'x-more': {'a': [1, 2.5, None]}}]
    assert result['x-unknown'] == {'kept': True}
    assert result['_meta']['example.org/a'] == 'b'
    assert result['resultType'] == 'complete'
    assert messages[-1]['id'] == 'q-1'


@pytest.mark.parametrize('protocol', PROTOCOLS)
async def test_a_filtered_tool_is_neither_listed_nor_callable(host: Host, protocol: str):
    async with host.client('gate', protocol) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert 'echo' in names and not {'leave', 'write'} & names
        with pytest.raises(Exception) as refused:
            result = await client.call_tool('leave', {})
            assert result.is_error, 'the filtered tool was called'
            raise RuntimeError(result.content[0].text)
        assert 'leave' in str(refused.value)
        # The tool `leave` would have ended the process.
        assert (await client.call_tool('echo', {'text': 'here'})).content[0].text == 'here'
    with pytest.raises(AssertionError):
        host.call('gate', 'leave')


@pytest.mark.parametrize('protocol', PROTOCOLS)
async def test_elicitation(host: Host, protocol: str):
    """Legacy clients get a request during the call; modern clients get a result that asks for input."""
    asked = []

    async def answer(context, params) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action='accept', content={'name': 'Ada'})

    async with host.client('gate', protocol, elicitation_callback=answer) as client:
        result = await client.call_tool('ask', {'text': 'your name?'})
    assert asked == ['your name?']
    assert '"name": "Ada"' in result.content[0].text


async def test_clients_without_elicitation_share_one_process(host: Host):
    async def process_id(**more) -> str:
        async with host.client('gate', 'legacy', **more) as client:
            return (await client.call_tool('whoami', {})).structured_content['process_id']

    async def answer(context, params) -> ElicitResult:
        return ElicitResult(action='decline')

    shared = await process_id()
    assert await process_id() == shared
    own = await process_id(elicitation_callback=answer)
    assert own != shared
    # The process of the client with elicitation ends after its session.
    with anyio.fail_after(15):
        while True:
            line = 'cat /proc/[0-9]*/cmdline 2>/dev/null | tr "\\0" "\\n" | grep -c "^/workspace/server.py$"'
            # The shared process, and at most one for modern clients.
            if int(text_of(host.call('gate', 'run', text=line))) <= 2:
                break
            await anyio.sleep(0.2)


@pytest.mark.parametrize('protocol', PROTOCOLS)
async def test_the_stdio_proxy_command(host: Host, protocol: str):
    async with host.stdio_client('gate', protocol) as client:
        assert len((await client.list_tools()).tools) == 10
        result = await client.call_tool('echo', {'text': 'through'})
        assert result.content[0].text == 'through'


@pytest.mark.parametrize('name, tool', [('gate', 'echo'), ('_all', 'gate__echo')])
async def test_the_sse_transport(host: Host, name: str, tool: str):
    async with Client(sse_client(f'{host.url}/mcp/{name}/sse'), mode='legacy') as client:
        result = await client.call_tool(tool, {'text': 'sse'})
        assert result.content[0].text == 'sse'


@pytest.mark.parametrize('protocol', PROTOCOLS)
async def test_the_aggregate_lists_and_calls_all_servers(host: Host, protocol: str):
    async with host.client('_all', protocol) as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        assert {'gate__echo', 'second__echo', 'second__leave'} <= names
        assert 'gate__leave' not in names
        process_ids = set()
        for name in ['gate', 'second']:
            result = await client.call_tool(f'{name}__whoami', {})
            process_ids.add(result.structured_content['process_id'])
        assert len(process_ids) == 2
        prompts = {prompt.name for prompt in (await client.list_prompts()).prompts}
        assert {'gate__greet', 'second__greet'} <= prompts
        assert (await client.get_prompt('second__greet')).messages
        listed = [r for r in (await client.list_resources()).resources if 'second' in str(r.uri)]
        read = await client.read_resource(listed[0].uri)
        assert read.contents[0].text.startswith('note of')


async def test_listing_the_aggregate_does_not_start_a_stopped_server(host: Host, tmp_path: Path):
    host.add('idle', 'python3', str(small(tmp_path, 'idle')))
    try:
        host.connected('idle')
        host.edit('idle', idle_stop_sec=1)
        async with host.client('_all', 'legacy') as client:
            assert 'idle__echo' in {tool.name for tool in (await client.list_tools()).tools}
            await anyio.to_thread.run_sync(host.until, 'idle', 'stopped', 30)
            for _ in range(3):
                assert 'idle__echo' in {tool.name for tool in (await client.list_tools()).tools}
                await anyio.sleep(0.3)
            assert host.state('idle')['status'] == 'stopped'
            result = await client.call_tool('idle__echo', {'text': 'started'})
            assert result.content[0].text == 'started'
    finally:
        host.remove('idle')


async def test_a_failed_server_does_not_affect_the_aggregate(host: Host):
    host.add('broken', 'sh', '-c', 'exit 1')
    try:
        async with host.client('_all', MODERN) as client:
            with anyio.fail_after(30):
                names = {tool.name for tool in (await client.list_tools()).tools}
        assert 'gate__echo' in names
        assert not any(name.startswith('broken__') for name in names)
    finally:
        host.remove('broken')


INITIALIZE = {
    'jsonrpc': '2.0',
    'id': 1,
    'method': 'initialize',
    'params': {
        'protocolVersion': '2025-11-25',
        'capabilities': {},
        'clientInfo': {'name': 'raw', 'version': '1'},
    },
}


@pytest.mark.parametrize(
    'headers',
    [
        {'Origin': 'http://evil.example'},
        {'Origin': 'null'},
        {'Host': 'evil.example'},
        {'Sec-Fetch-Site': 'cross-site'},
    ],
)
@pytest.mark.parametrize('name', ['gate', '_all'])
async def test_requests_of_another_origin_are_refused(host: Host, name: str, headers: dict):
    assert host.raw(name, INITIALIZE, headers)[0].status == 403


async def test_a_wrong_token_is_refused(host: Host):
    answer, _ = host.raw('gate', INITIALIZE, {'Authorization': 'Bearer wrong'})
    assert answer.status == 401


async def test_legacy_sessions(host: Host):
    answer, messages = host.raw('gate', INITIALIZE)
    assert answer.status == 200 and messages[0]['result']['serverInfo']['name'] == 'small'
    session = answer.getheader('Mcp-Session-Id')
    assert session
    ping = {'jsonrpc': '2.0', 'id': 2, 'method': 'ping'}
    headers = {'Mcp-Session-Id': session, 'MCP-Protocol-Version': '2025-11-25'}
    assert host.raw('gate', ping, headers)[0].status == 200
    # A session is valid for one server only.
    assert host.raw('second', ping, headers)[0].status == 404
    assert host.raw('gate', None, headers, 'DELETE')[0].status in (200, 204)
    assert host.raw('gate', ping, headers)[0].status == 404
    assert host.raw('gate', ping)[0].status == 400


async def test_a_broken_stream_can_be_resumed(host: Host):
    """The client gets the missed events, and the call is not cancelled."""
    session = host.raw('gate', INITIALIZE)[0].getheader('Mcp-Session-Id')
    name, port = host.runtime.address.rsplit(':', 1)
    headers = {
        'Content-Type': 'application/json',
        'Accept': 'application/json, text/event-stream',
        'Mcp-Session-Id': session,
        'MCP-Protocol-Version': '2025-11-25',
    }
    params = {'name': 'nap', 'arguments': {'count': 15}, '_meta': {'progressToken': 't'}}
    message = {'jsonrpc': '2.0', 'id': 9, 'method': 'tools/call', 'params': params}
    lost = http.client.HTTPConnection(name, int(port), timeout=30)
    lost.request('POST', '/mcp/gate', json.dumps(message), headers)
    answer = lost.getresponse()
    assert answer.getheader('Content-Type').startswith('text/event-stream')
    first = [answer.readline().decode().strip() for _ in range(3)]
    assert first[0].startswith('id: ') and first[1].startswith('retry: ') and first[2] == 'data:'
    answer.close()
    lost.close()
    back = http.client.HTTPConnection(name, int(port), timeout=30)
    back.request('GET', '/mcp/gate', headers=headers | {'Last-Event-ID': first[0][4:]})
    rest = back.getresponse()
    seen = []
    while not seen or 'result' not in seen[-1]:
        line = rest.readline().decode()
        assert line, f'the stream ended after {seen}'
        if line.startswith('data:') and line[5:].strip():
            seen.append(json.loads(line[5:]))
    back.close()
    assert [event['params']['progress'] for event in seen[:-1]] == list(range(1, 16))
    assert seen[-1]['id'] == 9 and text_of(seen[-1]['result']) == 'slept 15'


async def test_three_concurrent_streams(host: Host):
    seen: dict[int, list] = {number: [] for number in range(3)}

    async with host.client('gate', 'legacy') as client:

        async def one(number: int) -> None:
            async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                seen[number].append(total)

            await client.call_tool('nap', {'count': 3 + number}, progress_callback=on_progress)

        async with anyio.create_task_group() as tasks:
            for number in seen:
                tasks.start_soon(one, number)
    assert seen == {number: [3 + number] * (3 + number) for number in seen}


async def test_an_unknown_server(host: Host):
    answer, messages = host.raw('unknown', INITIALIZE)
    assert answer.status == 404
    assert 'unknown' in json.dumps(messages)


@pytest.mark.parametrize('body', ['', '{', '[]', '{}', '7', '{"jsonrpc":"2.0"}', '"' + 'x' * 100000 + '"'])
async def test_invalid_bodies(host: Host, body: str):
    name, port = host.runtime.address.rsplit(':', 1)
    connection = http.client.HTTPConnection(name, int(port), timeout=30)
    headers = {'Content-Type': 'application/json', 'Accept': 'application/json, text/event-stream'}
    connection.request('POST', '/mcp/gate', body, headers)
    assert connection.getresponse().status == 400
    connection.close()


async def test_concurrent_calls_get_their_own_results(host: Host):
    async with host.client('gate', MODERN) as client:
        found: dict[int, str] = {}

        async def one(number: int) -> None:
            result = await client.call_tool('echo', {'text': f'number {number}'})
            found[number] = result.content[0].text

        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(one, number)
    assert found == {number: f'number {number}' for number in range(200)}


async def test_an_open_stream_does_not_delay_the_shutdown(tmp_path: Path):
    stopping = daemon.Daemon(tmp_path, env={'BOXWOOD_MOUNTS__ALLOWED_ROOTS': str(tmp_path)})
    try:
        host = Host(stopping)
        host.add('waiter', 'python3', str(small(tmp_path)))
        host.connected('waiter')
        session = host.raw('waiter', INITIALIZE)[0].getheader('Mcp-Session-Id')
        name, port = stopping.address.rsplit(':', 1)
        waiting = http.client.HTTPConnection(name, int(port), timeout=30)
        headers = {'Accept': 'text/event-stream', 'Mcp-Session-Id': session}
        waiting.request('GET', '/mcp/waiter', headers=headers)
        assert waiting.getresponse().status == 200
        started = time.monotonic()
        stopping.stop()
        assert time.monotonic() - started < 15
        waiting.close()
    finally:
        stopping.kill()
