"""Long calls: what is seen of them, how they are ended, and what they survive."""

from __future__ import annotations

import time
from pathlib import Path

import anyio
import pytest

from harness import daemon, processes
from stage import ERAS, TRANSPORTS, client

pytestmark = pytest.mark.anyio

#: No two tests look for the same process.
_naps = iter(range(3000, 4000))


def is_running(nap: int) -> bool:
    return bool(processes_with(f'sleep {nap}'))


def processes_with(command: str) -> list[int]:
    found = []
    for entry in Path('/proc').iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / 'cmdline').read_bytes().replace(b'\0', b' ').strip()
            except OSError:
                continue
            if line == command.encode():
                found.append(int(entry.name))
    return found


async def until(condition, within: float) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, 'it did not come to that in time'
        await anyio.sleep(0.05)


@pytest.mark.parametrize('era', ERAS)
@pytest.mark.parametrize('transport', TRANSPORTS)
async def test_progress(runtime, transport: str, era: str):
    seen: list[tuple[float, str]] = []

    async def told(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, message or ''))

    async with client(runtime, transport, era) as server:
        meta = {'io.boxwood/session': f'progress-{transport}-{era}'}
        command = 'for n in 1 2 3; do echo step $n; sleep 1; done'
        result = await server.call_tool(
            'exec', {'command': command}, progress_callback=told, meta=meta
        )
    assert result.structured_content['stdout'] == 'step 1\nstep 2\nstep 3\n'
    assert 'step 2' in [message for _, message in seen]
    amounts = [progress for progress, _ in seen]
    assert amounts == sorted(set(amounts))


@pytest.mark.parametrize('era', ERAS)
@pytest.mark.parametrize('transport', TRANSPORTS)
async def test_a_cancelled_call_kills_its_command(runtime, transport: str, era: str):
    nap = next(_naps)
    async with client(runtime, transport, era) as server:
        meta = {'io.boxwood/session': f'cancel-{transport}-{era}'}
        async with anyio.create_task_group() as tasks:
            arguments = {'command': f'sleep {nap}', 'timeout_sec': 60}

            async def call() -> None:
                await server.call_tool('exec', arguments, meta=meta)

            tasks.start_soon(call)
            await until(lambda: is_running(nap), 20)
            tasks.cancel_scope.cancel()
        await until(lambda: not is_running(nap), 5)
        # The box and the connection live on.
        again = await server.call_tool('exec', {'command': 'echo on'}, meta=meta)
        assert again.structured_content['stdout'] == 'on\n'


@pytest.mark.parametrize('transport', TRANSPORTS)
async def test_a_client_that_is_gone_leaves_no_command(runtime, transport: str):
    nap = next(_naps)
    with anyio.move_on_after(60) as scope:
        async with client(runtime, transport, '2026-07-28') as server:
            async with anyio.create_task_group() as tasks:
                arguments = {'command': f'sleep {nap}', 'timeout_sec': 60}
                tasks.start_soon(server.call_tool, 'exec', arguments)
                await until(lambda: is_running(nap), 20)
                scope.cancel()
    await until(lambda: not is_running(nap), 15)


async def test_a_daemon_killed_during_a_call_loses_no_result(tmp_path):
    port = daemon.free_port()
    first = daemon.Daemon(tmp_path, port=port)
    second = None
    command = 'echo before; sleep 6; echo after > /workspace/done; echo after'
    try:
        async with client(first, 'stdio', 'legacy', session='survivor') as server:
            results = []

            async def call() -> None:
                arguments = {'command': command, 'timeout_sec': 60}
                results.append(await server.call_tool('exec', arguments))

            with anyio.fail_after(60):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(call)
                    await until(lambda: processes_with('sleep 6'), 20)
                    first.kill()
                    second = daemon.Daemon(tmp_path, port=port)
            result = results[0]
            assert not result.is_error, result
            assert result.structured_content['stdout'] == 'before\nafter\n'
            read = await server.call_tool('read', {'path': '/workspace/done'})
            assert read.structured_content['content'].startswith('after')
    finally:
        first.kill()
        if second is not None:
            second.stop()


async def test_a_daemon_that_is_away_is_said_and_comes_back(tmp_path):
    port = daemon.free_port()
    first = daemon.Daemon(tmp_path, port=port)
    async with client(first, 'stdio', 'legacy', session='away') as server:
        assert not (await server.call_tool('exec', {'command': 'true'})).is_error
        first.stop()
        with anyio.fail_after(20):
            listed = await server.list_tools()
            refused = await server.call_tool('exec', {'command': 'true'})
        assert len(listed.tools) == 8
        assert listed.meta['io.boxwood/unavailable']['state'] == 'unavailable'
        assert refused.is_error and 'not available' in refused.content[0].text
        second = daemon.Daemon(tmp_path, port=port)
        try:
            deadline = time.monotonic() + 30
            while (await server.call_tool('exec', {'command': 'true'})).is_error:
                assert time.monotonic() < deadline, 'it did not come back'
                await anyio.sleep(0.5)
        finally:
            second.stop()


@pytest.mark.parametrize('era', ERAS)
@pytest.mark.parametrize('transport', TRANSPORTS)
async def test_a_disabled_sandbox_lists_its_tools_and_refuses(tmp_path, transport: str, era: str):
    off = daemon.Daemon(tmp_path, env={'BOX__ENABLED': 'false'})
    try:
        async with client(off, transport, era) as server:
            listed = await server.list_tools()
            assert len(listed.tools) == 8
            assert listed.meta['io.boxwood/unavailable']['state'] == 'disabled'
            for name, arguments in [
                ('exec', {'command': 'true'}),
                ('read', {'path': '/workspace/a'}),
                ('activate', {'skill_name': 'a'}),
            ]:
                refused = await server.call_tool(name, arguments)
                assert refused.is_error
                assert 'disabled' in refused.content[0].text
                assert 'box.enabled = true' in refused.content[0].text
        assert processes.descendants(off.pid) == {
            process for process in processes.descendants(off.pid) if process.name in daemon.IDLE
        }
    finally:
        off.stop()
