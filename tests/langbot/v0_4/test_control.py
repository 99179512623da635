"""Connection, configuration, health and shutdown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from langbot_plugin.box.errors import (
    BoxBackendUnavailableError,
    BoxError,
    BoxRuntimeUnavailableError,
    BoxSessionNotFoundError,
)
from langbot_plugin.entities.io.actions.enums import CommonAction

from support.box import Action, Box
from support.runtime import LANGBOT_BOX, Runtime

BACKEND = 'nsjail' if LANGBOT_BOX else 'native'


async def test_ping_returns_an_empty_object(box: Box):
    assert await box.handler.call_action(CommonAction.PING, {}) == {}


async def test_heartbeat_is_an_unknown_action(box: Box):
    with pytest.raises(Exception, match='ValueError: Action __heartbeat not found'):
        await box.handler.call_action(CommonAction.HEARTBEAT, {})


async def test_init_accepts_the_whole_box_section(box: Box):
    assert await box.call(Action.INIT, box.config) == {'initialized': True}


async def test_init_ignores_unknown_settings(box: Box):
    config = box.config | {'unknown': {'nested': ['value']}, 'enabled': 'perhaps'}
    assert await box.call(Action.INIT, config) == {'initialized': True}


async def test_init_merges_section_by_section(box: Box):
    await box.client.create_skill({'name': 'kept'})
    assert await box.call(Action.INIT, {'backend': 'local'}) == {'initialized': True}
    assert [skill['name'] for skill in await box.client.list_skills()] == ['kept']


async def test_init_moves_the_skill_store(box: Box, tmp_path: Path):
    elsewhere = tmp_path / 'elsewhere'
    await box.client.create_skill({'name': 'here'})
    await box.client.init({'local': {'host_root': str(elsewhere), 'skills_root': 'packages'}})
    assert await box.client.list_skills() == []
    made = await box.client.create_skill({'name': 'there'})
    assert made['package_root'] == str(elsewhere / 'packages' / 'there')


async def test_init_accepts_an_absolute_skills_root(box: Box, tmp_path: Path):
    root = tmp_path / 'absolute'
    await box.client.init({'local': {'host_root': str(tmp_path), 'skills_root': str(root)}})
    made = await box.client.create_skill({'name': 'there'})
    assert made['package_root'] == str(root / 'there')


async def test_init_resolves_a_relative_root_in_the_working_directory(box: Box):
    await box.client.init({'local': {'host_root': './data/box', 'skills_root': 'skills'}})
    made = await box.client.create_skill({'name': 'relative'})
    expected = box.runtime.directory / 'data' / 'box' / 'skills' / 'relative'
    assert made['package_root'] == str(expected)
    await box.client.delete_skill('relative')
    assert not expected.exists()


async def test_health_names_the_backend(box: Box):
    assert await box.call(Action.HEALTH, {}) == {'name': BACKEND, 'available': True}


async def test_initialize_succeeds_with_a_healthy_runtime(box: Box):
    assert await box.client.initialize() is None


async def test_get_backend_info_equals_health(box: Box):
    assert await box.client.get_backend_info() == await box.call(Action.HEALTH, {})


async def test_status_counts(box: Box):
    empty = {
        'backend': {'name': BACKEND, 'available': True},
        'active_sessions': 0,
        'managed_processes': 0,
        'session_ttl_sec': 300,
    }
    assert await box.client.get_status() == empty
    await box.create()
    assert await box.client.get_status() == empty | {'active_sessions': 1}
    await box.start('cat')
    await box.start('cat', process_id='second')
    full = empty | {'active_sessions': 1, 'managed_processes': 2}
    assert await box.client.get_status() == full
    await box.client.stop_managed_process(box.session, 'second')
    assert await box.client.get_status() == full | {'managed_processes': 1}


@pytest.mark.parametrize('backend', ['no-such-backend', 'e2b'])
async def test_an_unavailable_backend_has_no_name(box: Box, backend: str):
    await box.client.init({'backend': backend})
    assert await box.client.get_backend_info() == {'name': None, 'available': False}
    status = await box.client.get_status()
    assert status['backend'] == {'name': None, 'available': False}


async def test_exec_without_a_backend_is_backend_unavailable(box: Box):
    await box.client.init({'backend': 'no-such-backend'})
    with pytest.raises(BoxBackendUnavailableError, match='backend unavailable'):
        await box.run('true')
    with pytest.raises(BoxBackendUnavailableError, match='backend unavailable'):
        await box.create()
    assert await box.client.get_sessions() == []


async def test_a_later_init_selects_a_working_backend(box: Box):
    await box.client.init({'backend': 'no-such-backend'})
    await box.client.init({'backend': BACKEND})
    assert await box.client.get_backend_info() == {'name': BACKEND, 'available': True}
    assert (await box.run('echo back')).stdout == 'back'


async def test_init_keeps_the_backend_while_a_session_exists(box: Box):
    await box.create()
    await box.client.init({'backend': 'no-such-backend'})
    assert await box.client.get_backend_info() == {'name': BACKEND, 'available': True}
    assert (await box.run('echo alive')).stdout == 'alive'


async def test_shutdown_keeps_persistent_sessions_and_the_connection(box: Box):
    await box.create()
    await box.create(session_id='persistent', persistent=True)
    assert await box.call(Action.SHUTDOWN, {}) == {}
    assert [s['session_id'] for s in await box.client.get_sessions()] == ['persistent']
    with pytest.raises(BoxSessionNotFoundError):
        await box.client.get_session(box.session)
    assert (await box.run('echo again')).stdout == 'again'


async def test_shutdown_by_the_client_closes_its_connection(box: Box):
    async with await box.connect() as link:
        await box.create()
        await link.client.shutdown()
        assert await box.client.get_sessions() == []
        with pytest.raises(BoxRuntimeUnavailableError, match='box runtime not connected'):
            await link.client.get_status()


async def test_an_unknown_action_is_a_plain_box_error(box: Box):
    class Unknown:
        value = 'box_no_such_action'

    with pytest.raises(BoxError, match='ValueError: Action box_no_such_action not found') as error:
        await box.call(Unknown, {})
    assert type(error.value) is BoxError


@pytest.mark.parametrize('transport', ['ws', 'stdio'])
async def test_the_environment_applies_before_the_first_connection(
    transport: str, tmp_path: Path
):
    directory = tmp_path / 'daemon'
    directory.mkdir()
    packages = tmp_path / 'box' / 'packages'
    (packages / 'early').mkdir(parents=True)
    (packages / 'early' / 'SKILL.md').write_text('---\nname: early\n---\n\nBird.')
    config = {'local': {'host_root': str(tmp_path / 'box'), 'skills_root': 'packages'}}
    runtime = Runtime(transport, directory)
    await runtime.start(env={'LANGBOT_BOX_CONFIG': json.dumps(config)}, config={})
    try:
        skills = await runtime.link.client.list_skills()
        assert [skill['name'] for skill in skills] == ['early']
    finally:
        await runtime.stop()


@pytest.mark.parametrize('transport', ['ws', 'stdio'])
async def test_an_environment_that_is_not_json_is_ignored(transport: str, tmp_path: Path):
    runtime = Runtime(transport, tmp_path)
    await runtime.start(env={'LANGBOT_BOX_CONFIG': '{not json'}, config={})
    try:
        assert await runtime.link.client.get_backend_info() == {
            'name': BACKEND,
            'available': True,
        }
    finally:
        await runtime.stop()
