"""The relay: stdin and stdout of a workspace's process over WebSocket."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
import websockets
from websockets.exceptions import ConnectionClosedOK, InvalidStatus

from support.runtime import Runtime
from support.workspace import Workspace, eventually


async def received(ws: websockets.ClientConnection, within: float = 30.0) -> str:
    frame = await asyncio.wait_for(ws.recv(), within)
    assert isinstance(frame, str), 'lines travel as text'
    return frame


async def refused(connecting: websockets.connect) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as error:
        await connecting
    return error.value.response.status_code, error.value.response.body.decode()


async def test_frames_include_the_newline(workspace: Workspace):
    await workspace.create()
    await workspace.start('cat')
    async with workspace.attach(subprotocols=['mcp']) as ws:
        assert ws.subprotocol == 'mcp'
        for line in ('hello from test', 'ünï 你', '', json.dumps({'jsonrpc': '2.0', 'id': 1})):
            await ws.send(line)
            assert await received(ws) == line + '\n'
        assert (await workspace.process()).attached
    await eventually(workspace.process, lambda info: not info.attached)


@pytest.mark.better('lines are framed')
async def test_one_line_is_one_frame(workspace: Workspace):
    await workspace.create()
    await workspace.start('sh', '-c', 'read go; printf "one\\ntwo\\nthree\\n"; cat')
    async with workspace.attach() as ws:
        await ws.send('go')
        assert [await received(ws) for _ in range(3)] == ['one\n', 'two\n', 'three\n']


@pytest.mark.better('lines are framed')
async def test_a_long_line_is_one_frame(workspace: Workspace):
    await workspace.create()
    await workspace.start('cat')
    async with workspace.attach() as ws:
        line = 'x' * 300_000
        await ws.send(line)
        assert await received(ws) == line + '\n'


async def test_an_address_without_a_process_id_means_the_default_process(workspace: Workspace):
    await workspace.create()
    await workspace.start('cat')
    url = workspace.relay_url().replace('/default/ws', '/ws')
    headers = workspace.runtime.platform.headers(workspace.context)
    async with websockets.connect(url, proxy=None, additional_headers=headers) as ws:
        await ws.send('short')
        assert await received(ws) == 'short\n'
        assert ws.subprotocol is None


async def test_the_connection_closes_after_the_last_line_of_the_process(workspace: Workspace):
    await workspace.create()
    await workspace.start('sh', '-c', 'read go; seq 1000; exit 3')
    frames = []
    async with workspace.attach() as ws:
        await ws.send('go')
        with contextlib.suppress(ConnectionClosedOK):
            while True:
                frames.append(await received(ws))
        assert ws.close_code == 1000
    assert ''.join(frames) == ''.join(f'{n}\n' for n in range(1, 1001))


async def test_unknown_session(workspace: Workspace):
    await workspace.sessions()
    status, body = await refused(workspace.attach())
    assert status == 400
    assert json.loads(body) == {
        'error': {
            'code': 'BoxSessionNotFoundError',
            'message': f'session {workspace.physical()} not found',
        }
    }


async def test_unknown_process(workspace: Workspace):
    await workspace.create()
    status, body = await refused(workspace.attach('ghost'))
    assert status == 400
    assert json.loads(body) == {
        'error': {
            'code': 'BoxManagedProcessNotFoundError',
            'message': f'session {workspace.physical()} '
            'has no managed process with process_id=ghost',
        }
    }


async def test_an_exited_process(workspace: Workspace):
    await workspace.create()
    await workspace.start('true')
    await eventually(workspace.process, lambda info: info.exit_code is not None)
    status, body = await refused(workspace.attach())
    assert status == 400
    assert json.loads(body)['error'] == {
        'code': 'BoxManagedProcessConflictError',
        'message': f'managed process default in session {workspace.physical()} is not running',
    }


async def test_a_process_of_another_workspace(workspace: Workspace, runtime: Runtime):
    await workspace.create()
    await workspace.start('cat')
    other = Workspace(runtime)
    await other.sessions()
    headers = runtime.platform.headers(other.context)
    status, body = await refused(workspace.attach(additional_headers=headers))
    assert (status, body) == (401, 'Unauthorized')


@pytest.mark.parametrize(
    'change',
    [
        {'X-LangBot-Workspace-Id': None},
        {'X-LangBot-Workspace-Id': ' '},
        {'X-LangBot-Workspace-Id': 'x' * 257},
        {'X-LangBot-Placement-Generation': None},
        {'X-LangBot-Placement-Generation': '0'},
        {'X-LangBot-Placement-Generation': '-1'},
        {'X-LangBot-Placement-Generation': '01'},
        {'X-LangBot-Placement-Generation': '+1'},
        {'X-LangBot-Placement-Generation': '1.0'},
        {'X-LangBot-Placement-Generation': '1_0'},
        {'X-LangBot-Placement-Generation': '9' * 40},
        {'X-LangBot-Placement-Generation': '2'},
        {'X-LangBot-Instance-Id': 'platform-2'},
        {'X-LangBot-Instance-Id': ''},
        {'X-LangBot-Instance-Id': '../platform-1'},
    ],
)
async def test_invalid_headers_are_rejected(workspace: Workspace, runtime: Runtime, change: dict):
    await workspace.create()
    await workspace.start('cat')
    headers = runtime.platform.headers(workspace.context) | change
    headers = {name: value for name, value in headers.items() if value is not None}
    status, body = await refused(workspace.attach(additional_headers=headers))
    assert (status, body) == (401, 'Unauthorized')


@pytest.mark.better('a duplicate header is invalid')
async def test_a_duplicate_header_is_rejected(workspace: Workspace, runtime: Runtime):
    await workspace.create()
    await workspace.start('cat')
    headers = [*runtime.platform.headers(workspace.context).items()]
    headers.append(('X-LangBot-Workspace-Id', 'another'))
    status, body = await refused(workspace.attach(additional_headers=headers))
    assert (status, body) == (401, 'Unauthorized')
