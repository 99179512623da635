"""Results and errors of every action of SDK 0.7."""

from __future__ import annotations

import asyncio
import datetime as dt

import pytest
from langbot_plugin.box.actions import LangBotToBoxAction as Action
from langbot_plugin.box.errors import (
    BoxError,
    BoxManagedProcessNotFoundError,
    BoxSessionConflictError,
    BoxSessionNotFoundError,
    BoxValidationError,
)
from langbot_plugin.box.models import BoxExecutionStatus, BoxManagedProcessStatus
from langbot_plugin.entities.io.actions.enums import CommonAction
from langbot_plugin.entities.io.errors import ActionCallError

from support.runtime import BACKEND, Runtime
from support.workspace import Workspace, eventually

SESSION_KEYS = {
    'session_id',
    'backend_name',
    'backend_session_id',
    'image',
    'network',
    'host_path',
    'host_path_mode',
    'mount_path',
    'persistent',
    'cpus',
    'memory_mb',
    'pids_limit',
    'read_only_rootfs',
    'workspace_quota_mb',
    'created_at',
    'last_used_at',
    'status',
}

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


async def test_ping(runtime: Runtime):
    assert await runtime.link.handler.call_action(CommonAction.PING, {}) == {}


async def test_health(runtime: Runtime):
    await runtime.link.client.initialize()
    health = await runtime.link.client._call(Action.HEALTH, {})
    assert health == {'name': BACKEND, 'available': True}


async def test_backend_info(runtime: Runtime):
    info = await runtime.link.client.get_backend_info()
    assert info == {'name': BACKEND, 'available': True}


async def test_init_creates_the_default_workspace(runtime: Runtime):
    answer = await runtime.link.client._call(Action.INIT, runtime.config())
    assert answer == {'initialized': True}
    assert (runtime.host_root / 'default').is_dir()


async def test_init_refuses_a_workspace_outside_its_roots(runtime: Runtime, tmp_path):
    config = runtime.config()
    config['local'] |= {
        'default_workspace': str(tmp_path / 'elsewhere'),
        'allowed_mount_roots': [str(runtime.host_root)],
    }
    with pytest.raises(BoxValidationError, match='is outside allowed_mount_roots'):
        await runtime.link.client.init(config)
    assert not (tmp_path / 'elsewhere').exists()
    await runtime.link.client.init(runtime.config())


async def test_init_refuses_the_host_backend(runtime: Runtime):
    with pytest.raises(BoxValidationError, match='host backend'):
        await runtime.link.client.init({'backend': 'host'})
    assert (await runtime.link.client.get_backend_info())['available']


@pytest.mark.parametrize(
    ('limits', 'text'),
    [
        ([1], 'box.limits must be an object'),
        ({'max_sessions': '8'}, 'box.limits.max_sessions must be an integer'),
        ({'max_sessions': -1}, 'box.limits.max_sessions must be between 0 and 5000'),
    ],
)
async def test_init_rejects_invalid_limits(runtime: Runtime, limits, text):
    with pytest.raises(BoxError, match=f'ValueError: {text}'):
        await runtime.link.client.init({'limits': limits})


@pytest.mark.better('the count of processes is the true one')
async def test_status(workspace: Workspace):
    assert await workspace.status() == {
        'backend': {'name': BACKEND, 'available': True},
        'active_sessions': 0,
        'managed_processes': 0,
        'session_ttl_sec': 300,
        'limits': {
            'max_sessions': 64,
            'max_managed_processes': 64,
            'max_completed_processes': 256,
            'max_admission_records': 100000,
            'max_rpc_file_bytes': 20971520,
        },
        'capacity': {'limit': 64, 'used': 0, 'remaining': 64},
    }
    await workspace.create()
    await workspace.start('cat')
    status = await workspace.status()
    assert (status['active_sessions'], status['managed_processes']) == (1, 1)
    assert status['capacity'] == {'limit': 64, 'used': 1, 'remaining': 63}


async def test_exec(workspace: Workspace):
    result = await workspace.run('echo out; echo err >&2; exit 3')
    assert result.session_id == workspace.session
    assert result.backend_name == BACKEND
    assert result.status == BoxExecutionStatus.COMPLETED
    assert (result.exit_code, result.stdout, result.stderr) == (3, 'out', 'err')
    assert result.duration_ms >= 0


async def test_exec_keeps_written_files(workspace: Workspace):
    await workspace.run('echo kept > /tmp/f')
    assert (await workspace.run('cat /tmp/f')).stdout == 'kept'


@pytest.mark.better('a timeout leaves the session')
async def test_a_timeout_of_exec_keeps_the_session(workspace: Workspace):
    await workspace.run('echo kept > /tmp/f')
    result = await workspace.run('sleep 30', timeout_sec=1)
    assert result.status == BoxExecutionStatus.TIMED_OUT
    assert result.exit_code is None
    assert result.stderr == 'Command timed out after 1 seconds.'
    assert (await workspace.run('cat /tmp/f')).stdout == 'kept'


