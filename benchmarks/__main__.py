"""`python -m benchmarks COMMAND`: the measurements by name."""

from __future__ import annotations

import importlib
import sys

COMMANDS = {
    "install": ("benchmarks.peers.cache", "put the peers into the cache"),
    "stream": ("benchmarks.commands.stream", "CPU per output token, saturated and paced"),
    "turn_cost": ("benchmarks.commands.turn_cost", "CPU per short turn behind a long history"),
    "first_token": ("benchmarks.commands.first_token", "time to first token of a 52K prompt"),
    "prefix": ("benchmarks.commands.prefix", "what a stable prefix is worth on a real engine"),
    "fidelity": ("benchmarks.commands.fidelity", "real clients on real templates: is every turn read again exactly"),
    "restarts": ("benchmarks.commands.restarts", "tool loops over restarted gateways and replicas, on every template"),
    "laws": ("benchmarks.commands.laws", "no leak, no forged control, opaque values: of this checkout and others"),
    "lateness": ("benchmarks.commands.lateness", "how late tokens are among 64 paced streams"),
    "loop_pauses": ("benchmarks.commands.loop_pauses", "how long others wait while large bodies arrive"),
    "memory": ("benchmarks.commands.memory", "a thousand paced streams: memory, CPU, lateness"),
    "replicas": ("benchmarks.commands.replicas", "turns over several processes, some of them killed"),
    "redis_outage": ("benchmarks.replicas.outage", "what an outage of Redis does to each kind of request"),
    "ray_storm": ("benchmarks.ray.storm", "turns over replicas on several Ray nodes, some of them killed"),
    "ray_modes": ("benchmarks.ray.modes", "CPU per output token in each way to serve on Ray"),
    "thinking": ("benchmarks.commands.thinking", "thoughts against their budget on a real engine"),
    "conformance": ("benchmarks.commands.conformance", "judge the servers by `turnwire conformance`, write its page"),
    "processes": ("benchmarks.commands.processes", "tokens a second against the number of processes"),
    "scale": ("benchmarks.commands.scale", "what a million sessions need, from the result files"),
    "routing": ("benchmarks.commands.routing", "policies of routing over modelled agents and workers"),
    "routing_workers": ("benchmarks.commands.routing_workers", "routing on real vLLM and SGLang: beliefs and policies"),
    "read_ahead": ("benchmarks.commands.read_ahead", "what reading the next prompt ahead is worth on a real vLLM"),
    "observing": ("benchmarks.observing", "what an open console and capture cost"),
    "soak": ("benchmarks.commands.soak", "hours of mixed work, with curves of memory and descriptors"),
    "peers": ("benchmarks.commands.peers", "Turnwire beside all its peers, for the README's table"),
    "parity": ("benchmarks.commands.parity", "`turnwire parity` on the embedded coder"),
    "quiet": ("benchmarks.commands.quiet", "the six measurements of the README's table, for a quiet machine"),
    "endurance": ("benchmarks.commands.endurance", "a hundred thousand turns: memory over the turns"),
    "storm": ("benchmarks.commands.storm", "turns in front of servers that fail in some forty ways"),
    "starvation": ("benchmarks.commands.starvation", "one tenant floods: how long another waits"),
    "fuzz": ("benchmarks.commands.fuzz", "bad requests over every route: no 500, no broken stream"),
    "parsers": ("benchmarks.parsers", "CPU per token of the parser alone, beside vLLM's and SGLang's"),
    "figures": ("benchmarks.figures", "write the README's table from the result files"),
}


def main() -> int:
    """Run one command."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name not in COMMANDS:
        print("python -m benchmarks COMMAND [--help]\n")
        for command, (_, about) in COMMANDS.items():
            print(f"  {command:12} {about}")
        return 0 if name in ("", "-h", "--help") else 2
    importlib.import_module(COMMANDS[name][0]).main(sys.argv[2:])
    return 0


if __name__ == "__main__":
    sys.exit(main())
