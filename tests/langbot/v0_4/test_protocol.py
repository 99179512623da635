"""The message envelope, frame by frame, on a plain WebSocket."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import websockets

from support.box import Box, until_exists

pytestmark = pytest.mark.parametrize('runtime', ['ws'], indirect=True, scope='module')


class Wire:
    """Sends and receives JSON frames without the SDK."""

    def __init__(self, socket: websockets.ClientConnection):
        self.socket = socket
        self.last_length = 0

    async def send(self, message: Any) -> None:
        await self.socket.send(message if isinstance(message, str) else json.dumps(message))

    async def receive(self, within: float = 30.0) -> dict:
        frame = await asyncio.wait_for(self.socket.recv(), within)
        assert isinstance(frame, str) and frame.isascii(), 'JSON is sent as ASCII text frames'
        self.last_length = len(frame)
        return json.loads(frame)

    async def request(self, action: str, data: Any, seq_id: Any = 1) -> dict:
        await self.send({'seq_id': seq_id, 'action': action, 'data': data})
        return await self.receive()

    async def is_alive(self) -> bool:
        return (await self.request('__ping', {}, 4711))['seq_id'] == 4711


def open_wire(box: Box, **options: Any):
    return websockets.connect(f'ws://{box.runtime.address}/rpc/ws', proxy=None, **options)


@pytest.fixture
async def wire(box: Box):
    async with open_wire(box) as socket:
        yield Wire(socket)


def success(seq_id: Any, data: dict) -> dict:
    return {
        'seq_id': seq_id,
        'code': 0,
        'message': 'success',
        'data': data,
        'chunk_status': 'continue',
    }


def failure(seq_id: Any, message: str) -> dict:
    return {
        'seq_id': seq_id,
        'code': 1,
        'message': message,
        'data': {},
        'chunk_status': 'continue',
    }


async def test_a_response_has_five_keys(wire: Wire):
    assert await wire.request('__ping', {}, 12) == success(12, {})


@pytest.mark.parametrize('seq_id', [0, 1, 100_000, -7, 2**53])
async def test_a_response_has_the_sequence_id_of_its_request(wire: Wire, seq_id: int):
    assert await wire.request('__ping', {}, seq_id) == success(seq_id, {})


async def test_a_request_without_a_sequence_id_is_answered(wire: Wire):
    await wire.send({'action': '__ping', 'data': {}})
    assert await wire.receive() == success(-1, {})


async def test_an_unknown_action_is_an_error(wire: Wire):
    assert await wire.request('nope', {}, 2) == failure(2, 'ValueError: Action nope not found')


async def test_a_request_without_data_is_an_error(wire: Wire):
    await wire.send({'seq_id': 3, 'action': '__ping'})
    assert await wire.receive() == failure(3, "KeyError: 'data'")


async def test_a_missing_key_is_an_error(wire: Wire):
    assert await wire.request('box_get_session', {}, 4) == failure(4, "KeyError: 'session_id'")


async def test_an_error_message_starts_with_its_class(wire: Wire):
    response = await wire.request('box_get_session', {'session_id': 'zz'}, 5)
    assert response == failure(5, 'BoxSessionNotFoundError: session zz not found')


@pytest.mark.parametrize('data', [[], 'text', 7, None], ids=repr)
async def test_data_that_is_not_an_object_is_an_error(wire: Wire, data: Any):
    response = await wire.request('box_get_session', data, 6)
    assert (response['seq_id'], response['code'], response['data']) == (6, 1, {})
    assert await wire.is_alive()


@pytest.mark.parametrize(
    'message',
    [
        {'seq_id': 9, 'code': 0, 'message': 'success', 'data': {}, 'chunk_status': 'continue'},
        {'seq_id': 9},
        {},
    ],
    ids=['an unexpected response', 'neither', 'empty'],
)
async def test_messages_that_are_not_requests_are_ignored(wire: Wire, message: dict):
    await wire.send(message)
    assert await wire.is_alive()


@pytest.mark.parametrize('garbage', ['not json', '}', '[1, 2]', '"text"', '42', 'null', '\0'])
async def test_garbage_leaves_the_connection_usable(wire: Wire, garbage: str):
    await wire.send(garbage)
    assert await wire.is_alive()


@pytest.mark.better('an incomplete frame is dropped when a complete request follows')
async def test_an_incomplete_message_does_not_affect_the_next(wire: Wire):
    await wire.send('{"seq_id": 1, "action": "__pi')
    assert await wire.is_alive()


@pytest.mark.better('frames are joined until they form a message')
@pytest.mark.parametrize('size', [7, 4096, 65536])
async def test_a_request_in_several_frames_is_joined(box: Box, wire: Wire, size: int):
    cmd = f"wc -c <<'END'\n{'y' * 150_000}\nEND" if size > 7 else 'echo 150001'
    data = {'session_id': box.session, 'cmd': cmd}
    message = json.dumps({'seq_id': 8, 'action': 'box_exec', 'data': data})
    for start in range(0, len(message), size):
        await wire.send(message[start : start + size])
    response = await wire.receive()
    assert (response['seq_id'], response['data']['stdout'].strip()) == (8, '150001')


async def test_a_request_in_one_large_frame_is_read(box: Box, wire: Wire):
    data = {'session_id': box.session, 'cmd': f"wc -c <<'END'\n{'y' * 100_000}\nEND"}
    response = await wire.request('box_exec', data)
    assert response['code'] == 0 and response['data']['session_id'] == box.session


async def test_a_request_in_fragments_is_read(wire: Wire):
    message = json.dumps({'seq_id': 8, 'action': '__ping', 'data': {'filler': 'x' * 90_000}})
    await wire.socket.send(message[start : start + 1000] for start in range(0, len(message), 1000))
    assert await wire.receive() == success(8, {})


async def test_responses_are_sent_in_order_of_completion(box: Box, wire: Wire, tmp_path: Path):
    data = {
        'session_id': f'{box.session}-slow',
        'cmd': 'until [ -e go ]; do sleep 0.05; done',
        'host_path': str(tmp_path),
    }
    await wire.send({'seq_id': 1, 'action': 'box_exec', 'data': data})
    await wire.send({'seq_id': 2, 'action': '__ping', 'data': {}})
    assert (await wire.receive())['seq_id'] == 2
    (tmp_path / 'go').touch()
    response = await wire.receive()
    assert (response['seq_id'], response['data']['status']) == (1, 'completed')


@pytest.mark.better('the state of the backend is cached, not probed for each request')
async def test_many_requests_at_once_are_all_answered(wire: Wire):
    numbers = range(1000, 1500)
    for number in numbers:
        await wire.send({'seq_id': number, 'action': 'box_status', 'data': {}})
    answers = [await wire.receive() for _ in numbers]
    assert {response['seq_id'] for response in answers} == set(numbers)
    assert all(response['code'] == 0 for response in answers)


async def test_two_connections_share_one_runtime(box: Box, wire: Wire):
    async with open_wire(box) as socket:
        other = Wire(socket)
        created = await other.request('box_create_session', {'session_id': box.session})
        assert created['code'] == 0
    # The session outlasts the connection that created it.
    got = await wire.request('box_get_session', {'session_id': box.session})
    assert got['data']['created_at'] == created['data']['created_at']


async def test_connections_have_separate_sequence_ids(box: Box, wire: Wire):
    async with open_wire(box) as socket:
        other = Wire(socket)
        await wire.send({'seq_id': 5, 'action': '__ping', 'data': {}})
        await other.send({'seq_id': 5, 'action': 'box_get_session', 'data': {}})
        assert await other.receive() == failure(5, "KeyError: 'session_id'")
        assert await wire.receive() == success(5, {})


async def test_a_request_completes_after_its_client_disconnects(box: Box, tmp_path: Path):
    async with open_wire(box) as socket:
        cmd = 'touch begun; until [ -e go ]; do sleep 0.05; done; echo done > end'
        data = {'session_id': box.session, 'cmd': cmd, 'host_path': str(tmp_path)}
        await Wire(socket).send({'seq_id': 1, 'action': 'box_exec', 'data': data})
        await until_exists(tmp_path / 'begun')
    (tmp_path / 'go').touch()
    await until_exists(tmp_path / 'end')


async def test_a_ping_of_the_websocket_is_answered(wire: Wire):
    pong = await wire.socket.ping(b'are you there')
    assert await asyncio.wait_for(pong, 5) >= 0


async def test_no_subprotocol_is_selected(box: Box):
    async with open_wire(box, subprotocols=['mcp']) as socket:
        assert socket.subprotocol is None
        assert await Wire(socket).is_alive()


@pytest.mark.better('no response exceeds the client\'s limit')
async def test_a_response_is_never_larger_than_a_mebibyte(box: Box, wire: Wire):
    data = {'session_id': box.session, 'cmd': "yes '漢字' | head -c 900000"}
    response = await wire.request('box_exec', data)
    stdout = response['data']['stdout']
    assert stdout.startswith('漢字\n漢字')
    assert 'left out' in stdout[-200:]
    assert 900_000 < wire.last_length <= 1_048_576
