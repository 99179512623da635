"""Many servers that start at once: all connect, and time in the queue does not count towards the timeout."""

from __future__ import annotations

import time

import pytest

from harness import daemon, processes
from support.clients import LONG
from support.hosted import Host, memory_kib, small

MANY = 50 if LONG else 16
#: Number of concurrent starts. The default of the daemon is 4.
AT_ONCE = 4 if LONG else 2
#: Each server sleeps before its first response, so that the last one waits longer than the start timeout.
SLEEPS_SEC = 1.6
STARTUP_SEC = 12
assert MANY / AT_ONCE * SLEEPS_SEC > STARTUP_SEC


@pytest.fixture(scope='module')
def many(tmp_path_factory: pytest.TempPathFactory):
    directory = tmp_path_factory.mktemp('many')
    settings = {
        'BOXWOOD_MOUNTS__ALLOWED_ROOTS': str(directory),
        'BOXWOOD_MCP__STARTS_AT_ONCE': str(AT_ONCE),
    }
    runtime = daemon.Daemon(directory, env=settings)
    try:
        yield Host(runtime), directory
        family = processes.descendants(runtime.pid)
        assert len(family) >= MANY
        runtime.stop()
    except BaseException:
        runtime.kill()
        raise


def test_all_servers_connect(many):
    host, directory = many
    script = str(small(directory))
    # A first server, so that the measurement does not include the fixed memory of hosting.
    host.add('first', 'python3', script)
    host.connected('first')
    host.rmcp('_all', 'first__echo', {'text': 'first'})
    before = memory_kib(host.runtime.pid)
    servers = {
        f's{number:02}': {
            'command': 'python3',
            'args': [script],
            'env': {'SLEEPS_SEC': str(SLEEPS_SEC)},
            'box': {'startup_timeout_sec': STARTUP_SEC, 'network': 'off'},
        }
        for number in range(MANY)
    }
    started = time.monotonic()
    assert len(host.paste({'mcpServers': servers})['added']) == MANY
    seen = set()
    while True:
        found = host.request('GET', '/v1/mcp/servers')['servers']
        states = [server['runtime'] for server in found]
        seen |= {state['status'] for state in states}
        for server, state in zip(found, states, strict=True):
            assert state['retry_count'] == 0 and state['status'] != 'error', (server['name'], state)
            # A server that is not queued shows its phase.
            if state['status'] == 'connecting':
                assert state['steps'], server['name']
        if all(state['status'] == 'connected' for state in states):
            break
        assert time.monotonic() - started < 300, [state['status'] for state in states]
        time.sleep(0.2)
    assert 'queued' in seen, 'no server was queued'
    took = time.monotonic() - started
    assert took > STARTUP_SEC, f'all connected after {took:.1f} s, so no server waited longer than the timeout'
    tools = host.rmcp('_all', f's{MANY - 1}__echo', {'text': 'last'})
    assert len(tools['tools']) == 12 * (MANY + 1)
    # Only some bookkeeping per server, and no copy of its messages.
    grown = memory_kib(host.runtime.pid) - before
    assert grown < MANY * 512, f'{grown} KiB for {MANY} servers'


def test_each_server_has_its_own_box(many):
    host, _ = many
    assert {f'mcp-s{number:02}' for number in range(MANY)} <= host.sessions()
