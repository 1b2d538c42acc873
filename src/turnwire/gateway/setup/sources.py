"""Where a model's tokenizer and chat template come from: a folder, a GGUF file, a hub id, files of the operator's.

Promise: explicit flags win; a hub id is only fetched where nothing local answers; what was found is said, and what is
missing names the flag that gives it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from turnwire.engines.embedded.on_disk import file_on_disk
from turnwire.gateway.reference_process import ask_reference
from turnwire.prompts.cache_bounds import CacheBounds
from turnwire.prompts.prompt import Tokenizer
from turnwire.prompts.tokenizers.load import HFTokenizer, TokenizerError, is_gguf, load_tokenizer, read_gguf
from turnwire.prompts.tokenizers.part_cache import PrefixTokenizer

__all__ = ["PromptSource", "SourceError", "find_source"]


_loaded: WeakValueDictionary[bytes, HFTokenizer] = WeakValueDictionary()
"""What models use already: those whose files are equal share one, since a vocabulary takes a hundred megabytes."""


class SourceError(ValueError):
    """No usable tokenizer or template; the message says which flag to set."""


class PromptSource(msgspec.Struct, kw_only=True):
    """A tokenizer, a template (None: the model ships none), the template's bos/eos texts, every text that ends a turn,
    and where they came from. `builtin`: the project's own template may stand in."""

    tokenizer: Tokenizer
    template: str | None = None
    bos: str = ""
    eos: str = ""
    ends: tuple[str, ...] = ()
    origin: str = "built in"
    builtin: bool = False


def find_source(
    model: str | None, *, tokenizer: str | None, template: str | None, builtin: bool, bounds: CacheBounds
) -> PromptSource:
    """The prompt side of a model. `builtin` allows the project's own template and tokenizer where nothing is named."""
    if tokenizer is not None:
        tokenizer = _named(tokenizer)
    place = tokenizer or model
    source: PromptSource | None = None
    if tokenizer is None and builtin and not (model and _is_local(model)):
        source = PromptSource(tokenizer=PrefixTokenizer(load_tokenizer(None), max_bytes=bounds.parts))
    elif place is None:
        raise SourceError("This engine needs --model (a folder or hub id) or --tokenizer to know how to write prompts.")
    else:
        folder = _folder(place)
        try:
            found = load_tokenizer(folder, ask_reference=ask_reference, known=_loaded)
            own = PrefixTokenizer(found, max_bytes=bounds.parts)
            source = PromptSource(tokenizer=own, origin=place)
        except TokenizerError as error:
            raise SourceError(f"No tokenizer in {place}: {error}. Give one with --tokenizer.") from None
        if is_gguf(folder):
            _from_gguf(source, folder)
        else:
            config = _config(folder)
            source.template = _template_text(folder, config)
            source.bos, source.eos = _token(config, "bos_token"), _token(config, "eos_token")
            source.ends = _ends(folder, source.tokenizer)
    if template is not None:
        try:
            source.template = Path(template).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SourceError(f"The template {template} cannot be read: {error}") from None
    source.builtin = builtin
    return source


def _is_local(place: str) -> bool:
    return Path(place).exists()


def _named(tokenizer: str) -> str:
    """The file of a model on disk that is called so; a path or a hub id as it is."""
    if _is_local(tokenizer) or ("/" in tokenizer and ":" not in tokenizer):
        return tokenizer
    return file_on_disk(tokenizer) or tokenizer


def _folder(place: str) -> str:
    """A local path as it is; a hub id is fetched into the hub's own cache."""
    if _is_local(place):
        return place
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    patterns = ["tokenizer*", "*.jinja", "tekken.json", "*.tiktoken", "generation_config.json"]
    try:
        return str(huggingface_hub.snapshot_download(place, allow_patterns=patterns))
    except HFValidationError:
        why = "it is not a hub id (MAKER/NAME)"
    except LocalEntryNotFoundError:
        why = "the hub cannot be reached, and it was not fetched before"
    except HfHubHTTPError as error:
        why = f"the hub answers {error.response.status_code} for it"
    except OSError as error:
        why = f"the hub cannot be reached ({type(error).__name__})"
    raise SourceError(f"There is no folder {place} here, and {why}. Give --tokenizer FOLDER and --template FILE.")


def _from_gguf(source: PromptSource, path: str) -> None:
    """Template and tokens that a model file carries itself."""
    facts = read_gguf(path)
    source.template = facts.chat_templates.get("tool_use") or facts.chat_template
    decode = source.tokenizer.decode
    source.bos = decode([facts.bos_id]) if facts.bos_id is not None else ""
    source.eos = decode([facts.eos_id]) if facts.eos_id is not None else ""


def _config(folder: str) -> dict[str, Any]:
    path = Path(folder) / "tokenizer_config.json"
    if not path.is_file():
        return {}
    try:
        config = msgspec.json.decode(path.read_bytes())
    except msgspec.DecodeError as error:
        raise SourceError(f"{path} is not valid JSON: {error}") from None
    return config if isinstance(config, dict) else {}


def _template_text(folder: str, config: dict[str, Any]) -> str | None:
    path = Path(folder)
    if path.is_dir() and (path / "chat_template.jinja").is_file():
        return (path / "chat_template.jinja").read_text(encoding="utf-8")
    templates = config.get("chat_template")
    if isinstance(templates, list):
        # Some models ship one template for tools beside the default one.
        named = {entry.get("name"): entry.get("template") for entry in templates if isinstance(entry, dict)}
        templates = named.get("tool_use") or named.get("default")
    return templates if isinstance(templates, str) else None


def _ends(folder: str, tokenizer: Tokenizer) -> tuple[str, ...]:
    """The texts of every token that the model's generation config stops at."""
    path = Path(folder) / "generation_config.json"
    try:
        config = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError):
        return ()
    ids = config.get("eos_token_id") if isinstance(config, dict) else None
    known = [ids] if isinstance(ids, int) else ids if isinstance(ids, list) else []
    return tuple(tokenizer.decode([token]) for token in known if isinstance(token, int))


def _token(config: dict[str, Any], name: str) -> str:
    token = config.get(name)
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""
