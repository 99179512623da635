"""The official suite on a server of ours, directly and through the gateway, in both protocol versions.

Every check that the server itself passes has to pass through the gateway, or stands in
`failures.json` with its reason: also one that is no longer made. The numbers stand in `docs/mcp.md`, and
this test fails when that page is no longer true. With `BOXWOOD_TEST_LONG=1` two other gateways are measured again
in the same run; without it, their written numbers are compared. `BOXWOOD_TEST_WRITE=1` measures all of them and
writes the numbers.
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

from support.gateways import REVISIONS, Verdict, direct, fixture, judge, python_proxy, supergateway
from support.hosted import SUITE, Host
from support.clients import LONG

NUMBERS = Path(__file__).with_name('numbers.json')
REASONS = Path(__file__).with_name('failures.json')
PAGE = SUITE.parents[1] / 'docs/mcp.md'

#: In the order of the page.
TARGETS = ['the server itself', 'Boxwood', 'Boxwood, legacy server', 'supergateway', 'mcp-proxy']
OURS = TARGETS[1:3]
OTHERS = TARGETS[3:]
#: How far others may be from what is written: they meet their timeouts differently from run to run.
SWAY = 40
WRITES = bool(os.environ.get('BOXWOOD_TEST_WRITE'))
MEASURED = TARGETS if LONG or WRITES else TARGETS[:3]


@pytest.fixture(scope='module')
def verdicts(priority: None, hosting: Host, tmp_path_factory: pytest.TempPathFactory) -> dict:
    place = tmp_path_factory.mktemp('conformance')
    # A directory of its own, because a box sees all of it; and itself, because the program is large.
    project = place / 'fixture'
    project.mkdir()
    program = project / 'conformance_server'
    shutil.copy(fixture(), program)
    box = {'host_path': str(project), 'host_path_mode': 'rw'}
    hosting.add('fixture', str(program), box=box)
    hosting.add('fixture-older', str(program), '--legacy', box=box)
    hosting.connected('fixture', 60)
    hosting.connected('fixture-older', 60)
    found: dict[str, dict[str, Verdict]] = {target: {} for target in MEASURED}

    def look(job: tuple[str, str, str]) -> None:
        target, address, revision = job
        output = place / f'{target} {revision}'.replace(' ', '-')
        started = time.monotonic()
        verdict = found[target][revision] = judge(address, revision, output)
        took = time.monotonic() - started
        print(f'{target}, {revision}: {took:.0f} s, {verdict.numbers()}')

    with contextlib.ExitStack() as stack:
        addresses = {
            'the server itself': stack.enter_context(direct()),
            'Boxwood': f'{hosting.url}/mcp/fixture',
            'Boxwood, legacy server': f'{hosting.url}/mcp/fixture-older',
        }
        if 'supergateway' in MEASURED:
            addresses['supergateway'] = stack.enter_context(supergateway(fixture()))
            addresses['mcp-proxy'] = stack.enter_context(python_proxy(fixture()))
        jobs = [(t, addresses[t], revision) for revision in REVISIONS for t in MEASURED]
        # What waits longest begins first. Several at a time: most of it is waiting.
        jobs.sort(key=lambda job: job[0] != OURS[1] or job[2] != REVISIONS[1])
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(look, jobs))
    hosting.remove('fixture')
    hosting.remove('fixture-older')
    numbers = {
        target: {revision: verdict.numbers() for revision, verdict in by_revision.items()}
        for target, by_revision in found.items()
    }
    (place / 'numbers.json').write_text(json.dumps(numbers, indent=2))
    if WRITES:
        NUMBERS.write_text(json.dumps(numbers, indent=2) + '\n')
        PAGE.write_text(with_table(PAGE.read_text(), numbers))
    return found


def is_as_written(target: str, measured: dict, kept: dict) -> bool:
    if target in OTHERS:
        return all(abs(measured[what] - kept[what]) <= SWAY for what in ['passed', 'failed'])
    return measured == kept


@pytest.mark.parametrize('revision', REVISIONS)
@pytest.mark.parametrize('target', OURS)
def test_what_the_server_passes_passes_through_the_gateway(verdicts, target: str, revision: str):
    worse = verdicts[target][revision].worse_than(verdicts['the server itself'][revision])
    listed = json.loads(REASONS.read_text())[target][revision]
    explained = {check for reason in listed for check in reason['checks']}
    unexplained = {name: why for name, why in worse.items() if name not in explained}
    assert not unexplained, json.dumps(unexplained, indent=2)
    stale = explained - set(worse)
    assert not stale, f'listed, but they pass: {sorted(stale)}'
    assert all(reason['why'] for reason in listed)


def test_the_page_has_the_numbers(verdicts):
    written = json.loads(NUMBERS.read_text())
    for target in MEASURED:
        for revision in REVISIONS:
            measured = verdicts[target][revision].numbers()
            kept = written[target][revision]
            assert is_as_written(target, measured, kept), (target, revision, measured, kept)
    assert with_table(PAGE.read_text(), written) == PAGE.read_text()


@pytest.mark.parametrize('revision', REVISIONS)
def test_no_other_gateway_does_better(verdicts, revision: str):
    ours = verdicts['Boxwood'][revision].numbers()
    for other in OTHERS:
        if other in MEASURED:
            theirs = verdicts[other][revision].numbers()
        else:
            theirs = json.loads(NUMBERS.read_text())[other][revision]
        assert ours['failed'] <= theirs['failed'] and ours['passed'] >= theirs['passed'], other


def with_table(page: str, numbers: dict) -> str:
    """The page, with the table between its two marks made of these numbers."""
    lines = ['| | 2025-11-25 | 2026-07-28 |', '|---|---|---|']
    for target in TARGETS:
        cells = []
        for revision in REVISIONS:
            got = numbers[target][revision]
            cells.append(f'{got["passed"]} passed, {got["failed"]} failed')
        lines.append(f'| {target} | {" | ".join(cells)} |')
    table = '<!-- conformance -->\n' + '\n'.join(lines) + '\n<!-- /conformance -->'
    pattern = re.compile('<!-- conformance -->.*<!-- /conformance -->', re.DOTALL)
    assert pattern.search(page), 'the page has no place for the numbers'
    return pattern.sub(lambda _: table, page)
