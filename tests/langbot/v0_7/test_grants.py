"""Managed sandboxes: a box requires an admission grant, which limits it."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import pytest
from langbot_plugin.box.actions import LangBotToBoxAction as Action
from langbot_plugin.box.errors import (
    BoxAdmissionError,
    BoxError,
    BoxReadinessError,
    BoxRuntimeUnavailableError,
    BoxValidationError,
)
from langbot_plugin.box.models import SandboxAdmissionGrant, SandboxAdmissionRevocation
from langbot_plugin.box.tenancy import box_namespace
from websockets.exceptions import InvalidStatus

from support.runtime import Runtime
from support.workspace import Workspace, eventually

pytestmark = pytest.mark.better('the native backend satisfies the policy')

SOFT = {'LANGBOT_BOX_ALLOW_UNSAFE_SOFT_STORAGE_LIMITS': '1'}
POLICY = {'required': True, 'memory_mb': 128, 'pids_limit': 64, 'max_timeout_sec': 5}


@pytest.fixture(scope='module', params=['ws', 'stdio'])
async def runtime(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Runtime]:
    """A daemon whose policy requires grants."""
    runtime = Runtime(request.param, tmp_path_factory.mktemp(request.param))
    await runtime.start(env=SOFT)
    await runtime.link.client.init(runtime.config(admission=POLICY))
    try:
        yield runtime
        await runtime.link.client._call(Action.SHUTDOWN, {})
        runtime.assert_idle()
    finally:
        await runtime.stop()


@pytest.fixture
async def workspace(runtime: Runtime) -> AsyncIterator[Workspace]:
    workspace = Workspace(runtime)
    workspace.session = 'global'
    yield workspace


def grant_for(workspace: Workspace, revision: int = 1, seconds: float = 60, **fields: Any):
    return SandboxAdmissionGrant(
        **{
            'instance_uuid': workspace.context.instance_uuid,
            'workspace_uuid': workspace.name,
            'execution_generation': workspace.generation,
            'entitlement_revision': revision,
            'expires_at': dt.datetime.now(dt.UTC) + dt.timedelta(seconds=seconds),
            'max_sessions': 1,
            'max_managed_processes': 0,
        }
        | fields
    )


async def install(workspace: Workspace, **fields: Any) -> dict:
    return await workspace.client.upsert_sandbox_admission_grant(
        grant_for(workspace, **fields)
    )


async def revoke(workspace: Workspace, revision: int) -> dict:
    return await workspace.client.revoke_sandbox_admission_grant(
        SandboxAdmissionRevocation(
            instance_uuid=workspace.context.instance_uuid,
            workspace_uuid=workspace.name,
            entitlement_revision=revision,
        )
    )


def refused(text: str):
    return pytest.raises(BoxAdmissionError, match=f'^BoxAdmissionError: {text}')


async def test_the_response_to_a_grant_lists_its_limits(workspace: Workspace):
    grant = grant_for(workspace, revision=4)
    answer = await workspace.client.upsert_sandbox_admission_grant(grant)
    assert answer == {
        'installed': True,
        'workspace_uuid': workspace.name,
        'execution_generation': 1,
        'entitlement_revision': 4,
        'max_sessions': 1,
        'max_managed_processes': 0,
        'expires_at': grant.expires_at.isoformat(),
    }


@pytest.mark.parametrize(
    'action',
    [
        Action.EXEC,
        Action.CREATE_SESSION,
        Action.GET_SESSION,
        Action.GET_SESSIONS,
        Action.DELETE_SESSION,
        Action.START_MANAGED_PROCESS,
        Action.GET_MANAGED_PROCESS,
        Action.STOP_MANAGED_PROCESS,
        Action.STATUS,
    ],
)
async def test_actions_without_a_grant_are_refused(workspace: Workspace, action: Action):
    with refused('Sandbox admission grant is missing'):
        await workspace.call(action, {'session_id': 'global', 'cmd': 'true'})


async def test_the_policy_determines_the_box(workspace: Workspace, runtime: Runtime):
    await install(workspace)
    session = await workspace.create(
        session_id='my own', memory_mb=4096, persistent=False, image='other'
    )
    directory = runtime.host_root / 'default' / 'tenants' / box_namespace(workspace.context)
    assert session['session_id'] == 'global'
    assert session['host_path'] == str(directory)
    assert (session['memory_mb'], session['pids_limit']) == (128, 64)
    assert session['persistent'] is True and session['network'] == 'off'
    await workspace.run('echo kept > file')
    assert (directory / 'file').read_text() == 'kept\n'
    status = await workspace.status()
    assert status['capacity'] == {'limit': 1, 'used': 1, 'remaining': 0}
    assert status['backend']['readiness']['mode'] == 'grant_enforced'


async def test_a_timeout_is_capped_by_the_policy(workspace: Workspace):
    await install(workspace)
    started = asyncio.get_running_loop().time()
    result = await workspace.run('sleep 60', timeout_sec=100)
    assert result.status.value == 'timed_out'
    assert asyncio.get_running_loop().time() - started < 20


@pytest.mark.parametrize(
    ('fields', 'text'),
    [
        ({'network': 'on'}, 'Managed sandbox network access is disabled'),
        (
            {'mount_path': '/w', 'workdir': '/w'},
            'Managed sandbox mount_path is runtime-owned',
        ),
        ({'workdir': '/tmp'}, 'Managed sandbox workdir must stay under /workspace'),
        ({'host_path': '/tmp'}, 'Managed sandbox host_path is runtime-owned'),
        (
            {'extra_mounts': [{'host_path': '/tmp', 'mount_path': '/workspace/t'}]},
            'Managed sandbox additional mounts must be read-only',
        ),
        (
            {
                'extra_mounts': [
                    {'host_path': '/usr', 'mount_path': '/workspace/t', 'mode': 'ro'}
                ]
            },
            'Managed sandbox read-only mount source is outside allowed_mount_roots',
        ),
        (
            {'extra_mounts': [{'host_path': '/tmp', 'mount_path': '/opt/t', 'mode': 'ro'}]},
            'Managed sandbox additional mount targets must stay under /workspace',
        ),
    ],
)
async def test_runtime_owned_fields_are_rejected(workspace: Workspace, fields: dict, text: str):
    await install(workspace)
    with refused(text):
        await workspace.run('true', **fields)


async def test_other_session_ids_are_refused(workspace: Workspace):
    await install(workspace)
    with refused('Managed sandbox session_id is runtime-owned'):
        await workspace.client.get_session('other', workspace.context)


async def test_managed_processes_are_refused(workspace: Workspace):
    await install(workspace)
    await workspace.create()
    with refused('Sandbox admission grant does not permit managed processes'):
        await workspace.start('cat')
    with pytest.raises(InvalidStatus) as error:
        await workspace.attach()
    assert error.value.response.status_code == 400
    body = json.loads(error.value.response.body)
    assert body['error']['code'] == 'BoxAdmissionError'


@pytest.mark.parametrize(
    ('fields', 'text'),
    [
        ({'seconds': -1}, 'Cannot install an expired sandbox admission grant'),
        ({'seconds': 3600}, 'Sandbox admission grant lifetime exceeds'),
        ({'max_sessions': 2}, 'Sandbox admission grant exceeds the session cap'),
        ({'max_managed_processes': 1}, 'Sandbox admission grant exceeds the managed-process cap'),
    ],
)
async def test_grants_beyond_the_policy_are_refused(workspace: Workspace, fields: dict, text: str):
    with refused(text):
        await install(workspace, **fields)


async def test_invalid_grants_are_rejected(workspace: Workspace):
    data = grant_for(workspace).model_dump(mode='json') | {'max_sessions': True}
    with pytest.raises(BoxValidationError, match='1 validation error for SandboxAdmissionGrant'):
        await workspace.client._call(Action.UPSERT_SANDBOX_ADMISSION_GRANT, data)
    with pytest.raises(BoxValidationError, match='SandboxAdmissionRevocation'):
        await workspace.client._call(Action.REVOKE_SANDBOX_ADMISSION_GRANT, {})


async def test_grants_of_another_platform_are_refused(workspace: Workspace):
    with pytest.raises(BoxError, match='^PermissionError: Sandbox admission grant does not match'):
        await install(workspace, instance_uuid='platform-2')


async def test_older_grants_are_rejected(workspace: Workspace):
    await install(workspace, revision=5)
    with refused('Sandbox admission grant revision is stale'):
        await install(workspace, revision=4)
    with refused('Sandbox admission limits changed without a new entitlement revision'):
        await install(workspace, revision=5, max_sessions=0)
    await workspace.moved(2).client.upsert_sandbox_admission_grant(
        grant_for(workspace.moved(2), revision=5)
    )
    with refused('Sandbox admission execution generation is stale'):
        await install(workspace, revision=5)


async def test_a_renewal_keeps_the_box(workspace: Workspace):
    await install(workspace, seconds=60)
    await workspace.run('echo kept > /tmp/f')
    longer = await install(workspace, seconds=200)
    shorter = await install(workspace, seconds=100)
    assert shorter == longer
    assert (await workspace.run('cat /tmp/f')).stdout == 'kept'


async def test_a_new_generation_removes_the_box(workspace: Workspace, runtime: Runtime):
    await install(workspace)
    await workspace.run('echo mine > /tmp/f; echo kept > /workspace/g')
    newer = workspace.moved(2)
    await install(newer)
    with refused('Sandbox admission grant belongs to another execution generation'):
        await workspace.run('true')
    result = await newer.run('cat /tmp/f; cat /workspace/g')
    assert result.stdout == 'kept'


async def test_a_revocation_removes_the_box(workspace: Workspace):
    await install(workspace, revision=3)
    await workspace.create()
    running = asyncio.create_task(workspace.run('sleep 60'))
    await eventually(workspace.sessions, lambda found: found[0]['status'] == 'running')
    with refused('Sandbox admission revocation is stale'):
        await revoke(workspace, 2)
    assert await revoke(workspace, 3) == {
        'revoked': True,
        'workspace_uuid': workspace.name,
        'entitlement_revision': 3,
    }
    outcome = (await asyncio.gather(running, return_exceptions=True))[0]
    assert isinstance(outcome, BoxError) or outcome.exit_code != 0
    with refused('Sandbox admission grant is missing'):
        await workspace.sessions()
    with refused('Sandbox admission grant revision was revoked'):
        await install(workspace, revision=3)
    await install(workspace, revision=4)
    assert await workspace.sessions() == []


async def test_the_expiry_of_a_grant_removes_the_box(workspace: Workspace, runtime: Runtime):
    await install(workspace, seconds=6)
    await workspace.run('true')

    async def refusal() -> str:
        try:
            await workspace.sessions()
        except BoxAdmissionError as error:
            return str(error)
        return ''

    # The record of an expired grant is removed after a moment.
    text = await eventually(refusal, bool, within=30)
    assert 'has expired' in text or 'is missing' in text

    async def boxes() -> int:
        with urllib.request.urlopen(f'{runtime.url}/v1/sessions', timeout=10) as answer:
            ids = [session['session_id'] for session in json.load(answer)]
        return ids.count(workspace.physical())

    await eventually(boxes, lambda number: number == 0, within=20)


async def test_health_returns_the_readiness_report(workspace: Workspace):
    report = await workspace.client._call(Action.HEALTH, {})
    assert report['ready'] is True and report['mode'] == 'grant_enforced'
    assert report['unsafe_soft_storage_limits'] is True
    assert set(report['checks']) == {
        'configuration',
        'required_backend',
        'workspace_mount',
        'backend_available',
        'cgroup_v2',
        'namespace_isolation',
        'mount_isolation',
        'network_isolation',
        'hard_workspace_quota',
        'hard_read_only_mount_quota',
        'bounded_ephemeral_storage',
        'inode_quota',
        'session_cap',
        'managed_process_cap',
    }
    info = await workspace.client.get_backend_info()
    assert info['available'] is True and info['readiness'] == report


async def test_enforcement_cannot_be_disabled(tmp_path):
    runtime = await Runtime('ws', tmp_path).start(env=SOFT)
    try:
        client = runtime.link.client
        await client.init(runtime.config(admission=POLICY))
        await client.init(runtime.config(admission={'required': False}))
        workspace = Workspace(runtime)
        with pytest.raises(BoxReadinessError, match='configuration'):
            await workspace.run('true')
    finally:
        await runtime.stop()


@pytest.mark.parametrize('policy', [{'require': True}, 'off', {'required': True, 'cpus': 0}])
async def test_an_invalid_policy_admits_nothing(tmp_path, policy):
    runtime = await Runtime('ws', tmp_path).start(env=SOFT)
    try:
        await runtime.link.client.init(runtime.config(admission=policy))
        workspace = Workspace(runtime)
        with pytest.raises(BoxReadinessError, match='failed checks: configuration'):
            await workspace.run('true')
        with pytest.raises(BoxReadinessError, match='Invalid sandbox admission configuration'):
            await install(workspace)
    finally:
        await runtime.stop()


async def test_without_hard_storage_limits_the_daemon_is_not_ready(tmp_path):
    runtime = await Runtime('ws', tmp_path).start()
    try:
        client = runtime.link.client
        await client.init(runtime.config(admission=POLICY))
        with pytest.raises(BoxRuntimeUnavailableError, match='isolation is not ready'):
            await client.initialize()
        workspace = Workspace(runtime)
        await install(workspace)
        with pytest.raises(BoxReadinessError, match='hard_workspace_quota'):
            await workspace.run('true')
        with pytest.raises(urllib.error.HTTPError) as error:
            urllib.request.urlopen(f'{runtime.url}/readyz', timeout=10)
        body = json.load(error.value)
        assert error.value.code == 503
        assert body['ready'] is False and body['checks']['hard_workspace_quota'] is False
    finally:
        await runtime.stop()


async def test_grants_are_rejected_without_enforcement(tmp_path):
    runtime = await Runtime('ws', tmp_path).start()
    try:
        workspace = Workspace(runtime)
        with refused('Sandbox admission enforcement is not enabled'):
            await install(workspace)
        with refused('Sandbox admission enforcement is not enabled'):
            await revoke(workspace, 1)
    finally:
        await runtime.stop()
