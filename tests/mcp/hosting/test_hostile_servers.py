"""Hostile servers: each ends in a named phase, in time, and leaves nothing running."""

from __future__ import annotations

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness import daemon, processes
from support.hosted import SUITE, Host, Refused, peak_kib, text_of, watch_memory

#: Of one start, on a machine that may be building something at the same time.
STARTUP_SEC = 20
#: The same for servers that run into it, so that the test is short.
SHORT_SEC = 10
#: For the box around it, and its removal.
SLACK_SEC = 30

#: How each behaves, and what is said of it. Those who only keep silent are found out when their time is over.
LATE = 'Connection timeout after'
FATAL = {
    'garbage': 'not MCP messages',
    'long-line': 'a line of more than',
    'silent': LATE,
    'exits': 'exit code 3',
    'closes-stdin': LATE,
    'closes-stdout': 'closed its output',
    'deaf': LATE,
    'leaves': 'exit code 5',
    'wrong-ids': LATE,
}
#: Pings come every half minute, and it takes two of them to notice that the server no longer reads.
UNHEARD_SEC = 180


@pytest.fixture(scope='module')
def host(tmp_path_factory: pytest.TempPathFactory):
    """A daemon of their own, so that other tests are not affected."""
    place = tmp_path_factory.mktemp('hostile')
    project = place / 'hostile'
    project.mkdir()
    shutil.copy(SUITE / 'hostile_server.py', project / 'server.py')
    runtime = daemon.Daemon(place, env={'BOXWOOD_MOUNTS__ALLOWED_ROOTS': str(place)})
    try:
        yield Host(runtime), str(project / 'server.py')
        runtime.stop()
    except BaseException:
        runtime.kill()
        raise


def settings(**more) -> dict:
    return {'startup_timeout_sec': STARTUP_SEC, 'network': 'off', **more}


def test_each_fails_in_its_phase(host):
    host, script = host
    before = watch_memory(host.runtime.pid)

    def one(behaviour: str) -> tuple[float, dict]:
        started = time.monotonic()
        box = settings()
        if FATAL[behaviour] == LATE:
            box['startup_timeout_sec'] = SHORT_SEC
        found = host.test(behaviour, 'python3', script, behaviour, box=box)
        return time.monotonic() - started, found

    with ThreadPoolExecutor(3) as pool:
        results = dict(zip(FATAL, pool.map(one, FATAL), strict=True))
    for behaviour, (took, found) in results.items():
        state = found['runtime']
        assert found['ok'] is False, (behaviour, found)
        assert state['error_phase'] == 'mcp_init', (behaviour, state)
        assert FATAL[behaviour] in state['error_message'], (behaviour, state)
        assert took < STARTUP_SEC + SLACK_SEC, f'{behaviour} took {took:.1f} s'
        assert len(found['log']) < 2_000_000, behaviour
    grown = peak_kib(host.runtime.pid) - before
    assert grown < 96 * 1024, f'the daemon grew by {grown} KiB'
    assert host.sessions() == set()
    processes.assert_only(host.runtime.pid, daemon.IDLE, within=10)


def test_a_flood_on_stderr_is_kept_in_bounds(host):
    """It works; its output is truncated."""
    host, script = host
    before = watch_memory(host.runtime.pid)
    host.add('flood', 'python3', script, 'floods-stderr', box=settings())
    try:
        host.connected('flood', 30)
        deadline = time.monotonic() + 30
        while not host.logs('flood')['stderr']:
            assert time.monotonic() < deadline, 'nothing was read of it'
            time.sleep(0.05)
        # Long enough to exceed any bound, were there none.
        time.sleep(2)
        assert len(host.logs('flood')['stderr']) < 2_000_000
        grown = peak_kib(host.runtime.pid) - before
        assert grown < 64 * 1024, f'the daemon grew by {grown} KiB'
    finally:
        host.remove('flood')
    processes.assert_only(host.runtime.pid, daemon.IDLE, within=10)


