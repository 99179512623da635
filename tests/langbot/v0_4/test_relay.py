"""The relay: stdin and stdout of a process over WebSocket, as LangBot's MCP client attaches."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
import websockets
from langbot_plugin.box.models import BoxManagedProcessStatus
from websockets.exceptions import ConnectionClosed, ConnectionClosedOK, InvalidStatus
from websockets.typing import Subprotocol

from support.box import Box, eventually


async def receive(ws: websockets.ClientConnection, within: float = 30.0) -> str:
    frame = await asyncio.wait_for(ws.recv(), within)
    assert isinstance(frame, str), 'lines are sent as text frames'
    return frame


async def receive_all(ws: websockets.ClientConnection, within: float = 20.0) -> list[str]:
    """All frames until the other side closes."""
    frames = []
    with contextlib.suppress(ConnectionClosedOK):
        while True:
            frames.append(await receive(ws, within))
    return frames


async def refused(url: str) -> tuple[str, str]:
    """Asserts that an attach is rejected; returns the error code and message of the response."""
    with pytest.raises(InvalidStatus) as error:
        await websockets.connect(url, subprotocols=[Subprotocol('mcp')], proxy=None)
    response = error.value.response
    assert response.status_code == 400
    assert response.headers['Content-Type'].startswith('application/json')
    body = json.loads(response.body)
    assert set(body) == {'error'} and set(body['error']) == {'code', 'message'}
    return body['error']['code'], body['error']['message']


async def test_a_line_is_echoed(box: Box):
    await box.create()
    await box.start('cat')
    async with box.attach() as ws:
        await ws.send('hello from test')
        assert await receive(ws) == 'hello from test'
        assert ws.subprotocol is None


async def test_the_mcp_subprotocol_is_selected_when_requested(box: Box):
    await box.create()
    await box.start('cat')
    async with box.attach(subprotocols=['mcp']) as ws:
        assert ws.subprotocol == 'mcp'
        request = json.dumps({'jsonrpc': '2.0', 'id': 1, 'method': 'initialize'})
        await ws.send(request)
        assert await receive(ws) == request


async def test_an_address_without_a_process_id_means_the_default_process(box: Box):
    await box.create()
    await box.start('cat')
    url = box.relay_url().replace('/default/ws', '/ws')
    async with websockets.connect(url, proxy=None) as ws:
        await ws.send('short')
        assert await receive(ws) == 'short'


async def test_each_process_has_its_own_address(box: Box):
    await box.create()
    for name in ('one', 'two'):
        await box.shell(f'while read line; do echo {name} $line; done', process_id=name)
    async with box.attach('one') as one, box.attach('two') as two:
        await one.send('first')
        await two.send('second')
        assert await receive(one) == 'one first'
        assert await receive(two) == 'two second'


async def test_each_line_is_one_frame(box: Box):
    await box.create()
    await box.start('cat')
    async with box.attach() as ws:
        for frame in ('', ' spaces ', 'h\u00e9 \u4e2d \U0001f600', 'tab\tand\rreturn', '{"a": 1}'):
            await ws.send(frame)
            assert await receive(ws) == frame
        await ws.send('two\nlines')
        assert [await receive(ws), await receive(ws)] == ['two', 'lines']


async def test_invalid_utf8_is_replaced(box: Box):
    await box.create()
    await box.shell(r"read x; printf 'a\377b\r\n'; cat")
    async with box.attach() as ws:
        await ws.send('go')
        assert await receive(ws) == 'a\ufffdb\r'


async def test_binary_frames_are_ignored(box: Box):
    await box.create()
    await box.start('cat')
    async with box.attach() as ws:
        await ws.send(b'not for you')
        await ws.send('text')
        assert await receive(ws) == 'text'


async def test_stderr_is_not_relayed(box: Box):
    await box.create()
    await box.shell('read x; echo hidden >&2; echo shown; cat')
    async with box.attach() as ws:
        await ws.send('go')
        assert await receive(ws) == 'shown'
    await eventually(box.process, lambda process: process.stderr_preview == 'hidden')


async def test_attached_reports_whether_a_client_is_attached(box: Box):
    await box.create()
    await box.start('cat')
    assert (await box.process()).attached is False
    async with box.attach() as ws:
        await ws.send('x')
        await receive(ws)
        assert (await box.process()).attached is True
    await eventually(box.process, lambda process: process.attached is False)
    assert (await box.process()).status is BoxManagedProcessStatus.RUNNING


async def test_relaying_updates_the_last_use_of_the_session(box: Box):
    created = await box.create()
    await box.start('cat')
    async with box.attach() as ws:
        await ws.send('x')
        await receive(ws)
    used = (await box.client.get_session(box.session))['last_used_at']
    assert used > created['last_used_at']


async def test_output_before_the_attach_is_delivered(box: Box):
    await box.create()
    await box.shell('echo early; echo bird; touch /tmp/printed; cat')
    await eventually(lambda: box.run('ls /tmp/printed'), lambda result: result.ok)
    async with box.attach() as ws:
        assert [await receive(ws), await receive(ws)] == ['early', 'bird']


async def test_a_second_attach_waits_for_the_first(box: Box):
    await box.create()
    await box.start('cat')
    async with box.attach() as first:
        await first.send('first')
        assert await receive(first) == 'first'
        second = await box.attach()
        await second.send('queued')
        for _ in range(3):
            with pytest.raises(TimeoutError):
                await receive(second, within=0.2)
            await first.send('still mine')
            assert await receive(first) == 'still mine'
    async with second:
        assert await receive(second) == 'queued'


@pytest.mark.better('a waiting client is disconnected when the process ends')
async def test_a_waiting_attach_is_closed_when_the_process_ends(box: Box):
    await box.create()
    await box.shell('read x')
    async with box.attach() as first, box.attach() as second:
        await first.send('end')
        assert await receive_all(first) == []
        assert await receive_all(second) == []


async def test_an_exit_is_delivered_after_the_last_line(box: Box):
    await box.create()
    await box.shell('read count; seq 1 $count; printf unfinished')
    async with box.attach() as ws:
        await ws.send('20000')
        frames = await receive_all(ws)
        assert frames == [str(number) for number in range(1, 20001)] + ['unfinished']
        assert (ws.close_code, ws.close_reason) == (1000, '')


async def test_stopping_the_process_closes_the_relay(box: Box):
    await box.create()
    await box.start('cat')
    async with box.attach() as ws:
        await ws.send('x')
        await receive(ws)
        await box.client.stop_managed_process(box.session)
        assert await receive_all(ws) == []
        assert ws.close_code == 1000


async def test_replacing_the_process_closes_the_relay(box: Box):
    await box.create()
    await box.start('cat')
    async with box.attach() as ws:
        await ws.send('x')
        await receive(ws)
        await box.shell('while read line; do echo new $line; done')
        assert await receive_all(ws) == []
    async with box.attach() as ws:
        await ws.send('x')
        assert await receive(ws) == 'new x'


async def test_deleting_the_session_closes_the_relay(box: Box):
    await box.create()
    await box.start('cat')
    async with box.attach() as ws:
        await ws.send('x')
        await receive(ws)
        await box.client.delete_session(box.session)
        with pytest.raises(ConnectionClosed):
            await receive(ws)


async def test_detaching_does_not_stop_the_process(box: Box):
    await box.create()
    await box.shell('n=0; while read line; do n=$((n + 1)); echo $n $line; done')
    for number in range(1, 4):
        async with box.attach() as ws:
            await ws.send('line')
            assert await receive(ws) == f'{number} line'
        await eventually(box.process, lambda process: not process.attached)


async def test_a_lost_client_does_not_block_the_next(box: Box):
    await box.create()
    await box.start('cat')
    ws = await box.attach()
    await ws.send('x')
    await receive(ws)
    ws.transport.abort()
    async with box.attach() as again:
        await again.send('y')
        assert await receive(again) == 'y'


@pytest.mark.parametrize('size', [1_000, 60_000])
async def test_a_line_arrives_whole(box: Box, size: int):
    await box.create()
    await box.start('cat')
    async with box.attach() as ws:
        await ws.send('z' * size)
        assert await receive(ws) == 'z' * size


@pytest.mark.better('a line has no limit of 64 KiB')
@pytest.mark.parametrize('size', [65_536, 70_000, 200_000, 3_000_000])
async def test_a_long_line_arrives_whole(box: Box, size: int):
    await box.create()
    await box.start('cat')
    async with box.attach() as ws:
        line = ('0123456789' * (size // 10 + 1))[:size]
        await ws.send(line)
        assert await receive(ws) == line
        await ws.send('and on')
        assert await receive(ws) == 'and on'


@pytest.mark.better('a line longer than 64 KiB does not break the relay')
async def test_a_slow_reader_loses_nothing(box: Box):
    await box.create()
    await box.shell('read x; for i in $(seq 1 40); do printf "%0100000d\\n" $i; done; echo end')
    # The client buffers one frame and stops reading its socket until that frame is taken.
    async with box.attach(max_queue=1) as ws:
        await ws.send('go')
        for number in range(1, 41):
            await asyncio.sleep(0.03)
            assert await receive(ws) == f'{number:0100000d}'
        assert await receive_all(ws) == ['end']


async def test_lines_in_both_directions_at_once(box: Box):
    await box.create()
    await box.start('cat')
    lines = [f'{number} ' + 'x' * (number % 500) for number in range(3000)]
    async with box.attach() as ws:

        async def send() -> None:
            for line in lines:
                await ws.send(line)

        sending = asyncio.create_task(send())
        assert [await receive(ws) for _ in lines] == lines
        await sending


async def test_an_attach_to_an_unknown_session_is_an_error(box: Box):
    code, message = await refused(box.relay_url(session_id='unknown'))
    assert (code, message) == ('BoxSessionNotFoundError', 'session unknown not found')


async def test_an_attach_to_an_unknown_process_is_an_error(box: Box):
    await box.create()
    code, message = await refused(box.relay_url('ghost'))
    assert code == 'BoxManagedProcessNotFoundError'
    assert message == f'session {box.session} has no managed process with process_id=ghost'


async def test_an_attach_after_the_exit_is_an_error(box: Box):
    await box.create()
    await box.shell('exit 0')
    await eventually(box.process, lambda process: process.exit_code == 0)
    code, message = await refused(box.relay_url())
    assert code == 'BoxManagedProcessConflictError'
    assert message == f'managed process default in session {box.session} is not running'


@pytest.mark.better('an id may contain characters that a URL may not')
async def test_an_attach_decodes_percent_encoded_ids(box: Box):
    box.session = 'a/b c'
    await box.create()
    await box.start('cat', process_id='p/q')
    url = f'ws://{box.runtime.address}/v1/sessions/a%2Fb%20c/managed-process/p%2Fq/ws'
    async with websockets.connect(url, proxy=None) as ws:
        await ws.send('found')
        assert await receive(ws) == 'found'
