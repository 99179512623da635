"""Validation errors of sessions and commands, compared up to and including pydantic's error type."""

from __future__ import annotations

from typing import Any

import pytest
from langbot_plugin.box.errors import BoxError, BoxValidationError

from support.box import Action, Box

VALUE_ERRORS = [
    ('timeout_sec', 0, 'timeout_sec must be greater than 0'),
    ('timeout_sec', -5, 'timeout_sec must be greater than 0'),
    ('cpus', 0, 'cpus must be greater than 0'),
    ('memory_mb', 31, 'memory_mb must be at least 32'),
    ('pids_limit', 0, 'pids_limit must be at least 1'),
    (
        'workspace_quota_mb',
        -1,
        'workspace_quota_mb must be greater than or equal to 0',
    ),
    ('session_id', '  ', 'session_id must not be empty'),
    ('workdir', 'relative', 'workdir must be an absolute path inside the sandbox'),
    ('host_path', 'relative', 'host_path must be an absolute host path'),
    ('host_path', '', 'host_path must be an absolute host path'),
]


def refused(field: str, text: str, kind: str) -> str:
    return (
        f'BoxValidationError: 1 validation error for BoxSpec\n{field}\n  {text} [type={kind}'
    )


@pytest.mark.parametrize('action', [Action.EXEC, Action.CREATE_SESSION])
@pytest.mark.parametrize(('field', 'value', 'text'), VALUE_ERRORS)
async def test_a_value_out_of_range_is_rejected(
    box: Box, action: Action, field: str, value: Any, text: str
):
    with pytest.raises(BoxValidationError) as error:
        await box.call(action, {'session_id': box.session, 'cmd': 'true'} | {field: value})
    expected = refused(field, f'Value error, {text}', 'value_error')
    assert str(error.value).startswith(expected)
    assert await box.client.get_sessions() == []


TYPE_ERRORS = [
    ('network', 'maybe', "Input should be 'off' or 'on'", 'enum'),
    ('network', True, "Input should be 'off' or 'on'", 'enum'),
    ('host_path_mode', 'rx', "Input should be 'none', 'ro' or 'rw'", 'enum'),
    ('session_id', 5, 'Input should be a valid string', 'string_type'),
    ('cmd', ['ls'], 'Input should be a valid string', 'string_type'),
    (
        'timeout_sec',
        'soon',
        'Input should be a valid integer, unable to parse string as an integer',
        'int_parsing',
    ),
    (
        'timeout_sec',
        9.5,
        'Input should be a valid integer, got a number with a fractional part',
        'int_from_float',
    ),
    ('memory_mb', None, 'Input should be a valid integer', 'int_type'),
    (
        'cpus',
        'many',
        'Input should be a valid number, unable to parse string as a number',
        'float_parsing',
    ),
    (
        'persistent',
        'perhaps',
        'Input should be a valid boolean, unable to interpret input',
        'bool_parsing',
    ),
    ('env', [], 'Input should be a valid dictionary', 'dict_type'),
    ('extra_mounts', {}, 'Input should be a valid list', 'list_type'),
]


@pytest.mark.parametrize(('field', 'value', 'text', 'kind'), TYPE_ERRORS)
async def test_a_value_of_the_wrong_type_is_rejected(
    box: Box, field: str, value: Any, text: str, kind: str
):
    with pytest.raises(BoxValidationError) as error:
        await box.call(Action.EXEC, {'session_id': box.session, 'cmd': 'true'} | {field: value})
    assert str(error.value).startswith(refused(field, text, kind))


async def test_a_missing_session_id_is_rejected(box: Box):
    with pytest.raises(BoxValidationError) as error:
        await box.call(Action.EXEC, {'cmd': 'true'})
    head = 'BoxValidationError: 1 validation error for BoxSpec\nsession_id\n  Field required'
    assert str(error.value).startswith(f'{head} [type=missing')


NESTED = [
    ({'env': {'A': 1}}, 'env.A', 'Input should be a valid string [type=string_type'),
    (
        {'extra_mounts': [{'host_path': 'rel', 'mount_path': '/x'}]},
        'extra_mounts.0.host_path',
        'Value error, host_path must be an absolute host path [type=value_error',
    ),
    (
        {'extra_mounts': [{'host_path': '/tmp', 'mount_path': 'x'}]},
        'extra_mounts.0.mount_path',
        'Value error, mount_path must be an absolute path inside the sandbox [type=value_error',
    ),
    (
        {'extra_mounts': [{'host_path': '/tmp'}]},
        'extra_mounts.0.mount_path',
        'Field required [type=missing',
    ),
    (
        {'extra_mounts': [{'host_path': '/tmp', 'mount_path': '/x', 'mode': 'rx'}]},
        'extra_mounts.0.mode',
        "Input should be 'none', 'ro' or 'rw' [type=enum",
    ),
]


@pytest.mark.parametrize(('fields', 'path', 'text'), NESTED)
async def test_a_nested_value_is_rejected_with_its_path(
    box: Box, fields: dict, path: str, text: str
):
    with pytest.raises(BoxValidationError) as error:
        await box.call(Action.CREATE_SESSION, {'session_id': box.session} | fields)
    head = 'BoxValidationError: 1 validation error for BoxSpec'
    assert str(error.value).startswith(f'{head}\n{path}\n  {text}')


