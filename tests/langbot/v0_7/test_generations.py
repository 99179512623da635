"""Generations: requests of an older placement of a workspace are refused."""

from __future__ import annotations

import asyncio

import pytest
import websockets
from langbot_plugin.box.errors import BoxError
from websockets.exceptions import InvalidStatus

from support.workspace import Workspace, eventually

STALE = '^PermissionError: Stale Box placement generation$'


async def test_a_newer_generation_removes_the_sessions_of_the_old(workspace: Workspace):
    await workspace.run('echo old > /tmp/f', persistent=True)
    newer = workspace.moved(2)
    assert await newer.sessions() == []
    assert (await newer.status())['active_sessions'] == 0
    assert (await newer.run('cat /tmp/f; true')).stdout == ''
    await newer.clean_up()


async def test_an_older_generation_is_refused(workspace: Workspace):
    newer = workspace.moved(3)
    await newer.create()
    for request in (
        workspace.sessions,
        workspace.status,
        workspace.create,
        lambda: workspace.run('true'),
        lambda: workspace.moved(2).sessions(),
    ):
        with pytest.raises(BoxError, match=STALE):
            await request()
    assert len(await newer.sessions()) == 1
    await newer.clean_up()


async def test_other_workspaces_are_not_affected(workspace: Workspace):
    other = Workspace(workspace.runtime)
    await other.create()
    await workspace.create()
    newer = workspace.moved(9)
    await newer.sessions()
    assert len(await other.sessions()) == 1
    await other.clean_up()


@pytest.mark.better('cancelled requests get a response')
async def test_a_running_command_of_an_older_generation_is_cancelled(workspace: Workspace):
    await workspace.create()
    running = asyncio.create_task(workspace.run('sleep 60', timeout_sec=120))

    async def status() -> str:
        return (await workspace.sessions())[0]['status']

    await eventually(status, lambda status: status == 'running')
    newer = workspace.moved(2)
    await newer.sessions()
    with pytest.raises(BoxError, match=STALE):
        await asyncio.wait_for(running, 10)
    workspace.runtime.assert_idle()


@pytest.mark.better('cancelled requests get a response')
async def test_a_session_that_was_being_created_is_removed(workspace: Workspace):
    creations = [
        asyncio.create_task(workspace.create(session_id=f's{n}')) for n in range(8)
    ]
    await asyncio.sleep(0)
    newer = workspace.moved(2)
    await newer.sessions()
    outcomes = await asyncio.gather(*creations, return_exceptions=True)
    for outcome in outcomes:
        assert isinstance(outcome, dict) or 'Stale Box placement' in str(outcome), outcome
    assert await newer.sessions() == []
    workspace.runtime.assert_idle()


async def test_an_attached_relay_ends_with_its_generation(workspace: Workspace):
    await workspace.create()
    await workspace.start('cat')
    async with workspace.attach() as ws:
        await ws.send('hello')
        assert await asyncio.wait_for(ws.recv(), 10) == 'hello\n'
        await workspace.moved(2).sessions()
        with pytest.raises(websockets.exceptions.ConnectionClosedOK):
            await asyncio.wait_for(ws.recv(), 10)


async def test_an_older_generation_cannot_attach(workspace: Workspace):
    await workspace.create()
    await workspace.start('cat')
    newer = workspace.moved(2)
    await newer.create()
    await newer.start('cat')
    with pytest.raises(InvalidStatus) as error:
        await workspace.attach()
    assert error.value.response.status_code == 401
    # The same for the process of the new generation, whose address can be guessed.
    headers = workspace.runtime.platform.headers(workspace.context)
    with pytest.raises(InvalidStatus) as error:
        await newer.attach(additional_headers=headers)
    assert error.value.response.status_code == 401
    async with newer.attach() as ws:
        await ws.send('mine')
        assert await asyncio.wait_for(ws.recv(), 10) == 'mine\n'
    await newer.clean_up()


async def test_generations_are_compared_as_numbers(workspace: Workspace):
    first = workspace.moved(1)
    await first.create()
    eleventh = workspace.moved(11)
    await eleventh.create()
    assert len(await eleventh.sessions()) == 1
    await eleventh.clean_up()


@pytest.mark.better('a new limit applies at once')
async def test_records_are_bounded(workspace: Workspace):
    client, runtime = workspace.client, workspace.runtime
    await workspace.sessions()
    await client.init(runtime.config(limits={'max_admission_records': 1}))
    try:
        with pytest.raises(BoxError, match='Box generation fence capacity reached'):
            await Workspace(runtime).sessions()
        assert await workspace.sessions() == []
    finally:
        await client.init(runtime.config(limits={'max_admission_records': 100000}))
