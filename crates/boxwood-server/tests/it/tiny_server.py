"""An MCP server without dependencies: lines in, lines out."""
import json
import os
import sys
import time

TOOLS = ["echo", "pid", "secret", "fail", "hidden"]


class Refusal(Exception):
    """An error of the protocol: its code, and words."""


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "tiny", "version": "1"},
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {
            "tools": [
                {"name": name, "description": "Says " + name, "inputSchema": {"type": "object"}}
                for name in TOOLS
            ]
        }
    if method == "tools/call":
        name, arguments = params["name"], params.get("arguments") or {}
        text = {
            "echo": json.dumps(arguments, sort_keys=True),
            "pid": str(os.getpid()),
            "secret": str(len(os.environ.get("API_KEY", ""))),
            "fail": "it failed",
            "hidden": "seen",
        }.get(name)
        if name == "nap":
            time.sleep(20)
        if name == "broken":
            raise Refusal(-32603, "it is broken")
        if text is None:
            raise Refusal(-32602, f"Unknown tool: {name}")
        return {"content": [{"type": "text", "text": text}], "isError": name == "fail", "x-kept": 1}
    raise Refusal(-32601, "Method not found")


print("tiny server is up", file=sys.stderr, flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    try:
        reply["result"] = answer(message["method"], message.get("params") or {})
    except Refusal as refusal:
        code, words = refusal.args
        reply["error"] = {"code": code, "message": words}
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()
