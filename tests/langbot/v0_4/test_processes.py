"""Managed processes: start, query, replace, stop."""

from __future__ import annotations

import datetime as dt
import time

import pytest
from langbot_plugin.box.errors import (
    BoxError,
    BoxManagedProcessNotFoundError,
    BoxSessionNotFoundError,
    BoxValidationError,
)
from langbot_plugin.box.models import BoxManagedProcessStatus

from support.box import Action, Box, count, eventually

PROCESS_KEYS = {
    'session_id',
    'process_id',
    'status',
    'command',
    'args',
    'cwd',
    'env_keys',
    'attached',
    'started_at',
    'exited_at',
    'exit_code',
    'stderr_preview',
}


async def exited(box: Box, process_id: str = 'default'):
    process = await eventually(
        lambda: box.process(process_id), lambda process: process.exit_code is not None
    )
    assert process.status is BoxManagedProcessStatus.EXITED
    return process


async def test_start_managed_process_returns_the_description(box: Box):
    await box.create()
    before = dt.datetime.now(dt.timezone.utc)
    spec = {'command': 'sh', 'args': ['-c', 'cat'], 'env': {'TOKEN': 'secret', 'A': 'b'}}
    data = {'session_id': box.session, 'spec': spec}
    process = await box.call(Action.START_MANAGED_PROCESS, data)
    assert set(process) == PROCESS_KEYS
    assert (process['session_id'], process['process_id']) == (box.session, 'default')
    assert (process['status'], process['attached']) == ('running', False)
    assert (process['command'], process['args']) == ('sh', ['-c', 'cat'])
    assert (process['cwd'], process['env_keys']) == ('/workspace', ['A', 'TOKEN'])
    assert 'secret' not in str(process)
    assert process['exited_at'] is None and process['exit_code'] is None
    assert process['stderr_preview'] == ''
    started = dt.datetime.strptime(process['started_at'], '%Y-%m-%dT%H:%M:%S.%fZ')
    assert before <= started.replace(tzinfo=dt.timezone.utc)


async def test_get_managed_process_returns_the_same_description(box: Box):
    await box.create()
    started = await box.shell('while true; do sleep 1; done')
    again = await box.process()
    assert again == started
    assert (again.status, again.command) == (BoxManagedProcessStatus.RUNNING, 'sh')


async def test_the_process_id_is_default_unless_given(box: Box):
    await box.create()
    await box.start('cat')
    process = await box.call(Action.GET_MANAGED_PROCESS, {'session_id': box.session})
    assert process['process_id'] == 'default'
    stopped = await box.call(Action.STOP_MANAGED_PROCESS, {'session_id': box.session})
    assert stopped == {'stopped': 'default'}


async def test_a_session_can_have_several_processes(box: Box):
    await box.create()
    for name in ('one', 'two', 'three'):
        assert (await box.start('cat', process_id=name)).process_id == name
    data = {'session_id': box.session, 'process_id': 'two'}
    assert await box.call(Action.STOP_MANAGED_PROCESS, data) == {'stopped': 'two'}
    session = await box.client.get_session(box.session)
    assert set(session['managed_processes']) == {'one', 'three'}


async def test_a_process_has_its_environment_and_directory(box: Box):
    await box.create()
    await box.shell('printf "%s %s" "$PWD" "$NAME" >&2', cwd='/tmp', env={'NAME': 'value'})
    process = await exited(box)
    assert (process.cwd, process.env_keys) == ('/tmp', ['NAME'])
    assert process.stderr_preview == '/tmp value'


async def test_a_process_shares_the_files_of_its_session(box: Box):
    await box.run('echo shared > /workspace/file')
    await box.shell('cat file >&2; echo back > /tmp/back')
    assert (await exited(box)).stderr_preview == 'shared'
    assert (await box.run('cat /tmp/back')).stdout == 'back'


async def test_an_exit_is_reported(box: Box):
    await box.create()
    await box.shell('echo done && exit 0')
    process = await exited(box)
    assert process.exit_code == 0
    assert process.exited_at is not None and process.exited_at >= process.started_at
    assert (await box.client.get_status())['managed_processes'] == 0


@pytest.mark.parametrize('code', [1, 42, 255])
async def test_an_exit_code_is_kept(box: Box, code: int):
    await box.create()
    await box.shell(f'exit {code}')
    assert (await exited(box)).exit_code == code


async def test_a_missing_program_gives_exit_code_127(box: Box):
    await box.create()
    await box.start('no-such-program', 'with', 'arguments')
    assert (await exited(box)).exit_code == 127


async def test_an_exited_process_can_be_queried_and_stopped(box: Box):
    await box.create()
    await box.shell('exit 5')
    await exited(box)
    assert (await box.process()).exit_code == 5
    await box.client.stop_managed_process(box.session)
    with pytest.raises(BoxManagedProcessNotFoundError):
        await box.process()


async def test_an_exited_process_can_be_started_again(box: Box):
    await box.create()
    first = await box.shell('exit 0')
    await exited(box)
    again = await box.start('cat')
    assert again.status is BoxManagedProcessStatus.RUNNING
    assert again.started_at > first.started_at and again.exit_code is None