def test_one_that_ignores_signals_ends_with_its_box(host):
    """It answers as it should; but neither it nor its children end by themselves."""
    host, script = host
    started = time.monotonic()
    found = host.test('lingers', 'python3', script, 'lingers', box=settings())
    assert found['ok'] is True, found
    assert time.monotonic() - started < STARTUP_SEC + SLACK_SEC
    processes.assert_only(host.runtime.pid, daemon.IDLE, within=10)


def test_one_that_dies_in_a_call_is_restarted(host):
    host, script = host
    host.add('crash', 'python3', script, 'crash', box=settings())
    try:
        host.connected('crash', 30)
        with pytest.raises(Refused):
            host.call('crash', 'misbehave')
        deadline = time.monotonic() + 20
        while (found := host.state('crash'))['error_phase'] != 'runtime':
            assert time.monotonic() < deadline, found
            time.sleep(0.05)
        host.connected('crash', 30)
        assert text_of(host.call('crash', 'echo', text='back')) == 'back'
    finally:
        host.remove('crash')
    processes.assert_only(host.runtime.pid, daemon.IDLE, within=10)


def test_one_that_closes_its_pipes_in_a_call_is_replaced(host):
    """The shared process, and the process of a single client."""
    host, script = host
    modes = ['closes-stdin-later', 'closes-stdout-later']
    ways = {'shared': {}, 'own': {'roots': {}}}

    def one(case: tuple[str, str]) -> None:
        mode, way = case
        name = f'{mode}-{way}'
        host.add(name, 'python3', script, mode, box=settings())
        host.connected(name, 60)
        begun = {
            'protocolVersion': '2025-06-18',
            'capabilities': ways[way],
            'clientInfo': {'name': 'test', 'version': '1'},
        }
        answer, _ = host.raw(name, message(1, 'initialize', begun))
        session = {'Mcp-Session-Id': answer.getheader('Mcp-Session-Id')}
        call = {'name': 'misbehave', 'arguments': {}}
        _, said = host.raw(name, message(2, 'tools/call', call), session)
        assert said[-1]['error']['data']['phase'] == 'runtime', (name, said)
        if way == 'shared':
            deadline = time.monotonic() + 60
            while (found := host.state(name))['error_phase'] != 'runtime':
                assert time.monotonic() < deadline, (name, found)
                time.sleep(0.05)
            host.connected(name, 60)
        else:
            assert host.state(name)['retry_count'] == 0, 'the others never noticed'
        call = {'name': 'echo', 'arguments': {'text': 'back'}}
        _, said = host.raw(name, message(3, 'tools/call', call), session)
        assert text_of(said[-1]['result']) == 'back', (name, said)

    cases = [(mode, way) for mode in modes for way in ways]
    with ThreadPoolExecutor(len(cases)) as pool:
        found = [pool.submit(one, case) for case in cases]
        try:
            for result in found:
                result.result(timeout=UNHEARD_SEC)
        finally:
            for mode, way in cases:
                host.remove(f'{mode}-{way}')
    processes.assert_only(host.runtime.pid, daemon.IDLE, within=10)


def message(number: int, method: str, params: dict) -> dict:
    return {'jsonrpc': '2.0', 'id': number, 'method': method, 'params': params}


def test_an_endless_answer_fails_only_its_call(host):
    """It is skipped and never held in memory; the server continues."""
    host, script = host
    before = watch_memory(host.runtime.pid)
    host.add('long', 'python3', script, 'long-answer', box=settings(memory_mb=512))
    try:
        host.connected('long', 30)
        with pytest.raises(Refused) as refused:
            host.call('long', 'misbehave')
        assert 'exceeds 16777216 bytes' in str(refused.value)
        assert text_of(host.call('long', 'echo', text='on')) == 'on'
        assert host.state('long')['retry_count'] == 0
        grown = peak_kib(host.runtime.pid) - before
        assert grown < 96 * 1024, f'the daemon grew by {grown} KiB'
    finally:
        host.remove('long')
    processes.assert_only(host.runtime.pid, daemon.IDLE, within=10)


