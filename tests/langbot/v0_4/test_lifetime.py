"""Lifetime of sessions: idle, killed, and of a killed daemon."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.box import Box, eventually
from harness import daemon, processes
from langbot_plugin.box.errors import BoxSessionNotFoundError
from langbot_plugin.box.models import (
    BoxManagedProcessSpec,
    BoxManagedProcessStatus,
    BoxSpec,
)
from support.runtime import Runtime
from support.link import Link, box_config

pytestmark = pytest.mark.better('LangBot Box has no such settings, and cleans up only on request')

CAT = BoxManagedProcessSpec(command='cat')


@pytest.fixture(params=['ws', 'stdio'])
async def hasty(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Box]:
    """A runtime that gives idle sessions a few seconds."""
    runtime = Runtime(request.param, tmp_path)
    await runtime.start(env={'BOXWOOD_SESSION__TTL_SEC': '4'})
    try:
        yield Box(runtime, tmp_path / 'boxroot')
    finally:
        await runtime.stop()


async def names(box: Box) -> set[str]:
    return {session['session_id'] for session in await box.client.get_sessions()}


async def test_an_idle_session_is_removed_without_a_request(hasty: Box):
    assert (await hasty.client.get_status())['session_ttl_sec'] == 4
    await hasty.create()
    await hasty.create(session_id='persistent', persistent=True)
    await hasty.create(session_id='with-process')
    idle, hasty.session = hasty.session, 'with-process'
    await hasty.start('cat')
    await eventually(lambda: names(hasty), lambda found: idle not in found, within=30)
    await asyncio.sleep(3)
    assert await names(hasty) == {'persistent', 'with-process'}
    # Once its process is gone, it is as idle as any other.
    await hasty.client.stop_managed_process('with-process')
    await eventually(lambda: names(hasty), lambda found: found == {'persistent'}, within=30)


async def test_a_session_in_use_is_not_idle(hasty: Box):
    result = await hasty.run('echo kept > /tmp/file; sleep 8; cat /tmp/file', timeout_sec=30)
    assert result.stdout == 'kept'
    assert (await hasty.client.get_session(hasty.session))['session_id'] == hasty.session


async def test_a_session_whose_box_was_killed_is_made_again(box: Box):
    await box.run('echo old > /tmp/file')
    known = processes.descendants(box.runtime.pid)
    await box.start('sleep', '4242')
    (sleeper,) = {p for p in processes.descendants(box.runtime.pid) - known if p.name == 'sleep'}
    os.kill(_init_of(sleeper.pid), signal.SIGKILL)

    async def run() -> str:
        return (await box.run('cat /tmp/file 2>/dev/null; echo new')).stdout

    assert await eventually(run, lambda stdout: stdout == 'new') == 'new'
    assert 'managed_processes' not in await box.client.get_session(box.session)


def _init_of(pid: int) -> int:
    """The first process of the box that a process is in."""
    while Path(f'/proc/{pid}/comm').read_text().strip() != 'boxwood-init':
        status = Path(f'/proc/{pid}/status').read_text()
        pid = int(status.split('PPid:\t', 1)[1].split('\n', 1)[0])
    return pid


async def test_a_killed_daemon_leaves_its_sessions_to_the_next(tmp_path: Path):
    first = await asyncio.to_thread(daemon.Daemon, tmp_path)
    config = box_config(tmp_path / 'boxroot')
    port = int(first.address.rsplit(':', 1)[1])
    async with await Link.by_ws(first.address, config) as link:
        await link.client.create_session(BoxSpec(session_id='s', persistent=True))
        before = await link.client.start_managed_process('s', CAT)
        await link.client.create_skill({'name': 'kept'})
        family = processes.descendants(first.pid)
        first.kill()
        await link.until_closed(10)
    second = await asyncio.to_thread(lambda: daemon.Daemon(tmp_path, port=port))
    try:
        async with await Link.by_ws(second.address, config) as link:
            assert (await link.client.get_session('s'))['session_id'] == 's'
            after = await link.client.get_managed_process('s')
            assert after.status is BoxManagedProcessStatus.RUNNING
            assert after.started_at == before.started_at
            result = await link.client.execute(BoxSpec(session_id='s', cmd='echo again', persistent=True))
            assert result.stdout == 'again'
            assert [s['name'] for s in await link.client.list_skills()] == ['kept']
            await link.client.delete_session('s')
            processes.assert_gone(family)
    finally:
        await asyncio.to_thread(second.stop)
