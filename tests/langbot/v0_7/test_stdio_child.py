"""A runtime start by LangBot: the environment applies before the first message."""

from __future__ import annotations

import json
import os

import pytest
from langbot_plugin.box.errors import BoxAdmissionError
from langbot_plugin.box.security import BOX_SHARED_WORKSPACE_PROBE_PREFIX, BOX_TRUSTED_INSTANCE_ENV

from harness import daemon
from support.link import Link, Platform, box_config

pytestmark = pytest.mark.better('the test starts the daemon with arguments of Boxwood')


async def start(directory, **sections) -> Link:
    env = {
        BOX_TRUSTED_INSTANCE_ENV: 'platform-1',
        'LANGBOT_BOX_CONFIG': json.dumps(box_config(directory / 'boxroot', **sections)),
        'LANGBOT_BOX_ALLOW_UNSAFE_SOFT_STORAGE_LIMITS': 'true',
    }
    arguments = [*daemon.arguments(directory / 'state', daemon.free_port()), '--stdio']
    return await Link.by_stdio(daemon.program(), arguments, daemon.environment(**env), directory)


async def stop(link: Link) -> None:
    await link.handler.conn.close()
    assert await link.process.wait() == 0
    await link.close()


async def test_the_default_workspace_exists(tmp_path):
    link = await start(tmp_path)
    name = BOX_SHARED_WORKSPACE_PROBE_PREFIX + os.urandom(16).hex()
    (tmp_path / 'boxroot' / 'default' / name).write_text('x')
    answer = await link.client.verify_shared_workspace(name)
    assert answer['size'] == 1
    await stop(link)


async def test_limits_apply(tmp_path):
    link = await start(tmp_path, limits={'max_sessions': 3})
    status = await link.client.get_status(Platform().context('w'))
    assert status['limits']['max_sessions'] == 3
    await stop(link)


async def test_the_policy_applies(tmp_path):
    link = await start(tmp_path, admission={'required': True})
    with pytest.raises(BoxAdmissionError, match='grant is missing'):
        await link.client.get_sessions(Platform().context('w'))
    await stop(link)
