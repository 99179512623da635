"""A runtime that LangBot starts as a child process: its output and its end."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

import pytest

from harness import daemon, processes
from support.box import Box
from support.runtime import Runtime


async def test_no_line_exceeds_the_clients_limit(tmp_path: Path):
    # Without the SDK, to measure the lines: its reader fails at more than 64 KiB.
    runtime = Runtime('stdio', tmp_path)
    command, args = runtime._stdio_command(daemon.free_port())
    child = await asyncio.create_subprocess_exec(
        command,
        *args,
        cwd=tmp_path,
        env=daemon.environment(),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    assert child.stdin is not None and child.stdout is not None
    data = {'session_id': 's', 'cmd': 'seq 1 30000'}
    request = {'seq_id': 1, 'action': 'box_exec', 'data': data}
    child.stdin.write(json.dumps(request).encode() + b'\n')
    lines: list[dict] = []
    while not lines or lines[-1].get('type') != 'chunk_end':
        line = await asyncio.wait_for(child.stdout.readline(), 20)
        assert len(line) < 65_536 and line.endswith(b'\n') and line.isascii()
        lines.append(json.loads(line))
    start, *pieces, _end = lines
    whole = ''.join(piece['data'] for piece in pieces)
    assert start == {'type': 'chunk_start', 'total_size': len(whole)}
    assert {piece['type'] for piece in pieces} == {'chunk_data'}
    assert [piece['offset'] for piece in pieces] == list(range(0, len(whole), 16_384))
    assert json.loads(whole)['data']['stdout'].endswith('30000')
    child.stdin.close()
    await asyncio.wait_for(child.wait(), 20)


async def test_the_end_of_stdin_ends_the_runtime_and_its_boxes(tmp_path: Path):
    runtime = Runtime('stdio', tmp_path)
    await runtime.start()
    box = Box(runtime, tmp_path / 'boxroot')
    await box.create()
    await box.shell('while true; do sleep 1; done')
    # `stop` checks the exit code, and that no process is left.
    await runtime.stop()


@pytest.mark.better('nothing is left when LangBot terminates its child')
async def test_a_terminated_runtime_leaves_nothing(tmp_path: Path):
    runtime = Runtime('stdio', tmp_path)
    await runtime.start()
    box = Box(runtime, tmp_path / 'boxroot')
    await box.create()
    await box.shell('while true; do sleep 1; done')
    process = runtime.link.process
    family = processes.descendants(process.pid)
    assert family
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 20) == 0
    await runtime.link.close()
    await asyncio.to_thread(processes.assert_gone, family)