async def test_exec_without_a_command(workspace: Workspace):
    with pytest.raises(BoxValidationError, match='^BoxValidationError: cmd must not be empty$'):
        await workspace.run('  ')
    assert await workspace.sessions() == []


async def test_exec_with_an_unknown_field(workspace: Workspace):
    data = workspace.spec('true').model_dump(mode='json') | {'surprise': 1}
    with pytest.raises(BoxValidationError, match='Extra inputs are not permitted'):
        await workspace.call(Action.EXEC, data)


@pytest.mark.better('a command may be long')
async def test_exec_of_a_command_that_is_sent_in_fragments(workspace: Workspace):
    text = 'x' * 200_000
    result = await workspace.run(f"printf %s '{text}' | wc -c")
    assert result.stdout == '200000'


async def test_create_session(workspace: Workspace):
    session = await workspace.create(memory_mb=128)
    assert set(session) == SESSION_KEYS
    assert session['session_id'] == workspace.session
    assert session['backend_name'] == BACKEND
    assert (session['memory_mb'], session['status']) == (128, 'idle')
    assert session['created_at'].endswith('Z')
    dt.datetime.fromisoformat(session['created_at'])
    again = await workspace.create(memory_mb=128)
    assert again['backend_session_id'] == session['backend_session_id']


async def test_create_session_with_other_settings(workspace: Workspace):
    await workspace.create()
    with pytest.raises(BoxSessionConflictError) as error:
        await workspace.create(pids_limit=64)
    assert str(error.value) == (
        f'BoxSessionConflictError: Box session {workspace.physical()} '
        'already exists with pids_limit=128'
    )


@pytest.mark.parametrize('session', ['---', '工作'])
async def test_create_session_with_an_invalid_id(workspace: Workspace, session: str):
    with pytest.raises(BoxValidationError, match='must contain a valid character'):
        await workspace.create(session_id=session)


async def test_get_session(workspace: Workspace):
    await workspace.create()
    session = await workspace.client.get_session(workspace.session, workspace.context)
    assert set(session) == SESSION_KEYS
    await workspace.start('cat', process_id='one')
    await workspace.start('cat')
    session = await workspace.client.get_session(workspace.session, workspace.context)
    assert set(session) == SESSION_KEYS | {'managed_processes', 'managed_process'}
    assert set(session['managed_processes']) == {'one', 'default'}
    for process in session['managed_processes'].values():
        assert set(process) == PROCESS_KEYS
        assert process['session_id'] == workspace.session


async def test_get_session_reports_a_running_command(workspace: Workspace):
    await workspace.create()
    running = asyncio.create_task(workspace.run('sleep 2'))

    async def status() -> str:
        session = await workspace.client.get_session(workspace.session, workspace.context)
        return session['status']

    await eventually(status, lambda status: status == 'running')
    assert (await workspace.sessions())[0]['status'] == 'running'
    await running
    assert await status() == 'idle'


async def test_get_session_unknown(workspace: Workspace):
    with pytest.raises(BoxSessionNotFoundError) as error:
        await workspace.client.get_session('nope', workspace.context)
    physical = workspace.physical('nope')
    assert str(error.value) == f'BoxSessionNotFoundError: session {physical} not found'


async def test_get_session_without_an_id(workspace: Workspace):
    with pytest.raises(BoxError, match="^KeyError: 'session_id'$"):
        await workspace.call(Action.GET_SESSION, {})
    with pytest.raises(BoxError, match='^ValueError: Box session_id must not be empty$'):
        await workspace.call(Action.GET_SESSION, {'session_id': ''})


async def test_get_sessions(workspace: Workspace):
    assert await workspace.sessions() == []
    for name in ('b', 'a'):
        await workspace.create(session_id=name)
    sessions = await workspace.sessions()
    assert sorted(session['session_id'] for session in sessions) == ['a', 'b']
    assert all(set(session) == SESSION_KEYS for session in sessions)


async def test_delete_session(workspace: Workspace):
    await workspace.create()
    answer = await workspace.call(Action.DELETE_SESSION, {'session_id': workspace.session})
    assert answer == {'deleted': workspace.session}
    with pytest.raises(BoxSessionNotFoundError):
        await workspace.client.delete_session(workspace.session, workspace.context)


async def test_start_managed_process(workspace: Workspace):
    await workspace.create()
    data = {
        'session_id': workspace.session,
        'spec': {'command': 'cat', 'env': {'B': '1', 'A': '2'}, 'memory_mb': 2048},
    }
    process = await workspace.call(Action.START_MANAGED_PROCESS, data)
    assert set(process) == PROCESS_KEYS
    assert process['session_id'] == workspace.session
    assert (process['process_id'], process['status']) == ('default', 'running')
    assert process['env_keys'] == ['A', 'B']
    assert process['cwd'] == '/workspace'


