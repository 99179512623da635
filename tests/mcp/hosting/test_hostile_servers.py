"""Hostile servers: each fails in a named phase within its time limit, and leaves no process."""

from __future__ import annotations

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import daemon, processes
from support.hosted import SUITE, Host, Refused, peak_kib, text_of, watch_memory

#: Timeout of one start, long enough for a busy machine.
STARTUP_SEC = 20
#: The same for servers that reach it, to keep the test short.
SHORT_SEC = 10
#: Additional time for the creation and removal of the box.
SLACK_SEC = 30

#: Modes of the server, and a part of the error message. Silent servers fail by the timeout.
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
#: Timeout for servers that stop reading or writing, which are detected by pings only: one every 30 s, with a
#: timeout of 10 s. Three unanswered pings count as an exit.
PIPE_TIMEOUT_SEC = 180


@pytest.fixture(scope='module')
def host(tmp_path_factory: pytest.TempPathFactory):
    """A separate daemon, so that other tests are not affected."""
    directory = tmp_path_factory.mktemp('hostile')
    project = directory / 'hostile'
    project.mkdir()
    shutil.copy(SUITE / 'hostile_server.py', project / 'server.py')
    runtime = daemon.Daemon(directory, env={'BOXWOOD_MOUNTS__ALLOWED_ROOTS': str(directory)})
    try:
        yield Host(runtime), str(project / 'server.py')
        runtime.stop()
    except BaseException:
        runtime.kill()
        raise


def settings(**more) -> dict:
    return {'startup_timeout_sec': STARTUP_SEC, 'network': 'off', **more}


def test_broken_servers_fail_in_the_phase_mcp_init(host):
    host, script = host
    before = watch_memory(host.runtime.pid)

    def one(mode: str) -> tuple[float, dict]:
        started = time.monotonic()
        box = settings()
        if FATAL[mode] == LATE:
            box['startup_timeout_sec'] = SHORT_SEC
        found = host.test(mode, 'python3', script, mode, box=box)
        return time.monotonic() - started, found

    with ThreadPoolExecutor(3) as pool:
        results = dict(zip(FATAL, pool.map(one, FATAL), strict=True))
    for mode, (took, found) in results.items():
        state = found['runtime']
        assert found['ok'] is False, (mode, found)
        assert state['error_phase'] == 'mcp_init', (mode, state)
        assert FATAL[mode] in state['error_message'], (mode, state)
        assert took < STARTUP_SEC + SLACK_SEC, f'{mode} took {took:.1f} s'
        assert len(found['log']) < 2_000_000, mode
    grown = peak_kib(host.runtime.pid) - before
    assert grown < 96 * 1024, f'the daemon grew by {grown} KiB'
    assert host.sessions() == set()
    processes.assert_only(host.runtime.pid, daemon.IDLE, within=10)


def test_a_flood_on_stderr_is_truncated(host):
    """The server works; its output is truncated."""
    host, script = host
    before = watch_memory(host.runtime.pid)
    host.add('flood', 'python3', script, 'floods-stderr', box=settings())
    try:
        host.connected('flood', 30)
        deadline = time.monotonic() + 30
        while not host.logs('flood')['stderr']:
            assert time.monotonic() < deadline, 'no output was read'
            time.sleep(0.05)
        # Long enough to exceed the limit if there were none.
        time.sleep(2)
        assert len(host.logs('flood')['stderr']) < 2_000_000
        grown = peak_kib(host.runtime.pid) - before
        assert grown < 64 * 1024, f'the daemon grew by {grown} KiB'
    finally:
        host.remove('flood')
    processes.assert_only(host.runtime.pid, daemon.IDLE, within=10)


def test_a_server_that_ignores_signals_ends_with_its_box(host):
    """The server answers correctly, but neither it nor its children end on SIGTERM."""
    host, script = host
    started = time.monotonic()
    found = host.test('lingers', 'python3', script, 'lingers', box=settings())
    assert found['ok'] is True, found
    assert time.monotonic() - started < STARTUP_SEC + SLACK_SEC
    processes.assert_only(host.runtime.pid, daemon.IDLE, within=10)


def test_a_server_that_crashes_during_a_call_is_restarted(host):
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


