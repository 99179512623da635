"""Many servers at once on a small machine: all start, and queueing does not count towards a timeout."""

from __future__ import annotations

import time

import pytest

from harness import daemon, processes
from support.hosted import Host, memory_kib, small
from support.clients import LONG

MANY = 50 if LONG else 16
#: How many start at the same time. 4 is the default of the daemon.
AT_ONCE = 4 if LONG else 2
#: Each sleeps before it answers, so that the last waits for longer than it may take to start.
SLEEPS_SEC = 1.6
STARTUP_SEC = 12
assert MANY / AT_ONCE * SLEEPS_SEC > STARTUP_SEC


@pytest.fixture(scope='module')
def many(tmp_path_factory: pytest.TempPathFactory):
    place = tmp_path_factory.mktemp('crowd')
    settings = {
        'BOXWOOD_MOUNTS__ALLOWED_ROOTS': str(place),
        'BOXWOOD_MCP__STARTS_AT_ONCE': str(AT_ONCE),
    }
    runtime = daemon.Daemon(place, env=settings)
    try:
        yield Host(runtime), place
        family = processes.descendants(runtime.pid)
        assert len(family) >= MANY
        runtime.stop()
    except BaseException:
        runtime.kill()
        raise


def test_all_are_connected(many):
    host, place = many
    script = str(small(place))
    # What hosting takes once, however many servers there are, is no part of the measurement.
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
        found = host.ask('GET', '/v1/mcp/servers')['servers']
        states = [server['runtime'] for server in found]
        seen |= {state['status'] for state in states}
        for server, state in zip(found, states, strict=True):
            assert state['retry_count'] == 0 and state['status'] != 'error', (server['name'], state)
            # A server that does not wait shows its phase.
            if state['status'] == 'connecting':
                assert state['steps'], server['name']
        if all(state['status'] == 'connected' for state in states):
            break
        assert time.monotonic() - started < 300, [state['status'] for state in states]
        time.sleep(0.2)
    assert 'queued' in seen, 'no server was queued'
    took = time.monotonic() - started
    assert took > STARTUP_SEC, f'all were there after {took:.1f} s, so none waited for long'
    tools = host.rmcp('_all', f's{MANY - 1}__echo', {'text': 'last'})
    assert len(tools['tools']) == 12 * (MANY + 1)
    # A little bookkeeping a server, and not a copy of everything it says.
    grown = memory_kib(host.runtime.pid) - before
    assert grown < MANY * 512, f'{grown} KiB for {MANY} servers'


def test_each_is_a_box_of_its_own(many):
    host, _ = many
    assert {f'mcp-s{number:02}' for number in range(MANY)} <= host.sessions()
