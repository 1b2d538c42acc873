"""Tokenizers given as ranked byte strings: tiktoken-style files and mistral-common's tekken.json.

Promise: the ids are those of the library the file comes from. A rank is a token's id (plus an offset) and its merge
priority, so every way to put a token together from two shorter ones becomes a merge.
"""

from __future__ import annotations

import binascii
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from turnwire.prompts.tokenizers.detokenizer import byte_alphabet
from turnwire.prompts.tokenizers.patterns import BY_FILE_NAME, PATTERNS
from turnwire.prompts.tokenizers.reference import TokenizerError, import_tokenizers

if TYPE_CHECKING:
    import tokenizers

__all__ = ["byte_level", "from_tekken", "from_tiktoken"]

_MOST_TOKENS = 2_000_000


class _TekkenToken(msgspec.Struct):
    rank: int
    token_bytes: str


class _TekkenSpecial(msgspec.Struct):
    rank: int
    token_str: str
    is_control: bool = True


class _TekkenConfig(msgspec.Struct):
    pattern: str
    default_vocab_size: int
    default_num_special_tokens: int


class _Tekken(msgspec.Struct):
    config: _TekkenConfig
    vocab: list[_TekkenToken]
    special_tokens: list[_TekkenSpecial] | None = None


# Files older than the `special_tokens` list: the first names are fixed, the rest are numbered.
_TEKKEN_SPECIAL = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]"),
    *("[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)


def from_tiktoken(
    raw: bytes, name: str, *, pattern: str | None, added: dict[str, tuple[int, bool]]
) -> tokenizers.Tokenizer:
    """A `.tiktoken` file (base64 bytes and a rank on each line) called `name`. `pattern` names a table entry or is an
    expression itself; `added` maps the added tokens' texts to their id and whether they are special."""
    ranks: dict[bytes, int] = {}
    try:
        for line in raw.splitlines():
            if line:
                token, _, rank = line.partition(b" ")
                ranks[binascii.a2b_base64(token)] = int(rank)
    except ValueError as error:
        raise TokenizerError(f"{name}: not a tiktoken ranks file ({error})") from None
    if not ranks or len(ranks) > _MOST_TOKENS:
        raise TokenizerError(f"{name}: {len(ranks)} ranks; expected between 1 and {_MOST_TOKENS}")
    return byte_level(ranks, _expressions(name, pattern), added)


def from_tekken(raw: bytes, name: str) -> tokenizers.Tokenizer:
    """A `tekken.json` file called `name`: pattern, ranks and special tokens in one."""
    try:
        tekken = msgspec.json.decode(raw, type=_Tekken)
        config = tekken.config
        first = config.default_num_special_tokens
        kept = tekken.vocab[: config.default_vocab_size - first]
        ranks = {binascii.a2b_base64(token.token_bytes): token.rank + first for token in kept}
    except (ValueError, msgspec.MsgspecError) as error:
        raise TokenizerError(f"{name}: not a tekken.json file ({error})") from None
    listed = tekken.special_tokens
    if listed is None:
        listed = [_TekkenSpecial(rank, text) for rank, text in enumerate(_TEKKEN_SPECIAL)]
    added = {token.token_str: (token.rank, token.is_control) for token in listed}
    taken = {rank for rank, _ in added.values()}
    added |= {f"<SPECIAL_{rank}>": (rank, True) for rank in range(first) if rank not in taken}
    return byte_level(ranks, (config.pattern,), added)


def byte_level(
    ranks: dict[bytes, int],
    expressions: Sequence[str],
    added: dict[str, tuple[int, bool]],
    *,
    merges: list[tuple[str, str]] | None = None,
    whole_words: bool = True,
) -> tokenizers.Tokenizer:
    """A byte-level BPE tokenizer from tokens' bytes and ids. Without `merges` they follow from the ranks.
    `whole_words`: a word that is a token stays one, even if no merges lead to it."""
    library = import_tokenizers()
    letters = {byte: char for char, byte in byte_alphabet().items()}
    spelled = {token: "".join(map(letters.__getitem__, token)) for token in ranks}
    vocab = {spelled[token]: rank for token, rank in ranks.items()}
    if merges is None:
        merges = _merges(vocab)
    # The model knows the added tokens too, so that each keeps its own id when it is added below.
    vocab |= {text: id_ for text, (id_, _) in added.items() if text not in vocab}
    try:
        inner: tokenizers.Tokenizer = library.Tokenizer(
            library.models.BPE(vocab=vocab, merges=merges, ignore_merges=whole_words)
        )
    except Exception as error:  # the library raises bare Exceptions
        raise TokenizerError(f"the vocabulary and its merges do not fit together: {error}") from None
    steps = [library.pre_tokenizers.Split(library.Regex(each), behavior="isolated") for each in expressions]
    steps.append(library.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    inner.pre_tokenizer = library.pre_tokenizers.Sequence(steps)
    inner.decoder = library.decoders.ByteLevel()
    for special in (True, False):
        texts = [text for text, (_, is_special) in added.items() if is_special == special]
        tokens = [library.AddedToken(text, normalized=False, special=special) for text in texts]
        if special:
            inner.add_special_tokens(tokens)
        else:
            inner.add_tokens(tokens)
    return inner


def _merges(vocab: dict[str, int]) -> list[tuple[str, str]]:
    """Every pair of tokens that makes a third, in the order of the third's rank, longer left parts last."""
    found: list[tuple[int, int, int, str, str]] = []
    for token, rank in vocab.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocab and right in vocab:
                found.append((rank, vocab[left], vocab[right], left, right))
    found.sort()
    return [(left, right) for _, _, _, left, right in found]


def _expressions(name: str, pattern: str | None) -> Sequence[str]:
    if pattern is not None:
        return PATTERNS.get(pattern, (pattern,))
    for contained, known in BY_FILE_NAME:
        if contained in name.lower():
            return PATTERNS[known]
    raise TokenizerError(
        f"{name}: a ranks file does not say how text is split into words; give pattern= as one of "
        f"{', '.join(sorted(PATTERNS))} or as a regular expression"
    )
