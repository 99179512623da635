"""Crashes of the daemon while hosted servers are in use: no server is lost or restarted."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import anyio
import pytest

from harness import daemon
from support.hosted import Host, small, text_of


@pytest.fixture
def restartable(tmp_path: Path):
    """A daemon, and a function that kills it and starts the next one at the same address."""
    port = daemon.free_port()
    env = {'BOXWOOD_MOUNTS__ALLOWED_ROOTS': str(tmp_path)}
    daemons = [daemon.Daemon(tmp_path, port=port, env=env)]

    def restart() -> Host:
        daemons[-1].kill()
        daemons.append(daemon.Daemon(tmp_path, port=port, env=env))
        return Host(daemons[-1])

    yield Host(daemons[0]), restart
    daemons[-1].stop()


def test_a_killed_daemon_loses_no_server(restartable, tmp_path: Path):
    host, restart = restartable
    names = ['one', 'two', 'three']
    for name in names:
        host.add(name, 'python3', str(small(tmp_path, name)), env={'KEY': name})
    process_ids = {}
    for name in names:
        host.connected(name)
        process_ids[name] = host.call(name, 'whoami')['structuredContent']['process_id']
    host.edit('three', enabled=False)
    host.until('three', 'disabled', 30)
    # Kill the daemon during a call, whose response then has no receiver.
    with ThreadPoolExecutor(1) as pool:
        wait = 'touch /tmp/begun; until [ -e /tmp/go ]; do sleep 0.05; done; touch /tmp/ended'
        lost = pool.submit(host.call, 'one', 'run', text=wait)
        while 'begun' not in text_of(host.call('one', 'run', text='ls /tmp')):
            assert not lost.done(), lost.result()
            time.sleep(0.05)
        host = restart()
        with pytest.raises(ConnectionError):
            lost.result(30)
    for name in ['one', 'two']:
        host.connected(name, 30)
        found = host.call(name, 'whoami')['structuredContent']
        assert found['process_id'] == process_ids[name], f'{name} was restarted'
        assert text_of(host.call(name, 'env', text='KEY')) == name
    assert host.state('three')['status'] == 'disabled'
    # Complete that call; its response must not disturb later calls.
    host.call('one', 'run', text='touch /tmp/go')
    deadline = time.monotonic() + 30
    while 'ended' not in text_of(host.call('one', 'run', text='ls /tmp')):
        assert time.monotonic() < deadline, 'the call of the first daemon did not end'
        time.sleep(0.05)
    # The server sends the response shortly after its command has ended.
    time.sleep(0.5)
    assert text_of(host.call('one', 'echo', text='still here')) == 'still here'


@pytest.mark.anyio
async def test_a_client_continues_with_the_next_daemon(restartable, tmp_path: Path):
    host, restart = restartable
    host.add('kept', 'python3', str(small(tmp_path, 'kept')))
    host.connected('kept')
    async with host.client('kept', '2026-07-28') as client:
        before = await client.call_tool('whoami', {})
        await anyio.to_thread.run_sync(restart)
        with anyio.fail_after(30):
            after = await client.call_tool('whoami', {})
    assert before.structured_content['process_id'] == after.structured_content['process_id']


def test_the_next_daemon_starts_a_server_that_was_being_started(restartable, tmp_path: Path):
    host, restart = restartable
    script = small(tmp_path, 'slow')
    command = 'sleep 2; exec python3 /workspace/server.py'
    host.add('slow', 'sh', '-c', command, box={'host_path': str(script.parent)})
    deadline = time.monotonic() + 20
    while host.state('slow')['status'] == 'queued':
        assert time.monotonic() < deadline
        time.sleep(0.05)
    host = restart()
    found = host.connected('slow', 60)
    assert found['tool_count'] == 12
