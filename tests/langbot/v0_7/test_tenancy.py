"""Workspaces: isolation of their sessions, and the required context of requests."""

from __future__ import annotations

import asyncio
import json

import pytest
from langbot_plugin.box.actions import LangBotToBoxAction as Action
from langbot_plugin.box.errors import BoxError, BoxSessionNotFoundError
from langbot_plugin.entities.io.context import ActionContext

from support.runtime import Runtime
from support.workspace import Workspace

TENANT_ACTIONS = [
    Action.STATUS,
    Action.EXEC,
    Action.CREATE_SESSION,
    Action.GET_SESSION,
    Action.GET_SESSIONS,
    Action.DELETE_SESSION,
    Action.START_MANAGED_PROCESS,
    Action.GET_MANAGED_PROCESS,
    Action.STOP_MANAGED_PROCESS,
    Action.GET_STORAGE_ANALYSIS,
]

CONTROL_ACTIONS = [Action.HEALTH, Action.GET_BACKEND_INFO, Action.INIT, Action.SHUTDOWN]


@pytest.fixture
async def other(runtime: Runtime):
    other = Workspace(runtime)
    yield other
    await other.clean_up()


async def test_two_workspaces_do_not_see_each_other(workspace: Workspace, other: Workspace):
    other.session = workspace.session
    await workspace.run('echo mine > /tmp/f')
    await workspace.start('cat')
    assert await other.sessions() == []
    assert (await other.status())['active_sessions'] == 0
    with pytest.raises(BoxSessionNotFoundError):
        await other.client.get_session(workspace.session, other.context)
    with pytest.raises(BoxSessionNotFoundError):
        await other.client.delete_session(workspace.session, other.context)
    with pytest.raises(BoxSessionNotFoundError):
        await other.start('cat', process_id='intruder')
    with pytest.raises(BoxSessionNotFoundError):
        await other.process()
    with pytest.raises(BoxSessionNotFoundError):
        await other.client.stop_managed_process(other.session, 'default', other.context)
    assert (await other.run('cat /tmp/f; true')).stdout == ''
    assert (await workspace.run('cat /tmp/f')).stdout == 'mine'
    assert [s['session_id'] for s in await other.sessions()] == [workspace.session]


async def test_a_physical_id_does_not_address_a_session(workspace: Workspace, other: Workspace):
    await workspace.create()
    physical = workspace.physical()
    with pytest.raises(BoxSessionNotFoundError):
        await other.client.get_session(physical, other.context)
    await other.run('true', session_id=physical)
    assert len(await workspace.sessions()) == 1


async def test_ids_that_map_to_the_same_physical_id_are_the_same_session(workspace: Workspace):
    first = await workspace.create(session_id='person 1/2')
    assert first['session_id'] == 'person-1-2'
    again = await workspace.create(session_id='person-1-2')
    assert again['backend_session_id'] == first['backend_session_id']


@pytest.mark.parametrize('action', TENANT_ACTIONS)
async def test_an_action_without_a_workspace_is_rejected(runtime: Runtime, action: Action):
    with pytest.raises(BoxError) as error:
        await runtime.link.client._call(action, {})
    assert str(error.value) == (
        'PermissionError: Box tenant action requires a trusted Workspace context'
    )


@pytest.mark.parametrize('action', TENANT_ACTIONS + CONTROL_ACTIONS)
async def test_a_context_of_another_platform_is_refused(runtime: Runtime, action: Action):
    stranger = ActionContext(instance_uuid='platform-2', workspace_uuid='w')
    with pytest.raises(BoxError) as error:
        await runtime.link.client._call(action, {}, action_context=stranger)
    assert str(error.value) == (
        'PermissionError: Box action context does not match the trusted instance'
    )


async def test_control_actions_accept_a_context_of_the_platform(workspace: Workspace):
    assert (await workspace.call(Action.HEALTH, {}))['available']


async def test_an_installation_in_the_context_is_ignored(workspace: Workspace):
    await workspace.create()
    context = workspace.context.for_installation('plugin-1')
    sessions = await workspace.client.get_sessions(context)
    assert [session['session_id'] for session in sessions] == [workspace.session]


@pytest.mark.parametrize(
    'context',
    [
        {'instance_uuid': 'platform-1'},
        {'instance_uuid': 'platform-1', 'workspace_uuid': ' '},
        {'instance_uuid': 'platform-1', 'workspace_uuid': 'w', 'placement_generation': 0},
        {'instance_uuid': 'platform-1', 'workspace_uuid': 'w', 'more': 1},
        {'instance_uuid': 'platform-1', 'workspace_uuid': ['w']},
        'platform-1',
        7,
        [],
    ],
)
async def test_invalid_contexts_are_rejected(runtime: Runtime, context):
    """Sent as raw messages, because the models of the client reject them."""
    handler = runtime.link.handler
    frame = {'seq_id': 424242, 'action': 'box_get_sessions', 'data': {}, 'context': context}
    response = await _send_raw(handler, frame)
    assert response.code == 1
    assert response.message.startswith('ValidationError: ')


async def _send_raw(handler, frame: dict):
    waiting = asyncio.get_running_loop().create_future()
    handler.resp_waiters[frame['seq_id']] = waiting
    try:
        await handler.conn.send(json.dumps(frame))
        return await asyncio.wait_for(waiting, 10)
    finally:
        handler.resp_waiters.pop(frame['seq_id'], None)
