"""Long calls: progress, cancellation, and restarts of the daemon."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import anyio
import pytest

from harness import daemon, processes
from support.clients import PROTOCOLS, TRANSPORTS, client

pytestmark = pytest.mark.anyio

#: Processes are found by their command line, so every test of every worker sleeps for a different duration.
_fractions = (f'{os.getpid()}{number:04}' for number in count())


def unique_duration(seconds: int) -> str:
    return f'{seconds}.0{next(_fractions)}'


def is_running(nap: str) -> bool:
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
        assert time.monotonic() < deadline, 'the condition was not met in time'
        await anyio.sleep(0.05)


@pytest.mark.parametrize('protocol', PROTOCOLS)
@pytest.mark.parametrize('transport', TRANSPORTS)
async def test_progress(runtime, transport: str, protocol: str):
    seen: list[tuple[float, str]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, message or ''))

    async with client(runtime, transport, protocol) as server:
        meta = {'io.boxwood/session': f'progress-{transport}-{protocol}'}
        # Each step waits for a file, which is created when its progress has arrived.
        command = 'for n in 1 2 3; do echo step $n; until [ -e seen-$n ]; do sleep 0.1; done; done'

        async def confirm() -> None:
            for step in (1, 2, 3):
                await until(lambda n=step: f'step {n}' in [message for _, message in seen], 30)
                await server.call_tool('exec', {'command': f'touch seen-{step}'}, meta=meta)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(confirm)
            result = await server.call_tool(
                'exec', {'command': command}, progress_callback=on_progress, meta=meta
            )
    assert result.structured_content['stdout'] == 'step 1\nstep 2\nstep 3\n'
    amounts = [progress for progress, _ in seen]
    assert amounts == sorted(set(amounts))


@pytest.mark.parametrize('protocol', PROTOCOLS)
@pytest.mark.parametrize('transport', TRANSPORTS)
async def test_a_cancelled_call_kills_its_command(runtime, transport: str, protocol: str):
    nap = unique_duration(3000)
    async with client(runtime, transport, protocol) as server:
        meta = {'io.boxwood/session': f'cancel-{transport}-{protocol}'}
        async with anyio.create_task_group() as tasks:
            arguments = {'command': f'sleep {nap}', 'timeout_sec': 60}

            async def call() -> None:
                await server.call_tool('exec', arguments, meta=meta)

            tasks.start_soon(call)
            await until(lambda: is_running(nap), 20)
            tasks.cancel_scope.cancel()
        await until(lambda: not is_running(nap), 15)
        # The box and the connection can still be used.
        again = await server.call_tool('exec', {'command': 'echo on'}, meta=meta)
        assert again.structured_content['stdout'] == 'on\n'


@pytest.mark.parametrize('transport', TRANSPORTS)
async def test_a_disconnected_client_leaves_no_command(runtime, transport: str):
    nap = unique_duration(3000)
    with anyio.move_on_after(60) as scope:
        async with client(runtime, transport, '2026-07-28') as server:
            async with anyio.create_task_group() as tasks:
                arguments = {'command': f'sleep {nap}', 'timeout_sec': 60}
                tasks.start_soon(server.call_tool, 'exec', arguments)
                await until(lambda: is_running(nap), 20)
                scope.cancel()
    await until(lambda: not is_running(nap), 15)


@contextmanager
def front_server(boxes: daemon.Daemon, transport: str, directory: Path) -> Iterator[daemon.Daemon]:
    """An MCP server that keeps running when the daemon `boxes` stops: over stdio a process of the client, over HTTP a
    second daemon that uses the boxes of the first."""
    if transport == 'stdio':
        yield boxes
        return
    own = directory / 'front'
    own.mkdir()
    socket = boxes.state_dir / 'run' / 'boxwood.sock'
    front = daemon.Daemon(own, env={'BOX__RUNTIME__ENDPOINT': f'unix://{socket}'})
    try:
        yield front
    finally:
        front.stop()


async def until_exec_works(server, meta: dict, within: float) -> None:
    deadline = time.monotonic() + within
    while (await server.call_tool('exec', {'command': 'true'}, meta=meta)).is_error:
        assert time.monotonic() < deadline, 'the condition was not met in time'
        await anyio.sleep(0.5)


@pytest.mark.parametrize('transport', TRANSPORTS)
async def test_a_daemon_killed_during_a_call_loses_no_result(tmp_path, transport: str):
    port = daemon.free_port()
    first = daemon.Daemon(tmp_path, port=port)
    second = None
    nap = unique_duration(6)
    command = f'echo before; sleep {nap}; echo after > /workspace/done; echo after'
    meta = {'io.boxwood/session': 'survivor'}
    try:
        with front_server(first, transport, tmp_path) as front:
            async with client(front, transport, 'legacy', session='survivor') as server:
                await until_exec_works(server, meta, 30)
                results = []

                started = anyio.Event()

                async def on_progress(progress: float, total: float | None, message: str | None) -> None:
                    if 'before' in (message or ''):
                        started.set()

                async def call() -> None:
                    arguments = {'command': command, 'timeout_sec': 60}
                    result = await server.call_tool(
                        'exec', arguments, meta=meta, progress_callback=on_progress
                    )
                    results.append(result)

                with anyio.fail_after(90):
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(call)
                        # Without a progress message the client may not have the id of the command yet, and could not
                        # continue the call.
                        await started.wait()
                        await until(lambda: is_running(nap), 20)
                        first.kill()
                        second = daemon.Daemon(tmp_path, port=port)
                result = results[0]
                assert not result.is_error, result
                assert result.structured_content['stdout'] == 'before\nafter\n'
                read = await server.call_tool('read', {'path': '/workspace/done'}, meta=meta)
                assert read.structured_content['content'].startswith('after')
    finally:
        first.kill()
        if second is not None:
            second.stop()


@pytest.mark.parametrize('transport', TRANSPORTS)
async def test_an_unreachable_daemon_is_reported_until_it_returns(tmp_path, transport: str):
    port = daemon.free_port()
    first = daemon.Daemon(tmp_path, port=port)
    meta = {'io.boxwood/session': 'away'}
    with front_server(first, transport, tmp_path) as front:
        async with client(front, transport, 'legacy', session='away') as server:
            await until_exec_works(server, meta, 30)
            first.stop()
            with anyio.fail_after(20):
                while 'io.boxwood/unavailable' not in ((await server.list_tools()).meta or {}):
                    await anyio.sleep(0.1)
                listed = await server.list_tools()
                refused = await server.call_tool('exec', {'command': 'true'}, meta=meta)
            assert len(listed.tools) == 8
            assert listed.meta['io.boxwood/unavailable']['state'] == 'unavailable'
            assert refused.is_error and 'not available' in refused.content[0].text
            second = daemon.Daemon(tmp_path, port=port)
            try:
                # The pause between two attempts to connect grows to one minute.
                await until_exec_works(server, meta, 75)
            finally:
                second.stop()


async def test_over_stdio_the_settings_of_the_daemon_apply(tmp_path):
    """Also those of a daemon that starts after the client or replaces another."""
    port = daemon.free_port()

    @contextmanager
    def running(**env: str) -> Iterator[daemon.Daemon]:
        runtime = daemon.Daemon(tmp_path, port=port, env=env)
        try:
            yield runtime
        finally:
            runtime.stop()

    async def until_result(server, condition) -> None:
        deadline = time.monotonic() + 90
        while True:
            called = await server.call_tool('exec', {'command': 'true'})
            if condition(called):
                return
            # Calls fail until the client is connected to the new daemon.
            assert called.is_error and 'not available' in called.content[0].text, called
            assert time.monotonic() < deadline, 'the condition was not met in time'
            await anyio.sleep(0.5)

    with running() as runtime:
        pass
    async with client(runtime, 'stdio', 'legacy', session='own') as server:
        refused = await server.call_tool('exec', {'command': 'true'})
        assert refused.is_error and 'not available' in refused.content[0].text
        with running(BOX__FORCE_SESSION_ID_TEMPLATE='{global}'):
            await until_result(
                server,
                lambda called: (called.structured_content or {}).get('session_id') == 'global',
            )
        with running(BOX__ENABLED='false'):
            await until_result(server, lambda called: 'disabled' in called.content[0].text)
        with running(BOX__RUNTIME__ENDPOINT='http://127.0.0.1:1'):
            await until_result(server, lambda called: '127.0.0.1:1' in called.content[0].text)


@pytest.mark.parametrize('protocol', PROTOCOLS)
@pytest.mark.parametrize('transport', TRANSPORTS)
async def test_an_unusable_backend_is_reported(tmp_path, transport: str, protocol: str):
    lacking = daemon.Daemon(tmp_path, '--backend', 'e2b')
    try:
        async with client(lacking, transport, protocol) as server:
            listed = await server.list_tools()
            assert listed.meta['io.boxwood/unavailable']['state'] == 'backend_unusable'
            refused = await server.call_tool('exec', {'command': 'true'})
            assert refused.is_error and 'e2b' in refused.content[0].text
    finally:
        lacking.stop()


@pytest.mark.parametrize('protocol', PROTOCOLS)
@pytest.mark.parametrize('transport', TRANSPORTS)
async def test_a_disabled_sandbox_lists_its_tools_and_refuses(tmp_path, transport: str, protocol: str):
    off = daemon.Daemon(tmp_path, env={'BOX__ENABLED': 'false'})
    try:
        async with client(off, transport, protocol) as server:
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