async def test_a_second_start_replaces_a_running_process(box: Box):
    await box.create()
    await box.start('cat')
    again = await box.shell('exec cat')
    assert (again.command, again.status) == ('sh', BoxManagedProcessStatus.RUNNING)
    assert (await box.client.get_status())['managed_processes'] == 1


async def test_stop_managed_process_removes_it(box: Box):
    await box.create()
    await box.start('cat')
    assert await box.client.stop_managed_process(box.session) is None
    with pytest.raises(BoxManagedProcessNotFoundError) as error:
        await box.process()
    text = f'session {box.session} has no managed process with process_id=default'
    assert str(error.value) == f'BoxManagedProcessNotFoundError: {text}'
    assert 'managed_processes' not in await box.client.get_session(box.session)


@pytest.mark.better('stop kills all child processes on every backend')
async def test_stop_kills_all_child_processes(box: Box):
    await box.create()
    await box.shell('trap "" TERM HUP; sleep 4242 & setsid sleep 4242 & while :; do sleep 1; done')
    sleepers = count('sleep 4242')
    await eventually(lambda: box.run(sleepers), lambda result: result.stdout == '2')
    started = time.monotonic()
    await box.client.stop_managed_process(box.session)
    assert time.monotonic() - started < 15
    # A killed process may still be listed for a moment.
    await eventually(lambda: box.run(sleepers), lambda result: result.stdout == '0')


async def test_stderr_shows_the_last_lines(box: Box):
    await box.create()
    await box.shell('for i in $(seq 1 2000); do echo "line $i" >&2; done; echo >&2; exit 0')
    await exited(box)
    process = await eventually(box.process, lambda p: p.stderr_preview.endswith('line 2000'))
    assert 3900 < len(process.stderr_preview) <= 4000
    lines = process.stderr_preview.split('\n')
    assert lines == [f'line {n}' for n in range(2001 - len(lines), 2001)]


@pytest.mark.better('a line of any length is read, and so are the lines after it')
async def test_stderr_survives_a_very_long_line(box: Box):
    await box.create()
    await box.shell('head -c 300000 /dev/zero | tr "\\0" x >&2; echo >&2; echo last >&2; sleep 60')
    process = await eventually(box.process, lambda p: p.stderr_preview.endswith('last'))
    assert len(process.stderr_preview) <= 4000


async def test_processes_of_unknown_sessions_are_not_found(box: Box):
    with pytest.raises(BoxSessionNotFoundError) as error:
        await box.start('cat')
    text = f'BoxSessionNotFoundError: session {box.session} not found'
    assert str(error.value) == text
    for method in (box.client.get_managed_process, box.client.stop_managed_process):
        with pytest.raises(BoxSessionNotFoundError) as error:
            await method(box.session)
        assert str(error.value) == text


async def test_an_unknown_process_is_not_found(box: Box):
    await box.create()
    await box.start('cat')
    text = f'session {box.session} has no managed process with process_id=other'
    for method in (box.client.get_managed_process, box.client.stop_managed_process):
        with pytest.raises(BoxManagedProcessNotFoundError) as error:
            await method(box.session, 'other')
        assert str(error.value) == f'BoxManagedProcessNotFoundError: {text}'


REFUSED = [
    ({'command': '  '}, 'command', 'Value error, command must not be empty'),
    ({}, 'command', 'Field required'),
    (
        {'command': 'cat', 'cwd': 'relative'},
        'cwd',
        'Value error, cwd must be an absolute path inside the sandbox',
    ),
    ({'command': 'cat', 'args': [1]}, 'args.0', 'Input should be a valid string'),
    ({'command': 'cat', 'env': {'A': 1}}, 'env.A', 'Input should be a valid string'),
]


@pytest.mark.parametrize(('spec', 'field', 'text'), REFUSED)
async def test_an_invalid_process_is_rejected(
    box: Box, spec: dict, field: str, text: str
):
    await box.create()
    with pytest.raises(BoxValidationError) as error:
        data = {'session_id': box.session, 'spec': spec}
        await box.call(Action.START_MANAGED_PROCESS, data)
    head = 'BoxValidationError: 1 validation error for BoxManagedProcessSpec'
    assert str(error.value).startswith(f'{head}\n{field}\n  {text} [type=')


@pytest.mark.parametrize(
    ('action', 'data', 'key'),
    [
        (Action.START_MANAGED_PROCESS, {}, 'session_id'),
        (Action.START_MANAGED_PROCESS, {'session_id': 'x'}, 'spec'),
        (Action.GET_MANAGED_PROCESS, {}, 'session_id'),
        (Action.STOP_MANAGED_PROCESS, {}, 'session_id'),
    ],
)
async def test_a_missing_key_is_named(box: Box, action: Action, data: dict, key: str):
    with pytest.raises(BoxError) as error:
        await box.call(action, data)
    assert (type(error.value), str(error.value)) == (BoxError, f"KeyError: '{key}'")
