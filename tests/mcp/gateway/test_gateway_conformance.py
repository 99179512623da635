"""The official conformance suite on a test server, directly and through the gateway, in both protocol versions.

Every check that the server itself passes must pass through the gateway, or is listed in `failures.json` with the
reason, including checks that no longer run. The numbers are in `docs/mcp.md`; a test fails if they are not current.
With `BOXWOOD_TEST_LONG=1` two other gateways are measured in the same run; without it, the recorded numbers of them
are compared. `BOXWOOD_TEST_WRITE=1` measures everything and writes the numbers.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.clients import LONG
from support.gateways import (
    REVISIONS,
    Results,
    direct,
    fixture,
    mcp_proxy_gateway,
    run_conformance,
    supergateway,
)
from support.hosted import SUITE, Host

NUMBERS = Path(__file__).with_name('numbers.json')
REASONS = Path(__file__).with_name('failures.json')
PAGE = SUITE.parents[1] / 'docs/mcp.md'

#: In the order of the table in `docs/mcp.md`.
TARGETS = ['the server itself', 'Boxwood', 'Boxwood, legacy server', 'supergateway', 'mcp-proxy']
BOXWOOD = TARGETS[1:3]
OTHERS = TARGETS[3:]
#: Allowed difference from the recorded numbers of other gateways, whose timeouts vary between runs.
TOLERANCE = 40
WRITES = bool(os.environ.get('BOXWOOD_TEST_WRITE'))
MEASURED = TARGETS if LONG or WRITES else TARGETS[:3]


@pytest.fixture(scope='module')
def results(priority: None, hosting: Host, tmp_path_factory: pytest.TempPathFactory) -> dict:
    directory = tmp_path_factory.mktemp('conformance')
    # In a directory of its own, because the directory of the program is mounted into the box.
    project = directory / 'fixture'
    project.mkdir()
    program = project / 'conformance_server'
    shutil.copy(fixture(), program)
    box = {'host_path': str(project), 'host_path_mode': 'rw'}
    hosting.add('fixture', str(program), box=box)
    hosting.add('fixture-older', str(program), '--legacy', box=box)
    hosting.connected('fixture', 60)
    hosting.connected('fixture-older', 60)
    found: dict[str, dict[str, Results]] = {target: {} for target in MEASURED}

    def measure(job: tuple[str, str, str]) -> None:
        target, address, revision = job
        output = directory / f'{target} {revision}'.replace(' ', '-')
        started = time.monotonic()
        result = found[target][revision] = run_conformance(address, revision, output)
        took = time.monotonic() - started
        print(f'{target}, {revision}: {took:.0f} s, {result.numbers()}')

    with contextlib.ExitStack() as stack:
        addresses = {
            'the server itself': stack.enter_context(direct()),
            'Boxwood': f'{hosting.url}/mcp/fixture',
            'Boxwood, legacy server': f'{hosting.url}/mcp/fixture-older',
        }
        if 'supergateway' in MEASURED:
            addresses['supergateway'] = stack.enter_context(supergateway(fixture()))
            addresses['mcp-proxy'] = stack.enter_context(mcp_proxy_gateway(fixture()))
        jobs = [(t, addresses[t], revision) for revision in REVISIONS for t in MEASURED]
        # The longest run starts first. Three run at a time, because they mostly wait.
        jobs.sort(key=lambda job: job[0] != BOXWOOD[1] or job[2] != REVISIONS[1])
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(measure, jobs))
    hosting.remove('fixture')
    hosting.remove('fixture-older')
    numbers = {
        target: {revision: result.numbers() for revision, result in by_revision.items()}
        for target, by_revision in found.items()
    }
    (directory / 'numbers.json').write_text(json.dumps(numbers, indent=2))
    if WRITES:
        NUMBERS.write_text(json.dumps(numbers, indent=2) + '\n')
        PAGE.write_text(with_table(PAGE.read_text(), numbers))
    return found


def is_current(target: str, measured: dict, recorded: dict) -> bool:
    if target in OTHERS:
        return all(abs(measured[what] - recorded[what]) <= TOLERANCE for what in ['passed', 'failed'])
    return measured == recorded


@pytest.mark.parametrize('revision', REVISIONS)
@pytest.mark.parametrize('target', BOXWOOD)
def test_checks_that_the_server_passes_also_pass_through_the_gateway(results, target: str, revision: str):
    worse = results[target][revision].worse_than(results['the server itself'][revision])
    listed = json.loads(REASONS.read_text())[target][revision]
    explained = {check for reason in listed for check in reason['checks']}
    unexplained = {name: why for name, why in worse.items() if name not in explained}
    assert not unexplained, json.dumps(unexplained, indent=2)
    stale = explained - set(worse)
    assert not stale, f'listed as failures, but they pass: {sorted(stale)}'
    assert all(reason['why'] for reason in listed)


def test_the_documented_numbers_are_current(results):
    written = json.loads(NUMBERS.read_text())
    for target in MEASURED:
        for revision in REVISIONS:
            measured = results[target][revision].numbers()
            recorded = written[target][revision]
            assert is_current(target, measured, recorded), (target, revision, measured, recorded)
    assert with_table(PAGE.read_text(), written) == PAGE.read_text()


@pytest.mark.parametrize('revision', REVISIONS)
def test_no_other_gateway_does_better(results, revision: str):
    ours = results['Boxwood'][revision].numbers()
    for other in OTHERS:
        if other in MEASURED:
            theirs = results[other][revision].numbers()
        else:
            theirs = json.loads(NUMBERS.read_text())[other][revision]
        assert ours['failed'] <= theirs['failed'] and ours['passed'] >= theirs['passed'], other


def with_table(page: str, numbers: dict) -> str:
    """Returns the page with these numbers in the table between its two marks."""
    lines = ['| | 2025-11-25 | 2026-07-28 |', '|---|---|---|']
    for target in TARGETS:
        cells = []
        for revision in REVISIONS:
            got = numbers[target][revision]
            cells.append(f'{got["passed"]} passed, {got["failed"]} failed')
        lines.append(f'| {target} | {" | ".join(cells)} |')
    table = '<!-- conformance -->\n' + '\n'.join(lines) + '\n<!-- /conformance -->'
    pattern = re.compile('<!-- conformance -->.*<!-- /conformance -->', re.DOTALL)
    assert pattern.search(page), 'the page has no marks for the table'
    return pattern.sub(lambda _: table, page)
