"""Access to `/mcp`: authentication, origins, limits."""

from __future__ import annotations

import http.client
import json
import time

import pytest

from harness import daemon

INITIALIZE = {
    'jsonrpc': '2.0',
    'id': 1,
    'method': 'initialize',
    'params': {
        'protocolVersion': '2025-11-25',
        'capabilities': {},
        'clientInfo': {'name': 'test', 'version': '1'},
    },
}


def post(runtime, headers: dict[str, str], method: str = 'POST', body=INITIALIZE):
    host, port = runtime.address.rsplit(':', 1)
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    standard = {
        'Content-Type': 'application/json',
        'Accept': 'application/json, text/event-stream',
    }
    connection.request(method, '/mcp', json.dumps(body), standard | headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def test_a_local_client_needs_no_token(runtime):
    answer = post(runtime, {})
    assert answer.status == 200
    assert answer.getheader('Mcp-Session-Id')


@pytest.mark.parametrize(
    'headers',
    [
        {'Origin': 'http://evil.example'},
        {'Origin': 'null'},
        {'Host': 'evil.example'},
        {'Sec-Fetch-Site': 'cross-site'},
    ],
)
def test_requests_of_another_origin_are_refused(runtime, headers):
    assert post(runtime, headers).status == 403


def test_a_wrong_token_is_refused(runtime):
    answer = post(runtime, {'Authorization': 'Bearer wrong'})
    assert answer.status == 401
    assert answer.getheader('WWW-Authenticate') == 'Bearer'


def test_an_oversized_body_is_refused(runtime):
    endless = INITIALIZE | {'padding': 'x' * (17 * 1024 * 1024)}
    assert post(runtime, {}, body=endless).status == 413


def test_a_session_can_be_ended_once(runtime):
    session = post(runtime, {}).getheader('Mcp-Session-Id')
    headers = {'Mcp-Session-Id': session}
    assert post(runtime, headers, 'DELETE').status == 204
    ping = {'jsonrpc': '2.0', 'id': 2, 'method': 'ping'}
    assert post(runtime, headers, body=ping).status == 404


def test_an_open_stream_does_not_delay_the_shutdown(tmp_path):
    stopping = daemon.Daemon(tmp_path)
    try:
        session = post(stopping, {}).getheader('Mcp-Session-Id')
        host, port = stopping.address.rsplit(':', 1)
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        headers = {'Accept': 'text/event-stream', 'Mcp-Session-Id': session}
        connection.request('GET', '/mcp', headers=headers)
        stream = connection.getresponse()
        assert stream.status == 200 and stream.readline()
        started = time.monotonic()
        stopping.stop()
        # The daemon closes the stream, and does not wait for the client's timeout of 30 s.
        assert time.monotonic() - started < 15
        stream.read()
        connection.close()
    finally:
        stopping.kill()
