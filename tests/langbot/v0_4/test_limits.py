"""Limits of a box: memory, processes, network, root file system."""

from __future__ import annotations

import pytest
from support.box import Box

HOG = 'python3 -c "x = bytearray(300_000_000); print(len(x))"'


@pytest.mark.better('a limit of memory is one of memory, not of addresses')
async def test_a_command_that_takes_too_much_memory_is_killed(box: Box):
    await box.create(memory_mb=64)
    result = await box.run(HOG, memory_mb=64)
    assert (result.exit_code, result.stdout) == (137, '')
    # The box itself goes on.
    assert (await box.run('echo alive', memory_mb=64)).stdout == 'alive'


async def test_a_command_that_takes_less_is_not(box: Box):
    result = await box.run(HOG, memory_mb=1024)
    assert (result.exit_code, result.stdout) == (0, '300000000')


@pytest.mark.better('processes are counted per box, not per user of the host')
async def test_a_command_that_forks_too_often_fails(box: Box):
    script = 'for i in $(seq 1 60); do sleep 5 & done; echo made them all'
    result = await box.run(script, pids_limit=20, timeout_sec=20)
    assert result.exit_code != 0 and 'made them all' not in result.stdout
    assert (await box.run('echo alive', pids_limit=20)).stdout == 'alive'


@pytest.mark.better('a network of its own, not the host\'s')
async def test_a_box_with_a_network_has_one_of_its_own(box: Box):
    port = box.runtime.address.rsplit(':', 1)[1]
    reach = f'import socket; socket.create_connection(("127.0.0.1", {port}), 2)'
    result = await box.run(
        f"tail -n +2 /proc/net/route | wc -l; python3 -c '{reach}'", network='on'
    )
    assert int(result.stdout) > 0
    assert result.exit_code != 0 and 'refused' in result.stderr


@pytest.mark.better('docker can, nsjail cannot')
async def test_a_root_that_is_not_read_only_takes_programs(box: Box):
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
