"""The transport on stdin and stdout: lines and chunks."""

from __future__ import annotations

import asyncio
import json

import pytest
import websockets
from langbot_plugin.entities.io.actions.enums import CommonAction
from langbot_plugin.runtime.io.connections.stdio import StdioConnection

from support.box import Box

pytestmark = pytest.mark.parametrize('runtime', ['stdio'], indirect=True, scope='module')


def pipe(box: Box) -> StdioConnection:
    connection = box.handler.conn
    assert isinstance(connection, StdioConnection)
    return connection


async def write(box: Box, *lines: str) -> None:
    stdin = pipe(box).stdin
    stdin.write(''.join(f'{line}\n' for line in lines).encode())
    await stdin.drain()


async def is_alive(box: Box) -> bool:
    return await box.handler.call_action(CommonAction.PING, {}) == {}


@pytest.mark.parametrize(
    'line', ['', 'plain text', '{"broken": ', '[1]', '{not json}', '{"type": "chunk_end"}']
)
async def test_a_line_that_is_not_a_message_is_ignored(box: Box, line: str):
    await write(box, line)
    assert await is_alive(box)


@pytest.mark.parametrize('size', [16_000, 17_000, 100_000, 1_000_000])
async def test_a_request_in_chunks_is_read(box: Box, size: int):
    # The client splits every message of more than 16 KiB into chunks.
    assert await box.handler.call_action(CommonAction.PING, {'filler': 'x' * size}) == {}


async def test_a_response_in_chunks_is_read(box: Box):
    result = await box.run('seq 1 30000')
    assert result.stdout == '\n'.join(str(number) for number in range(1, 30001))


async def test_chunks_are_joined_with_other_lines_between(box: Box):
    message = json.dumps({'seq_id': 77, 'action': '__ping', 'data': {'filler': 'é' * 100}})
    waiter: asyncio.Future = asyncio.get_running_loop().create_future()
    box.handler.resp_waiters[77] = waiter
    await write(
        box,
        json.dumps({'type': 'chunk_start', 'total_size': len(message)}),
        json.dumps({'type': 'chunk_data', 'data': message[:50], 'offset': 0}),
        '',
        'noise',
        json.dumps({'type': 'chunk_data', 'data': message[50:], 'offset': 50}),
        json.dumps({'type': 'chunk_end'}),
    )
    answer = await asyncio.wait_for(waiter, 10)
    del box.handler.resp_waiters[77]
    assert (answer.seq_id, answer.code, answer.data) == (77, 0, {})


async def test_the_port_also_serves_requests(box: Box):
    async with await box.connect() as link:
        await box.create()
        sessions = await link.client.get_sessions()
        assert [session['session_id'] for session in sessions] == [box.session]


async def test_the_relay_is_on_the_port(box: Box):
    await box.create()
    await box.start('cat')
    async with websockets.connect(box.relay_url(), proxy=None) as ws:
        await ws.send('through the port')
        assert await asyncio.wait_for(ws.recv(), 10) == 'through the port'
