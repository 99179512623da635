"""The official conformance suite, in both protocol versions.

The expected failures are listed in `conformance-*.yml` with their reasons: most scenarios call tools, prompts and
resources of a reference server. A listed scenario that passes is a failure too.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from support.clients import node_environment, node_program, url


@pytest.mark.usefixtures('priority')
@pytest.mark.parametrize('revision', ['2025-11-25', '2026-07-28'])
def test_conformance(runtime, tmp_path, revision: str):
    expected = Path(__file__).parent / f'conformance-{revision}.yml'
    ended = subprocess.run(
        [
            node_program('conformance'),
            'server',
            '--url',
            f'{url(runtime)}/mcp',
            '--requirements',
            revision,
            '--expected-failures',
            str(expected),
            '--output-dir',
            str(tmp_path),
        ],
        env=node_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 0, f'{ended.stdout[-6000:]}\n{ended.stderr[-2000:]}'
