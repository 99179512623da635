"""Sessions: create, get, list, conflicts, delete, mounts."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path
from typing import Any

import pytest
from langbot_plugin.box.errors import (
    BoxSessionConflictError,
    BoxSessionNotFoundError,
    BoxValidationError,
)
from langbot_plugin.box.models import DEFAULT_BOX_IMAGE, BoxSessionInfo

from support.box import Action, Box
from support.runtime import LANGBOT_BOX

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
}


async def test_create_session_returns_the_description(box: Box):
    session = await box.create()
    assert set(session) == SESSION_KEYS
    assert session['session_id'] == box.session
    assert session['backend_name'] == ('nsjail' if LANGBOT_BOX else 'native')
    assert isinstance(session['backend_session_id'], str) and session['backend_session_id']
    assert session['image'] == DEFAULT_BOX_IMAGE
    assert (session['network'], session['host_path'], session['host_path_mode']) == (
        'off',
        None,
        'rw',
    )
    assert session['mount_path'] == '/workspace'
    assert session['persistent'] is False and session['read_only_rootfs'] is True
    assert (session['cpus'], session['memory_mb'], session['pids_limit']) == (1.0, 512, 128)
    assert session['workspace_quota_mb'] == 0
    # The SDK's model accepts it.
    BoxSessionInfo.model_validate(session)


async def test_times_of_a_session_are_utc_with_microseconds(box: Box):
    before = dt.datetime.now(dt.timezone.utc)
    session = await box.create()
    after = dt.datetime.now(dt.timezone.utc)
    for key in ('created_at', 'last_used_at'):
        time = dt.datetime.strptime(session[key], '%Y-%m-%dT%H:%M:%S.%fZ')
        assert before <= time.replace(tzinfo=dt.timezone.utc) <= after


async def test_create_session_again_is_the_same_session(box: Box):
    first = await box.create()
    again = await box.create()
    for key in ('created_at', 'backend_session_id'):
        assert again[key] == first[key]
    assert again['last_used_at'] > first['last_used_at']


async def test_create_session_returns_the_requested_values(box: Box, tmp_path: Path):
    requested = {
        'host_path': str(tmp_path),
        'host_path_mode': 'ro',
        'mount_path': '/data',
        'persistent': True,
        'cpus': 0.5,
        'memory_mb': 256,
        'pids_limit': 64,
        'read_only_rootfs': False,
        'workspace_quota_mb': 100,
    }
    session = await box.create(**requested)
    assert {key: session[key] for key in requested} == requested


CONFLICTS = [
    ('network', 'on', 'off'),
    ('image', 'another/image:latest', DEFAULT_BOX_IMAGE),
    ('host_path', '/opt', 'None'),
    ('host_path_mode', 'ro', 'rw'),
    ('mount_path', '/elsewhere', '/workspace'),
    ('persistent', True, 'False'),
    ('cpus', 2.0, '1.0'),
    ('memory_mb', 256, '512'),
    ('pids_limit', 64, '128'),
    ('read_only_rootfs', False, 'True'),
    ('workspace_quota_mb', 7, '0'),
]


@pytest.mark.parametrize(('field', 'value', 'existing'), CONFLICTS)
async def test_a_session_with_another_value_is_a_conflict(
    box: Box, field: str, value: Any, existing: str
):
    await box.create()
    text = f'Box session {box.session} already exists with {field}={existing}'
    for action in (Action.CREATE_SESSION, Action.EXEC):
        spec = box.spec('true', **{field: value}).model_dump(mode='json')
        with pytest.raises(BoxSessionConflictError) as error:
            await box.call(action, spec)
        assert str(error.value) == f'BoxSessionConflictError: {text}'


async def test_the_first_field_that_differs_is_the_one_named(box: Box):
    await box.create()
    with pytest.raises(BoxSessionConflictError, match='with network=off$'):
        await box.create(memory_mb=64, network='on', pids_limit=1)


async def test_settings_of_one_command_are_no_conflict(box: Box):
    first = await box.create()
    again = await box.create(
        cmd='true', env={'A': 'b'}, workdir='/tmp', timeout_sec=5, extra_mounts=[]
    )
    assert again['backend_session_id'] == first['backend_session_id']


async def test_get_session_has_no_processes_until_there_is_one(box: Box):
    created = await box.create()
    session = await box.client.get_session(box.session)
    assert set(session) == SESSION_KEYS
    assert session['created_at'] == created['created_at']


async def test_get_session_shows_the_default_process_twice(box: Box):
    await box.create()
    started = await box.start('cat')
    session = await box.client.get_session(box.session)
    assert set(session) == SESSION_KEYS | {'managed_process', 'managed_processes'}
    assert session['managed_processes'] == {'default': session['managed_process']}
    assert session['managed_process'] == started.model_dump(mode='json')


async def test_get_session_shows_other_processes_by_their_id(box: Box):
    await box.create()
    await box.start('cat', process_id='mcp-1')
    await box.start('cat', process_id='mcp-2')
    session = await box.client.get_session(box.session)
    assert set(session['managed_processes']) == {'mcp-1', 'mcp-2'}
    assert 'managed_process' not in session


async def test_get_session_with_an_unknown_id_is_not_found(box: Box):
    with pytest.raises(BoxSessionNotFoundError) as error:
        await box.client.get_session('unknown')
    assert str(error.value) == 'BoxSessionNotFoundError: session unknown not found'


async def test_get_sessions_lists_all_without_processes(box: Box):
    assert await box.client.get_sessions() == []
    names = {f'{box.session}-{number}' for number in range(3)}
    for name in names:
        await box.create(session_id=name)
    sessions = await box.client.get_sessions()
    assert {session['session_id'] for session in sessions} == names
    assert all(set(session) == SESSION_KEYS for session in sessions)


async def test_delete_session_removes_it(box: Box):
    await box.create()
    assert await box.call(Action.DELETE_SESSION, {'session_id': box.session}) == {
        'deleted': box.session
    }
    with pytest.raises(BoxSessionNotFoundError):
        await box.client.get_session(box.session)
    assert await box.client.get_sessions() == []


async def test_delete_session_with_an_unknown_id_is_not_found(box: Box):
    with pytest.raises(BoxSessionNotFoundError) as error:
        await box.client.delete_session('unknown')
    assert str(error.value) == 'BoxSessionNotFoundError: session unknown not found'


async def test_delete_session_kills_its_processes(box: Box):
    await box.create()
    await box.shell('while true; do sleep 1; done')
    await box.client.delete_session(box.session)
    status = await box.client.get_status()
    assert (status['active_sessions'], status['managed_processes']) == (0, 0)
    box.runtime.assert_idle()


async def test_a_recreated_session_is_empty(box: Box):
    await box.run('echo old > /tmp/file')
    await box.client.delete_session(box.session)
    again = await box.run('cat /tmp/file')
    assert again.exit_code != 0 and 'old' not in again.stdout


NAMES = [
    'person_test_user',
    'group_room-1',
    'mcp-shared',
    'with space',
    '群组_一',
    'dots.and:colons@host',
    'x' * 200,
]


@pytest.mark.parametrize('name', NAMES)
async def test_a_session_id_may_be_any_text(box: Box, name: str):
    assert (await box.create(session_id=name))['session_id'] == name
    assert (await box.run('echo here', session_id=name)).session_id == name
    assert (await box.client.get_session(name))['session_id'] == name
    await box.client.delete_session(name)


@pytest.mark.better('a session id is never part of a path')
@pytest.mark.parametrize('name', ['../../escape', '/absolute', 'a/b', '..', 'x?y#z'])
async def test_a_session_id_that_looks_like_a_path_is_accepted(box: Box, name: str):
    assert (await box.create(session_id=name))['session_id'] == name
    assert (await box.run('pwd', session_id=name)).stdout == '/workspace'
    await box.client.delete_session(name)


async def test_a_session_id_is_trimmed(box: Box):
    spec = {'session_id': f'  {box.session}\n'}
    assert (await box.call(Action.CREATE_SESSION, spec))['session_id'] == box.session


async def test_a_host_directory_is_mounted_for_writing(box: Box, tmp_path: Path):
    host = tmp_path / 'host'
    host.mkdir()
    (host / 'from-host').write_text('seen')
    result = await box.run('cat from-host; echo made > from-box', host_path=str(host))
    assert (result.exit_code, result.stdout) == (0, 'seen')
    made = host / 'from-box'
    assert made.read_text() == 'made\n'
    assert made.stat().st_uid == os.getuid()


async def test_a_host_directory_is_mounted_for_reading_only(box: Box, tmp_path: Path):
    (tmp_path / 'from-host').write_text('seen')
    mount = {'host_path': str(tmp_path), 'host_path_mode': 'ro'}
    result = await box.run('cat from-host; echo no > from-box', **mount)
    assert result.stdout == 'seen' and result.exit_code != 0
    assert not (tmp_path / 'from-box').exists()


async def test_a_host_directory_with_mode_none_is_not_mounted(box: Box, tmp_path: Path):
    (tmp_path / 'from-host').write_text('seen')
    mount = {'host_path': str(tmp_path), 'host_path_mode': 'none'}
    result = await box.run(f'ls -A /workspace {tmp_path} 2>/dev/null; true', **mount)
    assert 'from-host' not in result.stdout


async def test_a_host_directory_is_mounted_at_the_requested_path(box: Box, tmp_path: Path):
    (tmp_path / 'from-host').write_text('seen')
    mount = {'host_path': str(tmp_path), 'mount_path': '/srv/data'}
    # The default working directory is the mount.
    spec = {'session_id': box.session, 'cmd': 'pwd; cat from-host'} | mount
    assert (await box.call(Action.EXEC, spec))['stdout'] == '/srv/data\nseen'


async def test_a_missing_host_directory_is_created(box: Box, tmp_path: Path):
    host = tmp_path / 'not' / 'yet'
    result = await box.run('echo made > file', host_path=str(host))
    assert result.exit_code == 0
    assert (host / 'file').read_text() == 'made\n'


BLOCKED = [
    '/etc',
    '/etc/ssl',
    '/proc/1',
    '/sys',
    '/dev',
    '/root/x',
    '/boot',
    '/run',
    '/var/run/docker.sock',
]


@pytest.mark.parametrize('path', BLOCKED)
async def test_a_blocked_host_path_is_refused(box: Box, path: str):
    with pytest.raises(BoxValidationError) as error:
        await box.create(host_path=path)
    assert str(error.value) == f'BoxValidationError: host_path {path} is blocked for security'
    assert await box.client.get_sessions() == []


@pytest.mark.better('a directory that contains a blocked one is blocked too')
@pytest.mark.parametrize('path', ['/', '/var'])
async def test_a_parent_of_a_blocked_directory_is_refused(box: Box, path: str):
    with pytest.raises(BoxValidationError, match=f'host_path {path} is blocked for security'):
        await box.create(host_path=path)


async def test_a_link_to_a_blocked_path_is_refused(box: Box, tmp_path: Path):
    link = tmp_path / 'innocent'
    link.symlink_to('/etc')
    with pytest.raises(BoxValidationError, match='is blocked for security'):
        await box.create(host_path=str(link))


async def test_extra_mounts_appear_beside_the_workspace(box: Box, tmp_path: Path):
    writable, readable, ignored = (tmp_path / name for name in ('rw', 'ro', 'none'))
    for directory in (writable, readable, ignored):
        directory.mkdir()
        (directory / 'file').write_text(directory.name)
    mounts = [
        {'host_path': str(writable), 'mount_path': '/workspace/.skills/one'},
        {'host_path': str(readable), 'mount_path': '/workspace/.skills/two', 'mode': 'ro'},
        {'host_path': str(ignored), 'mount_path': '/workspace/.skills/three', 'mode': 'none'},
    ]
    result = await box.run(
        'cd .skills; cat one/file two/file; echo new > one/new; echo new > two/new; cat three/file',
        extra_mounts=mounts,
    )
    assert result.stdout == 'rwro' and result.exit_code != 0
    assert (writable / 'new').read_text() == 'new\n'
    assert not (readable / 'new').exists()


async def test_later_extra_mounts_are_added_to_the_running_session(
    box: Box, tmp_path: Path
):
    (tmp_path / 'file').write_text('late')
    await box.run('echo first > /tmp/first')
    mount = {'host_path': str(tmp_path), 'mount_path': '/workspace/.skills/late'}
    result = await box.run(
        'cat /workspace/.skills/late/file; cat /tmp/first', extra_mounts=[mount]
    )
    assert result.stdout == 'latefirst'
    # Omitting it again is not a conflict.
    assert (await box.run('cat /tmp/first')).stdout == 'first'


@pytest.mark.better('extra mounts are checked like the workspace')
@pytest.mark.parametrize('path', ['/etc', '/', '/root'])
async def test_a_blocked_extra_mount_is_refused(box: Box, path: str):
    mounts = [{'host_path': path, 'mount_path': '/workspace/x', 'mode': 'ro'}]
    with pytest.raises(BoxValidationError, match='is blocked for security'):
        await box.create(extra_mounts=mounts)
    assert await box.client.get_sessions() == []
