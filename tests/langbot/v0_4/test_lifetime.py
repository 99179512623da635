"""Lifetime of sessions: idle timeout, killed boxes, and a killed daemon."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from langbot_plugin.box.models import (
    BoxManagedProcessSpec,
    BoxManagedProcessStatus,
    BoxSpec,
)

from harness import daemon, processes
from support.box import Box, eventually
from support.link import Link, box_config
from support.runtime import Runtime

pytestmark = pytest.mark.better('LangBot Box has no such settings, and cleans up only on request')

CAT = BoxManagedProcessSpec(command='cat')


@pytest.fixture(params=['ws', 'stdio'])
async def short_ttl(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Box]:
    """A box in a runtime that removes sessions after four idle seconds."""
    runtime = Runtime(request.param, tmp_path)
    await runtime.start(env={'BOXWOOD_SESSION__TTL_SEC': '4'})
    try:
        yield Box(runtime, tmp_path / 'boxroot')
    finally:
        await runtime.stop()


async def names(box: Box) -> set[str]:
    return {session['session_id'] for session in await box.client.get_sessions()}


async def test_an_idle_session_is_removed_without_a_request(short_ttl: Box):
    assert (await short_ttl.client.get_status())['session_ttl_sec'] == 4
    await short_ttl.create()
    await short_ttl.create(session_id='persistent', persistent=True)
    await short_ttl.create(session_id='with-process')
    idle, short_ttl.session = short_ttl.session, 'with-process'
    await short_ttl.start('cat')
    await eventually(lambda: names(short_ttl), lambda found: idle not in found, within=30)
    await asyncio.sleep(3)
    assert await names(short_ttl) == {'persistent', 'with-process'}
    # Without its process the session is idle too.
    await short_ttl.client.stop_managed_process('with-process')
    await eventually(lambda: names(short_ttl), lambda found: found == {'persistent'}, within=30)


async def test_a_session_in_use_is_not_idle(short_ttl: Box):
    result = await short_ttl.run('echo kept > /tmp/file; sleep 8; cat /tmp/file', timeout_sec=30)
    assert result.stdout == 'kept'
    assert (await short_ttl.client.get_session(short_ttl.session))['session_id'] == short_ttl.session


async def test_a_session_whose_box_was_killed_is_created_again(box: Box):
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
    """The pid of the init of the box that contains the process."""
    while Path(f'/proc/{pid}/comm').read_text().strip() != 'boxwood-init':
        status = Path(f'/proc/{pid}/status').read_text()
        pid = int(status.split('PPid:\t', 1)[1].split('\n', 1)[0])
    return pid


async def test_the_next_daemon_adopts_the_sessions_of_a_killed_one(tmp_path: Path):
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
