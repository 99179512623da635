"""Times requests to the daemon with `http.client`.

Arguments: host, port, path of a session. One request for each line of standard input: `exec` runs
`true` in the session, `noop` asks for the daemon's health. One line of output for each: the time of
the request in nanoseconds, or what went wrong.
"""

import http.client
import json
import socket
import sys
import time

host, port, session = sys.argv[1:]
connection = http.client.HTTPConnection(host, int(port), timeout=60)
connection.connect()
connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

REQUESTS = {
    "exec": ("POST", f"{session}/exec", b'{"cmd":"true"}', {"Content-Type": "application/json"}),
    "noop": ("GET", "/v1/health", None, {}),
}

for line in sys.stdin:
    name = line.strip()
    method, path, body, headers = REQUESTS[name]
    started = time.perf_counter_ns()
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    answer = response.read()
    took = time.perf_counter_ns() - started
    if response.status != 200:
        print(f"{method} {path} answered {response.status}: {answer!r}", flush=True)
    elif name == "exec" and json.loads(answer)["exit_code"] != 0:
        print(f"`true` did not succeed: {answer!r}", flush=True)
    else:
        print(took, flush=True)