async def test_every_invalid_field_is_listed_in_the_order_of_the_model(box: Box):
    with pytest.raises(BoxValidationError) as error:
        await box.call(Action.EXEC, {'pids_limit': 0, 'session_id': '', 'timeout_sec': 0})
    lines = str(error.value).split('\n')
    assert lines[0] == 'BoxValidationError: 3 validation errors for BoxSpec'
    assert [line for line in lines[1:] if not line.startswith(' ')] == [
        'timeout_sec',
        'session_id',
        'pids_limit',
    ]


async def test_a_relative_mount_path_also_makes_the_default_working_directory_invalid(box: Box):
    with pytest.raises(BoxValidationError) as error:
        await box.call(Action.EXEC, {'session_id': box.session, 'mount_path': 'rel'})
    lines = str(error.value).split('\n')
    assert lines[0] == 'BoxValidationError: 2 validation errors for BoxSpec'
    assert [line for line in lines[1:] if not line.startswith(' ')] == ['workdir', 'mount_path']


OUTSIDE = 'workdir must stay under mount_path when host_path is provided'


@pytest.mark.parametrize(
    'fields',
    [
        {'workdir': '/tmp'},
        {'workdir': '/workspace2'},
        {'mount_path': '/srv', 'workdir': '/workspace'},
    ],
)
async def test_the_working_directory_must_be_in_the_mount(box: Box, fields: dict, tmp_path):
    spec = {'session_id': box.session, 'cmd': 'true', 'host_path': str(tmp_path)} | fields
    with pytest.raises(BoxValidationError) as error:
        await box.call(Action.EXEC, spec)
    head = 'BoxValidationError: 1 validation error for BoxSpec'
    assert str(error.value).startswith(f'{head}\n  Value error, {OUTSIDE} [type=value_error')


async def test_without_a_mount_any_working_directory_is_accepted(box: Box, tmp_path):
    spec = {'session_id': box.session, 'cmd': 'pwd', 'workdir': '/tmp'}
    assert (await box.call(Action.EXEC, spec))['stdout'] == '/tmp'
    await box.client.delete_session(box.session)
    spec |= {'host_path': str(tmp_path), 'host_path_mode': 'none'}
    assert (await box.call(Action.EXEC, spec))['stdout'] == '/tmp'


COERCED = [
    ('memory_mb', '256', 256),
    ('memory_mb', 256.0, 256),
    ('pids_limit', True, 1),
    ('cpus', '0.5', 0.5),
    ('cpus', 2, 2.0),
    ('read_only_rootfs', 'yes', True),
    ('read_only_rootfs', 0, False),
    ('persistent', 'on', True),
    ('mount_path', ' /data ', '/data'),
]


@pytest.mark.parametrize(('field', 'value', 'read'), COERCED)
async def test_convertible_values_are_converted(box: Box, field: str, value: Any, read: Any):
    spec = {'session_id': box.session, field: value}
    value = (await box.call(Action.CREATE_SESSION, spec))[field]
    assert (type(value), value) == (type(read), read)


async def test_unknown_fields_are_ignored(box: Box):
    spec = {'session_id': box.session, 'later': 1, 'context': {'workspace': 'x'}, 'cmd': 'echo x'}
    assert (await box.call(Action.EXEC, spec))['stdout'] == 'x'


@pytest.mark.parametrize(
    ('action', 'key'),
    [
        (Action.GET_SESSION, 'session_id'),
        (Action.DELETE_SESSION, 'session_id'),
        (Action.GET_SKILL, 'name'),
    ],
)
async def test_a_missing_key_is_named(box: Box, action: Action, key: str):
    with pytest.raises(BoxError) as error:
        await box.call(action, {})
    assert (type(error.value), str(error.value)) == (BoxError, f"KeyError: '{key}'")


@pytest.mark.parametrize(
    ('action', 'data', 'key'),
    [
        (Action.CREATE_SKILL, {}, 'skill'),
        (Action.UPDATE_SKILL, {'skill': {}}, 'name'),
        (Action.UPDATE_SKILL, {'name': 'x'}, 'skill'),
        (Action.DELETE_SKILL, {}, 'name'),
        (Action.SCAN_SKILL_DIRECTORY, {}, 'path'),
        (Action.LIST_SKILL_FILES, {}, 'name'),
        (Action.READ_SKILL_FILE, {}, 'name'),
        (Action.READ_SKILL_FILE, {'name': 'x'}, 'path'),
        (Action.WRITE_SKILL_FILE, {'name': 'x'}, 'path'),
        (Action.PREVIEW_SKILL_ZIP, {}, 'file_key'),
        (Action.INSTALL_SKILL_ZIP, {}, 'file_key'),
    ],
)
async def test_a_missing_key_of_a_skill_action_is_a_validation_error(
    box: Box, action: Action, data: dict, key: str
):
    with pytest.raises(BoxValidationError) as error:
        await box.call(action, data)
    assert str(error.value) == f"BoxValidationError: '{key}'"
