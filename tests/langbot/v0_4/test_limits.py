"""Limits of a box: memory, processes, network, root file system."""

from __future__ import annotations

import pytest

from support.box import Box

ALLOCATE_300_MB = 'python3 -c "x = bytearray(300_000_000); print(len(x))"'


@pytest.mark.better('the limit applies to memory, not to address space')
async def test_a_command_above_the_memory_limit_is_killed(box: Box):
    await box.create(memory_mb=64)
    result = await box.run(ALLOCATE_300_MB, memory_mb=64)
    assert (result.exit_code, result.stdout) == (137, '')
    # The box still works.
    assert (await box.run('echo alive', memory_mb=64)).stdout == 'alive'


async def test_a_command_below_the_memory_limit_succeeds(box: Box):
    result = await box.run(ALLOCATE_300_MB, memory_mb=1024)
    assert (result.exit_code, result.stdout) == (0, '300000000')


@pytest.mark.better('processes are counted per box, not per user of the host')
async def test_a_command_that_exceeds_the_process_limit_fails(box: Box):
    script = 'for i in $(seq 1 60); do sleep 5 & done; echo made them all'
    result = await box.run(script, pids_limit=20, timeout_sec=20)
    assert result.exit_code != 0 and 'made them all' not in result.stdout
    assert (await box.run('echo alive', pids_limit=20)).stdout == 'alive'


@pytest.mark.better('a network of its own, not the host\'s')
async def test_the_network_of_a_box_is_not_the_hosts(box: Box):
    port = box.runtime.address.rsplit(':', 1)[1]
    reach = f'import socket; socket.create_connection(("127.0.0.1", {port}), 2)'
    result = await box.run(
        f"tail -n +2 /proc/net/route | wc -l; python3 -c '{reach}'", network='on'
    )
    assert int(result.stdout) > 0
    assert result.exit_code != 0 and 'refused' in result.stderr


@pytest.mark.better('possible with Docker, not with nsjail')
async def test_programs_can_be_installed_in_a_writable_root(box: Box):
    result = await box.run(
        'printf "#!/bin/sh\\necho installed" > /usr/local/bin/tool && chmod +x /usr/local/bin/tool '
        '&& tool',
        read_only_rootfs=False,
    )
    assert (result.exit_code, result.stdout, result.stderr) == (0, 'installed', '')
    assert (await box.run('tool', read_only_rootfs=False)).stdout == 'installed'


@pytest.mark.better('commands are not root, not even in the box')
async def test_a_command_is_an_ordinary_user(box: Box):
    result = await box.run('id -u; id -un; cd ~ && pwd && touch file && echo mine')
    assert result.stdout.split('\n') == ['1000', 'box', '/home/box', 'mine']
