"""A model for SGLang that says what a playbook tells it: scheduler, cache, tokenizer and parsers are SGLang's own.

Promise: the prompt that is noted is the one that SGLang's cache holds, with what it did not compute again. Loaded by
SGLANG_EXTERNAL_MODEL_PACKAGE=benchmarks.engines.sglang_models; $PLAYBOOK is the folder.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import torch
from sglang.srt.layers.logits_processor import LogitsProcessorOutput
from sglang.srt.model_executor.forward_context import get_req_to_token_pool
from sglang.srt.models.qwen3 import Qwen3ForCausalLM

from benchmarks.engines.playbook import Playbook

IDLE = 1.0


class ScriptedForCausalLM(Qwen3ForCausalLM):  # type: ignore[misc]
    """Qwen3's shape without its weights: nothing is computed, and the script's token gets all the probability."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._playbook = Playbook(Path(os.environ["PLAYBOOK"]))
        # Requests by their row in SGLang's table: where their prompt ends, and what they are answered with.
        self._running: dict[int, tuple[int, list[int]]] = {}
        self._tokens: dict[int, int] = {}
        self._stepped = time.monotonic()
        self._unfinished = False
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        """A turn that is not finished and gets no further step was cancelled by the scheduler."""
        while True:
            time.sleep(0.1)
            if self._unfinished and time.monotonic() - self._stepped > IDLE:
                self._unfinished = False
                self._playbook.left()

    @torch.no_grad()
    def forward(self, input_ids: Any, positions: Any, forward_batch: Any, *arguments: Any, **options: Any) -> Any:
        if (self._playbook.folder / "now").exists():
            period = self._playbook.now()[1]
            if period and not forward_batch.forward_mode.is_extend():
                time.sleep(period)
        for slot, token in zip(forward_batch.out_cache_loc.tolist(), input_ids.tolist(), strict=False):
            self._tokens[slot] = token
        rows, lengths = forward_batch.req_pool_indices.tolist(), forward_batch.seq_lens.tolist()
        logits = torch.full((len(rows), self.config.vocab_size), -1e4, dtype=torch.float32)
        for number, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            if forward_batch.forward_mode.is_extend():
                slots = get_req_to_token_pool().req_to_token[row, :length].tolist()
                self._playbook.hear([self._tokens.get(slot, 0) for slot in slots])
                self._running[row] = (length, self._playbook.now()[0])
            start, script = self._running.get(row, (length, [self.config.eos_token_id]))
            logits[number, script[min(length - start, len(script) - 1)]] = 1e4
            self._unfinished = length - start < len(script) - 1
        self._stepped = time.monotonic()
        return LogitsProcessorOutput(next_token_logits=logits)


EntryClass = ScriptedForCausalLM
