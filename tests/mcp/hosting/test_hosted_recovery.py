"""Daemons that die while servers are used: no server is lost, and none is started again."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from harness import daemon
from support.hosted import Host, small, text_of

@pytest.fixture
def killed(tmp_path: Path):
    """A daemon that can be killed and followed by the next, at the same address."""
    port = daemon.free_port()
    env = {'BOXWOOD_MOUNTS__ALLOWED_ROOTS': str(tmp_path)}
    alive = [daemon.Daemon(tmp_path, port=port, env=env)]

    def again() -> Host:
        alive[-1].kill()
        alive.append(daemon.Daemon(tmp_path, port=port, env=env))
        return Host(alive[-1])

    yield Host(alive[0]), again
    alive[-1].stop()


def test_a_killed_daemon_loses_no_server(killed, tmp_path: Path):
    host, again = killed
    names = ['one', 'two', 'three']
    for name in names:
        host.add(name, 'python3', str(small(tmp_path, name)), env={'KEY': name})
    born = {}
    for name in names:
        host.connected(name)
        born[name] = host.call(name, 'whoami')['structuredContent']['born']
    host.edit('three', enabled=False)
    host.until('three', 'disabled', 30)
    # During a call whose response arrives after the client has gone.
    with ThreadPoolExecutor(1) as pool:
        wait = 'touch /tmp/begun; until [ -e /tmp/go ]; do sleep 0.05; done; touch /tmp/ended'
        lost = pool.submit(host.call, 'one', 'run', text=wait)
        while 'begun' not in text_of(host.call('one', 'run', text='ls /tmp')):
            assert not lost.done(), lost.result()
            time.sleep(0.05)
        host = again()
        with pytest.raises(ConnectionError):
            lost.result(30)
    for name in ['one', 'two']:
        host.connected(name, 30)
        found = host.call(name, 'whoami')['structuredContent']
        assert found['born'] == born[name], f'{name} was started again'
        assert text_of(host.call(name, 'env', text='KEY')) == name
    assert host.state('three')['status'] == 'disabled'
    # The late response to the first daemon's call has no receiver.
    host.call('one', 'run', text='touch /tmp/go')
    deadline = time.monotonic() + 30
    while 'ended' not in text_of(host.call('one', 'run', text='ls /tmp')):
        assert time.monotonic() < deadline, 'the call of the first daemon did not end'
        time.sleep(0.05)
    # The server answers when its command has ended, which takes it a moment.
    time.sleep(0.5)
    assert text_of(host.call('one', 'echo', text='still here')) == 'still here'


@pytest.mark.anyio
async def test_a_client_goes_on_after_the_next_daemon_came(killed, tmp_path: Path):
    host, again = killed
    host.add('kept', 'python3', str(small(tmp_path, 'kept')))
    host.connected('kept')
    async with host.client('kept', '2026-07-28') as client:
        before = await client.call_tool('whoami', {})
        await anyio.to_thread.run_sync(again)
        with anyio.fail_after(30):
            after = await client.call_tool('whoami', {})
    assert before.structured_content['born'] == after.structured_content['born']


def test_a_daemon_killed_while_a_server_starts_begins_again(killed, tmp_path: Path):
    host, again = killed
    script = small(tmp_path, 'slow')
    command = 'sleep 2; exec python3 /workspace/server.py'
    host.add('slow', 'sh', '-c', command, box={'host_path': str(script.parent)})
    deadline = time.monotonic() + 20
    while host.state('slow')['status'] == 'queued':
        assert time.monotonic() < deadline
        time.sleep(0.05)
    host = again()
    found = host.connected('slow', 60)
    assert found['tool_count'] == 12