async def test_start_managed_process_with_an_invalid_spec(workspace: Workspace):
    await workspace.create()
    data = {'session_id': workspace.session, 'spec': {'command': 'cat', 'cwd': 'rel'}}
    with pytest.raises(BoxValidationError, match='cwd must be an absolute path'):
        await workspace.call(Action.START_MANAGED_PROCESS, data)
    with pytest.raises(BoxSessionNotFoundError):
        await workspace.moved(1).call(
            Action.START_MANAGED_PROCESS, {'session_id': 'nope', 'spec': {'command': 'cat'}}
        )


async def test_get_managed_process(workspace: Workspace):
    await workspace.create()
    await workspace.start('sh', '-c', 'echo oh no >&2; exit 7')
    process = await eventually(
        workspace.process, lambda info: info.status == BoxManagedProcessStatus.EXITED
    )
    assert (process.exit_code, process.stderr_preview) == (7, 'oh no')
    assert process.exited_at is not None and process.exited_at >= process.started_at
    with pytest.raises(BoxManagedProcessNotFoundError) as error:
        await workspace.process('ghost')
    assert str(error.value) == (
        f'BoxManagedProcessNotFoundError: session {workspace.physical()} '
        'has no managed process with process_id=ghost'
    )


async def test_stop_managed_process(workspace: Workspace):
    await workspace.create()
    await workspace.start('sleep', '600', process_id='p')
    data = {'session_id': workspace.session, 'process_id': 'p'}
    assert await workspace.call(Action.STOP_MANAGED_PROCESS, data) == {'stopped': 'p'}
    with pytest.raises(BoxManagedProcessNotFoundError):
        await workspace.client.stop_managed_process(
            workspace.session, 'p', workspace.context
        )


async def test_capacity_of_sessions(workspace: Workspace):
    client = workspace.client
    await client.init(workspace.runtime.config(limits={'max_sessions': 1}))
    try:
        await workspace.create()
        with pytest.raises(BoxError) as error:
            await workspace.create(session_id='another')
        assert type(error.value).__name__ == 'BoxCapacityExceededError'
        assert str(error.value).endswith('Box session capacity reached (1)')
        assert (await workspace.status())['capacity'] == {
            'limit': 1,
            'used': 1,
            'remaining': 0,
        }
        assert (await workspace.run('echo fine')).stdout == 'fine'
    finally:
        await client.init(workspace.runtime.config(limits={'max_sessions': 64}))


async def test_capacity_of_processes(workspace: Workspace):
    client = workspace.client
    await client.init(workspace.runtime.config(limits={'max_managed_processes': 1}))
    try:
        await workspace.create()
        await workspace.start('cat')
        with pytest.raises(BoxError, match='Box managed process capacity reached') as error:
            await workspace.start('cat', process_id='two')
        assert type(error.value).__name__ == 'BoxCapacityExceededError'
        await workspace.start('sleep', '60')
    finally:
        await client.init(workspace.runtime.config(limits={'max_managed_processes': 64}))


async def test_shutdown_drops_every_session(workspace: Workspace):
    await workspace.create(persistent=True)
    other = Workspace(workspace.runtime)
    await other.create()
    assert await workspace.client._call(Action.SHUTDOWN, {}) == {}
    assert await workspace.sessions() == []
    assert await other.sessions() == []
    assert (await workspace.run('echo back')).stdout == 'back'


async def test_unknown_actions(workspace: Workspace):
    class Old:
        value = 'box_list_skills'

    with pytest.raises(ActionCallError, match='^ValueError: Action box_list_skills not found$'):
        await workspace.runtime.link.handler.call_action(
            Old, {}, action_context=workspace.context
        )


async def test_many_requests_at_once(workspace: Workspace):
    await workspace.create()
    results = await asyncio.gather(*(workspace.run(f'echo {n}') for n in range(20)))
    assert [result.stdout for result in results] == [str(n) for n in range(20)]


@pytest.mark.better('cleaned up without a request')
async def test_exited_processes_are_removed_after_the_retention_time(workspace: Workspace):
    client = workspace.client
    await workspace.create()
    await workspace.start('true', process_id='over')
    await workspace.start('cat')
    await eventually(
        lambda: workspace.process('over'), lambda info: info.status == BoxManagedProcessStatus.EXITED
    )

    async def is_known() -> bool:
        try:
            await workspace.process('over')
        except BoxManagedProcessNotFoundError:
            return False
        return True

    limits = {'completed_process_retention_sec': 1}
    await client.init(workspace.runtime.config(limits=limits))
    try:
        await eventually(is_known, lambda known: not known)
        assert (await workspace.process()).status == BoxManagedProcessStatus.RUNNING
    finally:
        limits = {'completed_process_retention_sec': 300}
        await client.init(workspace.runtime.config(limits=limits))
