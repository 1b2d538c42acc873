"""Several user turns in one Codex process, over its app server: one JSON row per finished turn.

Arguments: the working folder, then the prompts.
"""

import json
import subprocess
import sys

folder, *prompts = sys.argv[1:]
server = subprocess.Popen(["codex", "app-server"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
serial = 0


def send(message):
    server.stdin.write(json.dumps(message) + "\n")
    server.stdin.flush()


def until(wanted):
    for row in server.stdout:
        message = json.loads(row)
        if wanted(message):
            return message
    raise SystemExit("the app server went away")


def ask(method, params):
    global serial
    serial += 1
    send({"jsonrpc": "2.0", "id": serial, "method": method, "params": params})
    answer = until(lambda message: message.get("id") == serial and "method" not in message)
    if "error" in answer:
        raise SystemExit(json.dumps(answer["error"]))
    return answer["result"]


ask("initialize", {"clientInfo": {"name": "turnwire-tests", "version": "1"}})
send({"jsonrpc": "2.0", "method": "initialized"})
thread = ask("thread/start", {"cwd": folder})["thread"]["id"]
for prompt in prompts:
    ask("turn/start", {"threadId": thread, "input": [{"type": "text", "text": prompt}]})
    turn = until(lambda message: message.get("method") == "turn/completed")["params"]["turn"]
    print(json.dumps({"status": turn["status"], "error": turn.get("error")}), flush=True)
server.stdin.close()
server.terminate()
server.wait(10)
