"""The storage report of a workspace, and the shared volume probe."""

from __future__ import annotations

import hashlib
import os

import pytest
from langbot_plugin.box.errors import BoxReadinessError
from langbot_plugin.box.security import BOX_SHARED_WORKSPACE_PROBE_PREFIX
from langbot_plugin.box.tenancy import box_namespace

from support.runtime import Runtime
from support.workspace import Workspace

ENTRY_KEYS = {
    'key',
    'path',
    'kind',
    'exists',
    'size_bytes',
    'file_count',
    'error_count',
    'scope',
}


async def analysis(workspace: Workspace) -> dict:
    return await workspace.client.get_storage_analysis(workspace.context)


def by_key(report: dict) -> dict[str, dict]:
    return {entry['key']: entry for entry in report['directories']}


async def test_an_empty_workspace(workspace: Workspace):
    report = await analysis(workspace)
    assert set(report) == {
        'size_bytes',
        'directories',
        'active_sessions',
        'managed_processes',
    }
    assert (report['size_bytes'], report['active_sessions']) == (0, 0)
    entries = by_key(report)
    assert list(entries) == ['workspace', 'mcp', 'inbox', 'outbox']
    assert set(entries['workspace']) == ENTRY_KEYS
    for key in ('mcp', 'inbox', 'outbox'):
        assert set(entries[key]) == ENTRY_KEYS | {'parent_key'}
        assert (entries[key]['kind'], entries[key]['parent_key']) == ('detail', 'workspace')
    assert not any(entry['exists'] for entry in entries.values())


async def test_files_on_the_host_are_counted(workspace: Workspace, runtime: Runtime):
    directory = runtime.host_root / 'default' / 'tenants' / box_namespace(workspace.context)
    (directory / 'inbox').mkdir(parents=True)
    (directory / 'file').write_bytes(b'x' * 1000)
    (directory / 'inbox' / 'mail').write_bytes(b'x' * 10)
    (directory / 'link').symlink_to('/usr')
    entries = by_key(report := await analysis(workspace))
    assert entries['workspace']['path'] == str(directory)
    assert (entries['workspace']['size_bytes'], entries['workspace']['file_count']) == (1014, 3)
    assert (entries['inbox']['size_bytes'], entries['inbox']['file_count']) == (10, 1)
    assert report['size_bytes'] == 1014


async def test_files_in_boxes_are_counted(workspace: Workspace):
    await workspace.run('head -c 20000 /dev/zero > /tmp/f; echo > /workspace/g')
    await workspace.start('cat')
    report = await analysis(workspace)
    assert (report['active_sessions'], report['managed_processes']) == (1, 1)
    entries = by_key(report)
    temp = entries['session_temp']
    assert set(temp) == ENTRY_KEYS
    assert temp['path'] == '/tmp (1 sandbox sessions)'
    assert (temp['scope'], temp['exists'], temp['error_count']) == ('sandbox_sessions', True, 0)
    assert temp['size_bytes'] >= 20000 and temp['file_count'] == 1
    assert entries['session_workspaces']['file_count'] == 1
    managed = entries['managed_process_workspaces']
    assert managed['parent_key'] == 'session_workspaces'
    assert managed['path'] == '/workspace (1 managed-process sessions)'


async def test_files_of_other_workspaces_are_not_counted(workspace: Workspace, runtime: Runtime):
    other = Workspace(runtime)
    await other.run('head -c 20000 /dev/zero > /tmp/f')
    report = await analysis(workspace)
    assert report['active_sessions'] == 0
    assert 'session_temp' not in by_key(report)
    await other.clean_up()


@pytest.fixture
def marker(runtime: Runtime):
    name = BOX_SHARED_WORKSPACE_PROBE_PREFIX + os.urandom(16).hex()
    path = runtime.host_root / 'default' / name
    yield path
    path.unlink(missing_ok=True)


async def test_a_shared_volume_is_verified(runtime: Runtime, marker):
    marker.write_bytes(b'challenge')
    assert await runtime.link.client.verify_shared_workspace(marker.name) == {
        'marker_name': marker.name,
        'sha256': hashlib.sha256(b'challenge').hexdigest(),
        'size': 9,
    }


async def test_a_missing_probe_file_is_rejected(runtime: Runtime, marker):
    with pytest.raises(BoxReadinessError, match='cannot read the Core shared Workspace probe'):
        await runtime.link.client.verify_shared_workspace(marker.name)


async def test_a_symlink_as_probe_file_is_rejected(runtime: Runtime, marker):
    marker.symlink_to('/etc/hostname')
    with pytest.raises(BoxReadinessError, match='cannot read'):
        await runtime.link.client.verify_shared_workspace(marker.name)


async def test_a_large_probe_file_is_rejected(runtime: Runtime, marker):
    marker.write_bytes(b'x' * 1025)
    with pytest.raises(BoxReadinessError, match='invalid size'):
        await runtime.link.client.verify_shared_workspace(marker.name)


@pytest.mark.parametrize('name', ['', 'file', '../file', '/etc/passwd', '.langbot-box-volume-probe-x'])
async def test_invalid_probe_names_are_rejected(runtime: Runtime, name: str):
    with pytest.raises(BoxReadinessError, match='Invalid Box shared Workspace probe basename'):
        await runtime.link.client.verify_shared_workspace(name)
