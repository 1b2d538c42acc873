"""A Jinja environment for chat templates that behaves as model authors expect and cannot run away.

Promise: the same output as the reference set-up (trimmed blocks, loop controls, `tojson` that keeps Unicode, generation
tags), no access to Python internals, and a bound on steps and size, so that a bad template ends in TemplateFailure.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import meta, nodes
from jinja2.ext import Extension, LoopControlExtension
from jinja2.filters import do_format, do_replace, sync_do_join
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

__all__ = ["Budget", "TemplateFailure", "compile_template", "render_template", "variables_of"]

MAX_STEPS = 5_000_000
MAX_OUTPUT = 64 * 1024 * 1024
MAX_DEPTH = 128
_BUDGET = "__turnwire_budget__"
_WIDEST = 1_000_000
_PADDING = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs"})
_TEXT_ONLY = frozenset({str})


class TemplateFailure(Exception):
    """A template could not be compiled or rendered. `kind` is `syntax`, `refused` (the template itself raised),
    `forbidden` (the sandbox said no), `budget` (too many steps or too much output), `blank` (it leaves out the user's
    words) or `error`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class _Refused(jinja2.TemplateError):
    """What `raise_exception` raises inside a template."""


class _Exhausted(jinja2.TemplateError):
    """The budget ran out."""


class Budget:
    """How much one rendering may still do."""

    __slots__ = ("depth", "output", "steps")

    def __init__(self, steps: int = MAX_STEPS, output: int = MAX_OUTPUT, depth: int = MAX_DEPTH) -> None:
        self.steps = steps
        self.output = output
        self.depth = depth

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise _Exhausted("the chat template takes too many steps")

    def check_size(self, size: int) -> None:
        if size > self.output:
            raise _Exhausted("the chat template builds too long a text")


class _GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks assistant text for training; here it is transparent."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        # A block scope of its own, as the reference does: what is set inside stays inside.
        return nodes.CallBlock(self.call_method("_pass"), [], [], body).set_lineno(lineno)

    def _pass(self, caller: Callable[[], str]) -> str:
        return caller()


def _budget_of(context: Context) -> Budget:
    budget = context.parent.get(_BUDGET)
    return budget if type(budget) is Budget else Budget()


@jinja2.pass_context
def _counted(context: Context, iterable: Any) -> Any:
    """Charges a loop's iterations to the budget; a sized iterable passes through untouched."""
    budget = _budget_of(context)
    if isinstance(iterable, Sized):
        budget.spend(len(iterable) + 1)
        return iterable
    if isinstance(iterable, Iterable):
        return _metered(iterable, budget)
    return iterable


def _metered(iterable: Iterable[Any], budget: Budget) -> Iterator[Any]:
    for item in iterable:
        budget.spend(1)
        yield item


@jinja2.pass_context
def _sized(context: Context, text: str) -> str:
    _budget_of(context).check_size(len(text))
    return text


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if not (ensure_ascii or sort_keys) and indent is None and separators is None:
        return _PLAIN_JSON.encode(value)
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
        default=_listed,
    )


def _listed(value: Any) -> Any:
    """Lets a filter's lazy result be written as the list it stands for."""
    if isinstance(value, Iterator):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


_PLAIN_JSON = json.JSONEncoder(ensure_ascii=False, default=_listed)


def _from_json(text: Any) -> Any:
    return json.loads(text) if isinstance(text, str) else text


def _raise_exception(message: object) -> NoReturn:
    raise _Refused(str(message))


_DICT_NAMES = frozenset(dir(dict))
_PLAIN_NAMES: dict[type, frozenset[str]] = {
    LoopContext: frozenset(
        (
            "depth",
            "depth0",
            "first",
            "index",
            "index0",
            "last",
            "length",
            "nextitem",
            "previtem",
            "revindex",
            "revindex0",
        )
    ),
    str: frozenset(name for name in dir(str) if not name.startswith(("_", "format"))),
}