def test_a_server_that_closes_its_pipes_during_a_call_is_replaced(host):
    """For the shared process and for a client process."""
    host, script = host
    modes = ['closes-stdin-later', 'closes-stdout-later']
    capabilities = {'shared': {}, 'own': {'roots': {}}}

    def one(case: tuple[str, str]) -> None:
        mode, kind = case
        name = f'{mode}-{kind}'
        host.add(name, 'python3', script, mode, box=settings())
        host.connected(name, 60)
        begun = {
            'protocolVersion': '2025-06-18',
            'capabilities': capabilities[kind],
            'clientInfo': {'name': 'test', 'version': '1'},
        }
        answer, _ = host.raw(name, message(1, 'initialize', begun))
        session = {'Mcp-Session-Id': answer.getheader('Mcp-Session-Id')}
        call = {'name': 'misbehave', 'arguments': {}}
        _, messages = host.raw(name, message(2, 'tools/call', call), session)
        assert messages[-1]['error']['data']['phase'] == 'runtime', (name, messages)
        if kind == 'shared':
            deadline = time.monotonic() + 60
            while (found := host.state(name))['error_phase'] != 'runtime':
                assert time.monotonic() < deadline, (name, found)
                time.sleep(0.05)
            host.connected(name, 60)
        else:
            assert host.state(name)['retry_count'] == 0, 'the shared process was restarted'
        call = {'name': 'echo', 'arguments': {'text': 'back'}}
        _, messages = host.raw(name, message(3, 'tools/call', call), session)
        assert text_of(messages[-1]['result']) == 'back', (name, messages)

    cases = [(mode, kind) for mode in modes for kind in capabilities]
    with ThreadPoolExecutor(len(cases)) as pool:
        found = [pool.submit(one, case) for case in cases]
        try:
            for result in found:
                result.result(timeout=PIPE_TIMEOUT_SEC)
        finally:
            for mode, kind in cases:
                host.remove(f'{mode}-{kind}')
    processes.assert_only(host.runtime.pid, daemon.IDLE, within=10)


def message(number: int, method: str, params: dict) -> dict:
    return {'jsonrpc': '2.0', 'id': number, 'method': method, 'params': params}


def test_an_oversized_response_fails_only_its_call(host):
    """The response is skipped without buffering it, and the server continues."""
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


@pytest.mark.parametrize('mode', ['asks', 'repeats', 'chatty'])
def test_tolerated_misbehaviour(host, mode: str):
    host, script = host
    host.add(mode, 'python3', script, mode, box=settings())
    try:
        host.connected(mode, 30)
        for text in ['one', 'two']:
            found = host.rmcp(mode, 'misbehave', {'text': text})
            assert text_of(found['result']) == text
    finally:
        host.remove(mode)
    processes.assert_only(host.runtime.pid, daemon.IDLE, within=10)


def test_tools_of_a_server_cannot_shadow_other_tools(host):
    """For instance, a tool `exec` of a hosted server is not the tool of the sandbox."""
    host, script = host
    host.add('shadow', 'python3', script, 'shadows', box=settings())
    host.add('time', 'python3', script, 'chatty', box=settings())
    try:
        host.connected('shadow', 30)
        host.connected('time', 30)
        found = host.rmcp('_all', 'time__echo', {'text': 'mine'})
        assert text_of(found['result']) == 'mine'
        # `shadow` has a tool `time__get_current_time`, which must not appear as a tool of `time`.
        assert 'time__get_current_time' not in found['tools']
        others = [tool for tool in found['tools'] if not tool.startswith('time__')]
        assert others and all(tool.startswith('shadow__') for tool in others), found['tools']
    finally:
        host.remove('shadow')
        host.remove('time')
    processes.assert_only(host.runtime.pid, daemon.IDLE, within=10)


def test_leftover_processes_end_with_the_box(host):
    """Also a detached child of the server."""
    host, _ = host
    command = '(setsid sleep 4711 </dev/null >/dev/null 2>&1 &) ; exit 0'
    found = host.test('forker', 'sh', '-c', command, box=settings())
    assert found['ok'] is False
    processes.assert_only(host.runtime.pid, daemon.IDLE, within=10)


def test_a_start_is_attempted_four_times(host):
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


def test_a_hanging_call_does_not_affect_other_servers(host):
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
