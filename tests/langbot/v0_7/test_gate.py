"""Authentication of the handshake: instance id, control token, invalid headers."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import urllib.request
from collections.abc import AsyncIterator

import pytest
import websockets
from langbot_plugin.box.security import BOX_CONTROL_TOKEN_ENV, BOX_TRUSTED_INSTANCE_ENV
from websockets.exceptions import InvalidStatus

from harness import daemon
from support.link import Link, Platform
from support.runtime import BACKEND, Runtime
from support.workspace import Workspace, eventually

TOKEN = 'a-control-token-that-is-long-enough-0123'


async def refused(connecting) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as error:
        await connecting
    return error.value.response.status_code, error.value.response.body.decode()


@pytest.fixture
async def guarded(tmp_path) -> AsyncIterator[Runtime]:
    """A daemon with a control token, and a client that sends it."""
    runtime = Runtime('ws', tmp_path, Platform(token=TOKEN))
    await runtime.start()
    try:
        yield runtime
    finally:
        await runtime.stop()


async def test_only_the_first_instance_is_admitted(tmp_path):
    runtime = await Runtime('ws', tmp_path).start()
    try:
        other = Platform('platform-2').headers()
        assert await refused(runtime.connect(other)) == (401, 'Unauthorized')
        async with await runtime.connect() as link:
            assert (await link.client.get_backend_info())['available']
    finally:
        await runtime.stop()


async def test_only_the_configured_instance_is_admitted(tmp_path):
    env = {BOX_TRUSTED_INSTANCE_ENV: 'platform-7'}
    child = daemon.Daemon(tmp_path, env=env)
    try:
        other = Platform('platform-1').headers()
        assert await refused(Link.by_ws(child.address, other)) == (401, 'Unauthorized')
        async with await Link.by_ws(child.address, Platform('platform-7').headers()) as link:
            assert (await link.client.get_backend_info())['available']
    finally:
        child.stop()


@pytest.mark.parametrize('name', ['', ' ', '-x', 'a b', 'a/b', 'x' * 129, 'ä', "a'--"])
async def test_invalid_instance_ids_are_rejected(runtime: Runtime, name: str):
    status, body = await refused(runtime.connect({'X-LangBot-Instance-Id': name}))
    assert (status, body) == (401, 'Unauthorized')


@pytest.mark.better('a duplicate header is invalid')
async def test_a_duplicate_instance_header_is_rejected(runtime: Runtime):
    headers = [('X-LangBot-Instance-Id', 'platform-1'), ('X-LangBot-Instance-Id', 'platform-1')]
    connecting = websockets.connect(
        f'ws://{runtime.address}/rpc/ws', proxy=None, additional_headers=headers
    )
    assert await refused(connecting) == (401, 'Unauthorized')


async def test_an_instance_with_the_token_is_served(guarded: Runtime):
    workspace = Workspace(guarded)
    await workspace.create()
    await workspace.start('cat')
    async with workspace.attach() as ws:
        await ws.send('hello')
        assert await ws.recv() == 'hello\n'
    await workspace.clean_up()


@pytest.mark.parametrize(
    'token', [None, '', 'x', TOKEN[:-1], TOKEN + 'x', TOKEN.upper(), f'Bearer {TOKEN}']
)
async def test_an_instance_with_another_token_is_rejected(guarded: Runtime, token: str | None):
    headers = Platform().headers()
    if token is not None:
        headers['X-LangBot-Box-Control-Token'] = token
    assert await refused(guarded.connect(headers)) == (401, 'Unauthorized')
    workspace = Workspace(guarded)
    await workspace.create()
    await workspace.start('cat')
    relay = Platform().headers(workspace.context)
    if token is not None:
        relay['X-LangBot-Box-Control-Token'] = token
    assert await refused(workspace.attach(additional_headers=relay)) == (401, 'Unauthorized')
    await workspace.clean_up()


@pytest.mark.better('a duplicate header is invalid')
async def test_a_duplicate_token_header_is_rejected(guarded: Runtime):
    headers = [*Platform(token=TOKEN).headers().items()]
    headers.append(('X-LangBot-Box-Control-Token', TOKEN))
    connecting = websockets.connect(
        f'ws://{guarded.address}/rpc/ws', proxy=None, additional_headers=headers
    )
    assert await refused(connecting) == (401, 'Unauthorized')


async def test_the_token_is_not_logged(guarded: Runtime):
    with contextlib.suppress(InvalidStatus):
        await guarded.connect(Platform(token=TOKEN + 'x').headers())
    assert guarded._child is not None
    assert TOKEN not in guarded._child.log()


@pytest.mark.parametrize('token', ['short', 'a token with spaces that is long enough'])
def test_an_invalid_token_fails_the_start(tmp_path, token: str):
    started = subprocess.run(
        [daemon.program(), *daemon.arguments(tmp_path / 'state', 0)],
        env=daemon.environment(**{BOX_CONTROL_TOKEN_ENV: token}),
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert started.returncode != 0
    assert BOX_CONTROL_TOKEN_ENV in started.stderr
    assert 'at least 32 characters' in started.stderr
    assert token not in started.stderr


def test_an_invalid_instance_id_fails_the_start(tmp_path):
    started = subprocess.run(
        [daemon.program(), *daemon.arguments(tmp_path / 'state', 0)],
        env=daemon.environment(**{BOX_TRUSTED_INSTANCE_ENV: '../x'}),
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert started.returncode != 0
    assert BOX_TRUSTED_INSTANCE_ENV in started.stderr


@pytest.mark.better('both wire formats are served')
async def test_a_client_of_sdk_0_4_is_still_served(runtime: Runtime):
    """Without the header the client is one of SDK 0.4."""
    async with websockets.connect(f'ws://{runtime.address}/rpc/ws', proxy=None) as ws:
        await ws.send(json.dumps({'seq_id': 1, 'action': 'box_status', 'data': {}}))
        answer = json.loads(await ws.recv())
        assert answer['code'] == 0 and 'capacity' not in answer['data']


async def test_clients_are_notified_of_a_shutdown(tmp_path):
    runtime = await Runtime('ws', tmp_path).start()
    workspace = Workspace(runtime)
    await workspace.create()
    await workspace.start('cat')
    async with workspace.attach() as ws:
        await ws.send('hello')
        assert await ws.recv() == 'hello\n'
        assert runtime._child is not None
        runtime._child.process.terminate()
        with pytest.raises(websockets.exceptions.ConnectionClosed):
            await ws.recv()
        assert (ws.close_code, ws.close_reason) == (1001, 'Box runtime shutting down')
    await runtime.link.until_closed(10)
    assert runtime.link.closed_with == (1001, 'Box runtime shutting down')
    assert runtime._child.process.wait(30) == 0


def get(url: str) -> tuple[int, dict]:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.status, json.load(answer)


RESOURCES = {
    'event_loop',
    'sessions',
    'managed_processes',
    'completed_processes',
    'creating_session_tasks',
    'closing_session_tasks',
    'background_tasks',
}


@pytest.mark.better('the body has further fields')
async def test_healthz(runtime: Runtime):
    workspace = Workspace(runtime)
    await workspace.create()
    await workspace.start('cat')
    await workspace.start('true', process_id='exited')

    async def health() -> tuple[int, dict]:
        return get(f'{runtime.url}/healthz')

    status, body = await eventually(
        health, lambda health: health[1]['resources']['completed_processes'] == 1
    )
    assert status == 200
    assert body['live'] is True and body['status'] == 'ok'
    assert RESOURCES <= set(body['resources'])
    resources = body['resources']
    assert (resources['sessions'], resources['managed_processes']) == (1, 1)
    assert (resources['creating_session_tasks'], resources['closing_session_tasks']) == (0, 0)
    await workspace.clean_up()


async def test_readyz(runtime: Runtime):
    status, body = get(f'{runtime.url}/readyz')
    assert status == 200
    assert body['ready'] is True
    assert body['mode'] == 'standard'
    assert body['backend'] == {'name': BACKEND, 'available': True}
    assert body['checks'] == {'backend_available': True}
    assert RESOURCES <= set(body['resources'])


def handshake_as_another_user(address: str, path: str, headers: dict[str, str]) -> int:
    """The HTTP status of a handshake sent by the user with uid 65534."""
    host, port = address.split(':')
    lines = [
        f'GET {path} HTTP/1.1',
        f'Host: {address}',
        'Connection: Upgrade',
        'Upgrade: websocket',
        'Sec-WebSocket-Version: 13',
        'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
        *(f'{name}: {value}' for name, value in headers.items()),
    ]
    request = '\r\n'.join(lines).encode() + b'\r\n\r\n'
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = b'0'
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            # `create_connection` would import modules that this user may not be allowed to read.
            with socket.socket() as other:
                other.settimeout(10)
                other.connect((host, int(port)))
                other.sendall(request)
                status = other.recv(4096).split(b' ')[1]
        finally:
            os.write(writer, status)
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as answer:
        return int(answer.read())


@pytest.mark.better('peers are authenticated too')
@pytest.mark.skipif(os.geteuid() != 0, reason='only root can switch users')
async def test_an_untrusted_peer_needs_the_token(guarded: Runtime):
    with_token, without_token = Platform(token=TOKEN), Platform()
    assert handshake_as_another_user(guarded.address, '/rpc/ws', without_token.headers()) == 401
    assert handshake_as_another_user(guarded.address, '/rpc/ws', {}) == 401
    wrong = Platform(token=TOKEN + 'x').headers()
    assert handshake_as_another_user(guarded.address, '/rpc/ws', wrong) == 401
    assert handshake_as_another_user(guarded.address, '/rpc/ws', with_token.headers()) == 101
    # Without the instance id the client counts as SDK 0.4, for which the token is not valid.
    bare = {'X-LangBot-Box-Control-Token': TOKEN}
    assert handshake_as_another_user(guarded.address, '/rpc/ws', bare) == 401


@pytest.mark.better('peers are authenticated too')
@pytest.mark.skipif(os.geteuid() != 0, reason='only root can switch users')
async def test_the_token_is_valid_only_for_langbots_routes(guarded: Runtime):
    workspace = Workspace(guarded)
    await workspace.create()
    await workspace.start('cat')
    path = workspace.relay_url().split(guarded.address)[1]
    with_token = Platform(token=TOKEN)
    assert handshake_as_another_user(guarded.address, path, with_token.headers(workspace.context)) == 101
    assert handshake_as_another_user(guarded.address, path, Platform().headers(workspace.context)) == 401
    for other in ('/v1/sessions', '/v1/status', '/metrics', '/v1/sessions/x/exec/ws'):
        assert handshake_as_another_user(guarded.address, other, with_token.headers(workspace.context)) == 401
    await workspace.clean_up()