@pytest.mark.parametrize('behaviour', ['asks', 'repeats', 'chatty'])
def test_tolerated_misbehaviour(host, behaviour: str):
    host, script = host
    host.add(behaviour, 'python3', script, behaviour, box=settings())
    try:
        host.connected(behaviour, 30)
        for text in ['one', 'two']:
            found = host.rmcp(behaviour, 'misbehave', {'text': text})
            assert text_of(found['result']) == text
    finally:
        host.remove(behaviour)
    processes.assert_only(host.runtime.pid, daemon.IDLE, within=10)


def test_a_tool_with_the_name_of_another_is_kept_apart(host):
    """`exec` of a hosted server is that server's, and never the sandbox's own tool."""
    host, script = host
    host.add('shadow', 'python3', script, 'shadows', box=settings())
    host.add('time', 'python3', script, 'chatty', box=settings())
    try:
        host.connected('shadow', 30)
        host.connected('time', 30)
        found = host.rmcp('_all', 'time__echo', {'text': 'mine'})
        assert text_of(found['result']) == 'mine'
        # One of its tools is called `time__get_current_time`; it is not among those of `time`.
        assert 'time__get_current_time' not in found['tools']
        others = [tool for tool in found['tools'] if not tool.startswith('time__')]
        assert others and all(tool.startswith('shadow__') for tool in others), found['tools']
    finally:
        host.remove('shadow')
        host.remove('time')
    processes.assert_only(host.runtime.pid, daemon.IDLE, within=10)


def test_leftover_processes_end_with_the_box(host):
    """A detached child is still in the box."""
    host, _ = host
    command = '(setsid sleep 4711 </dev/null >/dev/null 2>&1 &) ; exit 0'
    found = host.test('forker', 'sh', '-c', command, box=settings())
    assert found['ok'] is False
    processes.assert_only(host.runtime.pid, daemon.IDLE, within=10)


def test_a_hosted_one_gives_up_after_four_attempts(host):
    host, _ = host
    host.add('short', 'sh', '-c', 'echo no >&2; exit 9', box=settings())
    try:
        seen = set()
        deadline = time.monotonic() + 60
        while (found := host.state('short'))['status'] != 'error':
            seen.add(found['retry_count'])
            assert time.monotonic() < deadline, found
            time.sleep(0.1)
        assert found['error_message'].startswith('Failed after 4 attempts: ')
        assert found['error_phase'] == 'mcp_init'
        assert seen >= {0, 1, 2}, seen
        with pytest.raises(Refused):
            host.call('short', 'x')
    finally:
        host.remove('short')
    processes.assert_only(host.runtime.pid, daemon.IDLE, within=10)


def test_one_that_hangs_in_a_call_does_not_hang_the_others(host):
    host, script = host
    host.add('hang', 'python3', script, 'hangs', box=settings())
    host.add('other', 'python3', script, 'chatty', box=settings())
    try:
        host.connected('hang', 30)
        host.connected('other', 30)
        with ThreadPoolExecutor(1) as pool:
            stuck = pool.submit(lambda: host.rmcp('hang', 'misbehave', {}))
            deadline = time.monotonic() + 30
            while 'tools/call' not in json.dumps(host.logs('hang')):
                assert time.monotonic() < deadline, 'the call did not reach the server'
                time.sleep(0.05)
            assert host.state('hang')['status'] == 'connected'
            assert text_of(host.call('other', 'echo', text='here')) == 'here'
            host.do('hang', 'stop')
            with pytest.raises(AssertionError):
                stuck.result(timeout=30)
    finally:
        host.remove('hang')
        host.remove('other')
    processes.assert_only(host.runtime.pid, daemon.IDLE, within=10)
