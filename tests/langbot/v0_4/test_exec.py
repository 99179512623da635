"""Running commands."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from langbot_plugin.box.errors import BoxError, BoxSessionNotFoundError, BoxValidationError
from langbot_plugin.box.models import BoxExecutionStatus

from support.box import Action, Box, count, eventually, until_exists
from support.runtime import LANGBOT_BOX

RESULT_KEYS = {
    'session_id',
    'backend_name',
    'status',
    'exit_code',
    'stdout',
    'stderr',
    'duration_ms',
}


async def test_exec_runs_a_command(box: Box):
    data = await box.call(Action.EXEC, {'session_id': box.session, 'cmd': 'echo hello'})
    assert set(data) == RESULT_KEYS
    assert (data['session_id'], data['status'], data['exit_code']) == (box.session, 'completed', 0)
    assert data['backend_name'] == ('nsjail' if LANGBOT_BOX else 'native')
    assert (data['stdout'], data['stderr']) == ('hello', '')
    assert isinstance(data['duration_ms'], int) and 0 <= data['duration_ms'] < 15_000


async def test_the_client_parses_the_result(box: Box):
    result = await box.run('echo out; echo err >&2; exit 3')
    assert result.status is BoxExecutionStatus.COMPLETED
    assert (result.exit_code, result.stdout, result.stderr) == (3, 'out', 'err')
    assert result.ok is False


async def test_exec_creates_its_session(box: Box):
    await box.run('true')
    assert [s['session_id'] for s in await box.client.get_sessions()] == [box.session]


async def test_exec_reuses_a_session(box: Box):
    created = await box.create()
    await box.run('true')
    session = await box.client.get_session(box.session)
    assert session['backend_session_id'] == created['backend_session_id']
    assert session['last_used_at'] > created['last_used_at']


@pytest.mark.parametrize('directory', ['/tmp', '/workspace'])
async def test_files_stay_in_the_session(box: Box, directory: str):
    assert (await box.run(f'echo kept > {directory}/file')).exit_code == 0
    assert (await box.run(f'cat {directory}/file')).stdout == 'kept'


async def test_files_of_one_session_are_not_in_another(box: Box):
    await box.run('echo mine > /tmp/file')
    other = await box.run('cat /tmp/file', session_id=f'{box.session}-other')
    assert other.exit_code != 0 and other.stdout == ''


async def test_output_is_trimmed_at_both_ends(box: Box):
    result = await box.run(r"printf '\n  a  \n b\t\n\n'; printf ' \r\nerr\n' >&2")
    assert (result.stdout, result.stderr) == ('a  \n b', 'err')


async def test_invalid_utf8_in_the_output_is_replaced(box: Box):
    result = await box.run(r"printf 'h\303\251 \344\270\255 \377\376 end'")
    assert result.stdout == 'hé 中 \ufffd\ufffd end'


async def test_command_may_be_any_text(box: Box):
    result = await box.run("echo \"it's\" 'quo\"ted' $((6 * 7)) 漢字 '$HOME' \\\\\nprintf '%s' second")
    assert result.stdout == 'it\'s quo"ted 42 漢字 $HOME \\\nsecond'


async def test_environment_belongs_to_one_command(box: Box):
    env = {'GREETING': 'hello world', 'EMPTY': '', 'ODD': 'a=b "c" $d\ne'}
    result = await box.run('printf "%s|%s|%s" "$GREETING" "$EMPTY" "$ODD"', env=env)
    assert result.stdout == 'hello world||a=b "c" $d\ne'
    assert (await box.run('printf "%s" "$GREETING"')).stdout == ''


async def test_the_default_working_directory_is_the_workspace(box: Box):
    assert (await box.run('pwd')).stdout == '/workspace'


async def test_the_requested_working_directory_is_used(box: Box):
    assert (await box.run('pwd', workdir='/tmp')).stdout == '/tmp'


@pytest.mark.better('created on every backend, not only on Docker')
async def test_a_missing_working_directory_is_created(box: Box):
    assert (await box.run('pwd', workdir='/workspace/not/yet')).stdout == '/workspace/not/yet'


async def test_stdin_is_empty(box: Box):
    result = await box.run('cat; echo end', timeout_sec=10)
    assert (result.status, result.stdout) == (BoxExecutionStatus.COMPLETED, 'end')


async def test_a_signal_gives_exit_code_128_plus_its_number(box: Box):
    assert (await box.run("sh -c 'kill -9 $$'; exit $?")).exit_code == 137
    assert (await box.run("sh -c 'kill -15 $$'; exit $?")).exit_code == 143


@pytest.mark.better('the command itself is never the first process of its box')
async def test_a_command_may_kill_itself(box: Box):
    assert (await box.run('kill -9 $$')).exit_code == 137


async def test_a_missing_command_gives_exit_code_127(box: Box):
    result = await box.run('no-such-command')
    assert result.exit_code == 127 and 'not found' in result.stderr


async def test_a_timeout_kills_the_command(box: Box):
    started = time.monotonic()
    result = await box.run('echo before; sleep 60; echo after', timeout_sec=1)
    assert time.monotonic() - started < 10
    assert result.status is BoxExecutionStatus.TIMED_OUT
    assert result.exit_code is None and result.ok is False
    assert 'after' not in result.stdout
    assert 1000 <= result.duration_ms < 10_000


@pytest.mark.better('a timeout leaves the session and its processes alive')
async def test_a_timeout_leaves_the_session(box: Box):
    await box.run('echo kept > /tmp/file')
    process = await box.start('cat')
    result = await box.run('echo before; sleep 60', timeout_sec=4)
    assert (result.status, result.stdout) == (BoxExecutionStatus.TIMED_OUT, 'before')
    assert result.stderr == 'Command timed out after 4 seconds.'
    assert (await box.process()) == process
    assert (await box.run('cat /tmp/file')).stdout == 'kept'


@pytest.mark.better('no process of a timed-out command is left in the session')
async def test_a_timeout_kills_the_child_processes(box: Box):
    await box.run('sleep 4242 & (sleep 4242 &) ; setsid sleep 4242; true', timeout_sec=1)
    # A killed process may still be listed for a moment.
    await eventually(lambda: box.run(count('sleep')), lambda result: result.stdout == '0')


async def test_an_offline_box_reaches_no_network(box: Box):
    result = await box.run(
        'cat /proc/net/route | tail -n +2; '
        'python3 -c "import socket; socket.create_connection((\'192.0.2.1\', 80), 2)"',
        timeout_sec=20,
    )
    assert result.stdout == '' and result.exit_code != 0
    assert 'unreachable' in result.stderr


async def test_the_root_is_read_only(box: Box):
    result = await box.run('echo no > /usr/file')
    assert result.exit_code != 0 and 'ead-only' in result.stderr


@pytest.mark.better('an output over 1 MiB states how much was left out, and the response still fits')
async def test_a_large_output_is_clipped_with_a_notice(box: Box):
    result = await box.run('head -c 3000000 /dev/zero | tr "\\0" x')
    assert result.exit_code == 0
    assert 500_000 < len(result.stdout) <= 1_048_576 + 200
    assert result.stdout.startswith('xxxx')
    notice = '... [raw output clipped at 1048576 bytes, 1951424 bytes discarded]'
    assert notice in result.stdout[-300:]


@pytest.mark.better('a response beyond the client\'s limit is shortened instead of breaking the connection')
async def test_a_response_with_two_large_streams_fits_the_clients_limit(box: Box):
    result = await box.run(
        'head -c 1000000 /dev/zero | tr "\\0" o; head -c 1000000 /dev/zero | tr "\\0" e >&2'
    )
    assert result.exit_code == 0
    assert result.stdout.startswith('ooo') and result.stderr.startswith('eee')
    assert (await box.run('echo still here')).stdout == 'still here'


@pytest.mark.better('escaping makes a response up to six times as long as its text')
async def test_a_response_with_escaped_text_fits_the_clients_limit(box: Box):
    result = await box.run("yes '漢字漢字' | head -c 1000000")
    assert result.exit_code == 0 and result.stdout.startswith('漢字漢字\n')
    assert (await box.run('echo still here')).stdout == 'still here'


async def test_an_output_below_the_limit_is_whole(box: Box):
    result = await box.run('seq 1 50000')
    assert result.stdout == '\n'.join(str(number) for number in range(1, 50001))


@pytest.mark.parametrize('size', [1_000, 20_000, 60_000])
async def test_a_long_command_arrives_whole(box: Box, size: int):
    result = await box.run(f"printf '%s' '{'y' * size}' | wc -c")
    assert result.stdout.strip() == str(size)


@pytest.mark.better('requests that the client splits over several frames are joined')
@pytest.mark.parametrize('size', [65_536, 100_000, 300_000, 900_000])
async def test_a_very_long_command_arrives_whole(box: Box, size: int):
    # A here-document, because a single argument cannot be longer than 128 KiB.
    result = await box.run(f"wc -c <<'END'\n{'y' * size}\nEND")
    assert result.stdout.strip() == str(size + 1)


@pytest.mark.parametrize('cmd', ['', '   ', '\n\t'])
async def test_an_empty_command_is_refused_before_a_session_is_created(box: Box, cmd: str):
    with pytest.raises(BoxValidationError) as error:
        await box.run(cmd)
    assert str(error.value) == 'BoxValidationError: cmd must not be empty'
    with pytest.raises(BoxSessionNotFoundError):
        await box.client.get_session(box.session)


@pytest.mark.better('commands of one session run concurrently')
async def test_two_commands_of_a_session_run_concurrently(box: Box):
    await box.create()
    # Each waits for the other's file, so both end only if they run concurrently.
    script = 'touch /tmp/{0}; until [ -e /tmp/{1} ]; do sleep 0.05; done; echo met'
    results = await asyncio.gather(
        box.run(script.format('a', 'b'), timeout_sec=30),
        box.run(script.format('b', 'a'), timeout_sec=30),
    )
    assert [result.stdout for result in results] == ['met', 'met']


async def start_command(box: Box, host: Path, cmd: str, **fields: Any) -> asyncio.Task:
    """Starts a command in a session with this host directory mounted, and waits until it runs."""
    running = asyncio.create_task(box.run(f'touch begun; {cmd}', host_path=str(host), **fields))
    await until_exists(host / 'begun')
    return running


async def test_a_slow_command_does_not_delay_others(box: Box, tmp_path: Path):
    slow = await start_command(box, tmp_path, 'until [ -e go ]; do sleep 0.05; done; echo slow')
    other = await box.run('echo quick', session_id=f'{box.session}-other')
    assert other.stdout == 'quick'
    assert not slow.done()
    (tmp_path / 'go').touch()
    assert (await slow).stdout == 'slow'


async def test_thirty_two_sessions_at_once(box: Box):
    names = [f'{box.session}-{number}' for number in range(32)]
    results = await asyncio.gather(
        *(box.run(f'echo {name} > /tmp/n; cat /tmp/n', session_id=name) for name in names)
    )
    assert [result.stdout for result in results] == names
    assert {s['session_id'] for s in await box.client.get_sessions()} == set(names)
    await asyncio.gather(*(box.client.delete_session(name) for name in names))
    assert await box.client.get_sessions() == []


async def test_a_command_is_answered_when_its_session_is_deleted(box: Box, tmp_path: Path):
    running = await start_command(box, tmp_path, 'sleep 60', timeout_sec=60)
    await box.client.delete_session(box.session)
    try:
        result = await asyncio.wait_for(running, 30)
    except BoxError:
        return
    assert result.exit_code != 0