class _Bounded(SandboxedEnvironment):
    """The budget's hooks, shared by the strict and the permissive sandbox."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in list(tree.find_all(nodes.For)):
            loop.iter = nodes.Filter(loop.iter, "__counted", [], [], None, None, lineno=loop.lineno)
        _wrap_concats(tree)
        flat: nodes.Template = _FlatSums().visit(tree)
        return flat

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        budget = _budget_of(__context)
        budget.spend(1)
        name = getattr(__obj, "__name__", "")
        if name in _PADDING and args and isinstance(args[0], int):
            budget.check_size(args[0])
        elif name in ("format", "format_map") and _wide(str(_owner(__obj))):
            raise _Exhausted("the chat template pads a text too far")
        elif name == "replace" and len(args) >= 2 and isinstance(owner := _owner(__obj), str):
            budget.check_size(_replaced_size(owner, args[0], args[1]))
        elif name == "join" and args and isinstance(owner := _owner(__obj), str):
            budget.check_size(_joined_size(args[0], owner))
        # Counted here and not left to the interpreter: its own limit may lie beyond the end of the C stack.
        if budget.depth <= 0:
            raise _Exhausted("the chat template recurses without end")
        budget.depth -= 1
        try:
            return super().call(__context, __obj, *args, **kwargs)
        finally:
            budget.depth += 1

    def getattr(self, obj: Any, attribute: str) -> Any:
        """As the sandbox does it. Messages, loops and namespaces are most of what templates read, and none of their
        fields can lead out of it, so they skip its questions."""
        kind = type(obj)
        if kind is dict:
            if attribute not in _DICT_NAMES:
                try:
                    return obj[attribute]
                except KeyError:
                    return self.undefined(obj=obj, name=attribute)
        elif kind is Namespace:
            if attribute[:1] != "_":
                try:
                    return getattr(obj, attribute)
                except AttributeError:
                    return self.undefined(obj=obj, name=attribute)
        elif attribute in _PLAIN_NAMES.get(kind, ()):
            return getattr(obj, attribute)
        return super().getattr(obj, attribute)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget = _budget_of(context)
        if operator == "+":
            if type(left) is str and type(right) is str:
                if len(left) + len(right) > budget.output:
                    budget.check_size(len(left) + len(right))
                return left + right
            if isinstance(left, str | list) and isinstance(right, str | list):
                budget.check_size(len(left) + len(right))
        elif operator == "*":
            count, thing = (left, right) if isinstance(left, int) else (right, left)
            if isinstance(count, int) and isinstance(thing, Sized):
                budget.check_size(max(count, 0) * len(thing))
            elif isinstance(left, int) and isinstance(right, int):
                budget.check_size(left.bit_length() + right.bit_length())
        elif operator == "**":
            if isinstance(left, int) and isinstance(right, int):
                budget.check_size(left.bit_length() * abs(right))
        elif isinstance(left, str) and _wide(left):
            raise _Exhausted("the chat template pads a text too far")
        return super().call_binop(context, operator, left, right)


def _owner(method: Any) -> Any:
    """What a method belongs to; the sandbox wraps some of them."""
    return getattr(method, "__self__", None) or getattr(getattr(method, "__wrapped__", None), "__self__", None)


def _replaced_size(text: Any, old: Any, new: Any) -> int:
    """How long `text` gets when every `old` in it becomes `new`."""
    whole = str(text)
    return len(whole) + whole.count(str(old)) * len(str(new))


def _joined_size(items: Any, separator: Any) -> int:
    """How long the texts among `items` get when they are joined; a lazy sequence is read only once, by the join."""
    if not isinstance(items, Sized) or not isinstance(items, Iterable):
        return 0
    return sum(len(item) for item in items if isinstance(item, str)) + len(items) * len(str(separator))


# A width of more than six digits, or one that is taken from the arguments.
_WIDE = re.compile(r"[0-9]{7}|%[-+ #0]*\*|%[^%]*?\.\*|\{[^{}]*:[^{}]*\{")


def _wide(pattern: str) -> bool:
    """Whether a format string can pad its arguments beyond all measure."""
    return _WIDE.search(pattern) is not None


def _wrap_concats(tree: nodes.Node) -> None:
    for node in list(tree.find_all(nodes.Node)):
        for field in node.fields:
            value = getattr(node, field, None)
            if isinstance(value, nodes.Concat):
                setattr(node, field, nodes.Filter(value, "__sized", [], [], None, None, lineno=value.lineno))
            elif isinstance(value, list):
                for position, item in enumerate(value):
                    if isinstance(item, nodes.Concat):
                        value[position] = nodes.Filter(item, "__sized", [], [], None, None, lineno=item.lineno)


class _FlatSums(NodeTransformer):
    """`a + b + c` is computed in one step, so that a long text among them is copied once."""

    def visit_Add(self, node: nodes.Add) -> nodes.Node:
        operands: list[nodes.Expr] = []
        inner: nodes.Expr = node
        while isinstance(inner, nodes.Add):
            operands.append(self.visit(inner.right))
            inner = inner.left
        operands.append(self.visit(inner))
        operands.reverse()
        if len(operands) < 3:
            return nodes.Add(*operands, lineno=node.lineno)
        return nodes.Filter(operands[0], "__sum", operands[1:], [], None, None, lineno=node.lineno)


@jinja2.pass_context
def _sum(context: Context, *operands: Any) -> Any:
    if _TEXT_ONLY.issuperset(map(type, operands)):
        _budget_of(context).check_size(sum(map(len, operands)))
        return "".join(operands)
    environment = context.environment
    total = operands[0]
    for operand in operands[1:]:
        total = environment.call_binop(context, "+", total, operand)  # type: ignore[attr-defined]
    return total


class _Strict(_Bounded, ImmutableSandboxedEnvironment):
    """The reference: lists and dicts cannot be changed by a template."""


class _Permissive(_Bounded):
    """For templates that append to their own lists; the caller hands over copies, so nothing leaks out."""


def _narrow(filter_function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose numbers are widths and counts: it refuses those no chat template needs."""

    @functools.wraps(filter_function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if isinstance(value, int) and value > _WIDEST:
                raise _Exhausted("the chat template pads a text too far")
        return filter_function(*args, **kwargs)

    return checked


def _format(pattern: str, *args: Any, **kwargs: Any) -> str:
    """The `format` filter. Its numbers are values, of any size; only its pattern can pad."""
    if _wide(str(pattern)):
        raise _Exhausted("the chat template pads a text too far")
    return do_format(pattern, *args, **kwargs)


@jinja2.pass_context
def _replace(context: Context, text: Any, old: Any, new: Any, count: int | None = None) -> str:
    _budget_of(context).check_size(_replaced_size(text, old, new))
    return do_replace(context.eval_ctx, text, old, new, count)


@jinja2.pass_context
def _join(context: Context, value: Any, d: str = "", attribute: str | int | None = None) -> str:
    _budget_of(context).check_size(_joined_size(value, d))
    joined = sync_do_join(context.eval_ctx, value, d, attribute)
    _budget_of(context).check_size(len(joined))
    return joined


def _environment(kind: type[_Bounded]) -> _Bounded:
    environment = kind(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, LoopControlExtension])
    environment.filters.update(
        {"tojson": _tojson, "from_json": _from_json, "__counted": _counted, "__sized": _sized, "__sum": _sum}
    )
    environment.filters.update({"format": _format, "replace": _replace, "join": _join})
    for name in ("center", "indent", "wordwrap", "batch", "slice"):
        environment.filters[name] = _narrow(environment.filters[name])
    environment.globals["raise_exception"] = _raise_exception
    del environment.globals["lipsum"]
    return environment


