"""A stand-in for llama.cpp in process: the same module surface, the same wire, a script instead of weights.

It holds tokens back as the real one does: while the text ends inside a code point nothing is sent, and then only the
last id of the group is told.
"""

from __future__ import annotations

import json
import struct
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

EOS = "<|im_end|>"


def _alphabet() -> dict[int, str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    spelled = {byte: chr(byte) for byte in printable}
    rest = [byte for byte in range(256) if byte not in spelled]
    return spelled | {byte: chr(0x100 + n) for n, byte in enumerate(rest)}


# Two entries that end inside a code point: the first two bytes of many emoji, and a space with the first byte of one.
MERGED = [b"\xf0\x9f", b" \xf0"]
VOCABULARY = [bytes([byte]) for byte in range(256)] + MERGED
TOKENS = ["".join(_alphabet()[byte] for byte in spelled) for spelled in VOCABULARY] + ["<|im_start|>", EOS, "<think>"]
EOS_ID = TOKENS.index(EOS)
THINK_ID = TOKENS.index("<think>")
START_ID = TOKENS.index("<|im_start|>")


def spell(token: int) -> bytes:
    return VOCABULARY[token] if token < len(VOCABULARY) else TOKENS[token].encode()


def write_gguf(path: Path, window: int = 512) -> Path:
    """A GGUF file with a vocabulary and no weights."""
    alphabet = _alphabet()
    merges = [f"{alphabet[m[0]]} {alphabet[m[1]]}" for m in MERGED]
    values: list[tuple[str, Any]] = [
        ("general.architecture", "llama"),
        ("llama.context_length", window),
        ("tokenizer.ggml.model", "gpt2"),
        ("tokenizer.ggml.pre", "smollm"),
        ("tokenizer.ggml.tokens", TOKENS),
        ("tokenizer.ggml.merges", merges),
        ("tokenizer.ggml.token_type", [1] * len(VOCABULARY) + [3, 3, 4]),
        ("tokenizer.ggml.eos_token_id", EOS_ID),
    ]

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value.encode())) + value.encode()

    def value_of(value: Any) -> bytes:
        if isinstance(value, str):
            return struct.pack("<I", 8) + text(value)
        if isinstance(value, int):
            return struct.pack("<II", 4, value)
        if isinstance(value[0], str):
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
        return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)

    body = b"".join(text(key) + value_of(value) for key, value in values)
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + body)
    return path


@dataclass
class Script:
    """What the next generations do. `pause` is slept before each token; `die_after` tokens the stream breaks, and
    behind `wait_after` it says nothing more until the client leaves."""

    tokens: list[int] = field(default_factory=list)
    pause: float = 0.0
    error_after: int | None = None
    die_after: int | None = None
    wait_after: int | None = None
    cached: int = 0
    bodies: list[dict[str, Any]] = field(default_factory=list)
    running: int = 0
    most_running: int = 0
    aborted: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: Script
    key: str
    _runs = False

    def log_message(self, *args: object) -> None: ...

    def _json(self, status: int, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/health":
            self._json(200, {"status": "ok"})
        elif self.headers["Authorization"] != f"Bearer {self.key}":
            self._json(401, {"error": {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}})
        else:
            self._json(200, {"default_generation_settings": {"n_ctx": 512}, "model_alias": "fake", "build_info": "b1"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        script = self.script
        if self.headers["Authorization"] != f"Bearer {self.key}":
            self._json(401, {"error": {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}})
            return
        if self.path == "/detokenize":
            self._json(200, {"content": ""})
            return
        script.bodies.append(body)
        if body.get("grammar") == "bad":
            self._json(
                400, {"error": {"code": 400, "message": "failed to parse grammar", "type": "invalid_request_error"}}
            )
            return
        with script.lock:
            script.running += 1
            script.most_running = max(script.most_running, script.running)
        self._runs = True
        try:
            self._stream(body)
        except (BrokenPipeError, ConnectionResetError):
            script.aborted += 1
        finally:
            self._end()
            self.close_connection = True

    def _end(self) -> None:
        """The slot is free, once."""
        with self.script.lock:
            self.script.running -= self._runs
            self._runs = False

    def _event(self, value: object, name: bytes = b"data") -> None:
        self.wfile.write(name + b": " + json.dumps(value).encode() + b"\n\n")
        self.wfile.flush()

    def _stream(self, body: dict[str, Any]) -> None:
        script = self.script
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        prompt = len(body["prompt"])
        self._event(
            {"content": "", "tokens": [0], "stop": False, "prompt_progress": {"total": prompt, "cache": script.cached}}
        )
        held, count, reason = b"", 0, "limit"
        for token in script.tokens:
            if count == body["n_predict"]:
                break
            if count == script.die_after:
                self.connection.close()
                return
            if count == script.error_after:
                self._event({"code": 500, "message": "the slot broke", "type": "server_error"}, b"error")
                return
            if count == script.wait_after:
                self.connection.settimeout(30)
                self.connection.recv(1)
                return
            time.sleep(script.pause)
            count += 1
            if token == EOS_ID:
                self._event({"content": "", "tokens": [token], "stop": False, "tokens_predicted": count})
                reason = "eos"
                break
            held += b"" if token == START_ID else spell(token)
            try:
                content = held.decode()
            except UnicodeDecodeError:
                continue
            held = b""
            self._event({"content": content, "tokens": [token], "stop": False, "tokens_predicted": count})
        # Whoever reads that it is over may ask for the slot at once.
        self._end()
        self._event(
            {
                "content": "",
                "tokens": [],
                "stop": True,
                "stop_type": reason,
                "tokens_predicted": count,
                "tokens_evaluated": prompt,
                "timings": {"cache_n": script.cached},
            }
        )


def fake_module(script: Script) -> SimpleNamespace:
    """What `import xllamacpp` finds. Loaded parameters are kept in `module.loaded`."""
    module = SimpleNamespace(loaded=[], unloaded=0)

    class CommonParams:
        def __init__(self) -> None:
            self.model = SimpleNamespace(path="")
            self.cpuparams = SimpleNamespace(n_threads=0)
            self.cpuparams_batch = SimpleNamespace(n_threads=0)

    class Server:
        def __init__(self, params: Any) -> None:
            if "broken" in params.model.path:
                raise RuntimeError("failed to load model")
            module.loaded.append(params)
            handler = type("Handler", (_Handler,), {"script": script, "key": params.api_keys[0]})
            self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
            self._http.daemon_threads = True
            threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()
            self.listening_address = f"http://127.0.0.1:{self._http.server_address[1]}"

        def __del__(self) -> None:
            if hasattr(self, "_http"):
                self._http.shutdown()
                self._http.server_close()
                module.unloaded += 1

    module.CommonParams = CommonParams
    module.Server = Server
    return module
