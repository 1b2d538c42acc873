"""RL rollouts that keep the exact ids: an agent plays episodes, and training gets the very tokens it read and wrote.

    turnwire serve --capture captures ...          # the gateway keeps every turn with its ids
    python rollout.py [URL] [CAPTURES] [OUTPUT]    # plays, scores, writes samples

Rendering a finished conversation again for training gives other tokens than the model sampled: whitespace, argument
order and dropped thoughts all differ. Here nothing is rendered again. Each line of the output has the ids of a whole
episode, a mask that is 1 exactly where the model sampled, and the episode's reward.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from turnwire.agent import Answered, ChatSession
from turnwire.capture.reading import Capture, read_capture
from turnwire.capture.samples import samples

TASKS = [("What is 17 + 25?", "42"), ("What is 8 * 9?", "72")]


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


def play(url: str, number: int, question: str, wanted: str) -> tuple[float, int]:
    """One episode: its reward (whether the answer holds what was wanted) and how many turns it took."""
    # The header names the session, by which the captured turns are found again.
    headers = {"x-session-id": f"episode-{number}"}
    with ChatSession(url, tools=[add, multiply], headers=headers, options={"max_tokens": 300}) as session:
        ended = session.chat(question)
    return float(isinstance(ended, Answered) and wanted in ended.text), ended.steps


def captured(folder: str, turns: int) -> Capture:
    """What was captured, once all turns are there: the gateway writes them after it has answered."""
    while True:
        with ExitStack() as stack:
            files = [stack.enter_context(path.open("rb")) for path in sorted(Path(folder).glob("*.zst"))]
            capture = read_capture(*files)
        if len(capture.turns) >= turns:
            return capture
        time.sleep(0.1)


def main(url: str = "http://127.0.0.1:8390", captures: str = "captures", output: str = "samples.jsonl") -> None:
    """Play every task, then write one line per captured sample."""
    played = {f"episode-{number}": play(url, number, *task) for number, task in enumerate(TASKS)}
    capture = captured(captures, sum(steps for _, steps in played.values()))
    with open(output, "w") as out:
        for sample in samples(capture.turns, {name: model.tokenizer for name, model in capture.models.items()}):
            reward, _ = played.get(sample.session or "", (None, 0))
            line = {"ids": sample.ids, "loss_mask": sample.loss_mask, "reward": reward, "session": sample.session}
            out.write(json.dumps(line) + "\n")
            print(f"{sample.session}: {len(sample.ids)} ids, {sum(sample.loss_mask)} sampled, reward {reward}")


if __name__ == "__main__":
    main(*sys.argv[1:4])