def compile_template(source: str, *, mutable: bool = False) -> jinja2.Template:
    """Compile once; `mutable` lets the template change lists that it made."""
    try:
        template = _environment(_Permissive if mutable else _Strict).from_string(source)
        # A chain of mappings is read name by name in each rendering; one dict is copied.
        template.globals = dict(template.globals)
        return template
    except jinja2.TemplateError as error:
        raise TemplateFailure("syntax", f"the chat template does not compile: {error}") from error
    except (RecursionError, SyntaxError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise TemplateFailure("syntax", f"the chat template does not compile: {error}") from error


def variables_of(source: str) -> frozenset[str]:
    """The names a template takes from outside."""
    try:
        return frozenset(meta.find_undeclared_variables(_environment(_Strict).parse(source)))
    except (jinja2.TemplateError, RecursionError, AssertionError):
        return frozenset()


def render_template(
    template: jinja2.Template,
    variables: Mapping[str, Any],
    *,
    clock: Callable[[], datetime] | None = None,
    budget: Budget | None = None,
) -> str:
    """Render within the budget. Everything that goes wrong inside is a TemplateFailure."""
    budget = budget or Budget()
    scope: dict[str, Any] = {**variables, _BUDGET: budget}
    if clock is not None:
        scope["strftime_now"] = lambda pattern: clock().strftime(pattern)
    pieces: list[str] = []
    size = 0
    try:
        for piece in template.root_render_func(template.new_context(scope)):
            size += len(piece)
            if size > budget.output:
                budget.check_size(size)
            pieces.append(piece)
    except _Refused as error:
        raise TemplateFailure("refused", str(error)) from None
    except _Exhausted as error:
        raise TemplateFailure("budget", str(error)) from None
    except jinja2.exceptions.SecurityError as error:
        raise TemplateFailure("forbidden", str(error)) from None
    except RecursionError:
        raise TemplateFailure("budget", "the chat template recurses without end") from None
    except Exception as error:
        # Whatever a template can provoke (type errors, missing keys, arithmetic) is its failure, not ours.
        raise TemplateFailure("error", f"{type(error).__name__}: {error}") from error
    return "".join(pieces)
