"""The playground's own tools: small, harmless, and enough to see how a model uses tools.

Promise: no file, no network, and no expression runs for longer than a moment.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from datetime import datetime
from typing import Any

__all__ = ["TOOLS", "calculate", "current_time"]

_TWO: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_NAMES = {"pi": math.pi, "e": math.e}
_FUNCTIONS: dict[str, Callable[..., Any]] = {"sqrt": math.sqrt, "log": math.log, "sin": math.sin, "cos": math.cos}
_MOST = 10**15


def current_time() -> str:
    """The date and time where the gateway runs."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def calculate(expression: str) -> str:
    """Work out an arithmetic expression, such as (3 + 4) * sqrt(2).

    expression: Numbers, + - * / // % **, parentheses, sqrt, log, sin, cos, pi and e.
    """
    return str(_value(ast.parse(expression[:500], mode="eval").body))


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name) if name in _NAMES:
            return _NAMES[name]
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_value(inner)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _TWO:
            one, other = _value(left), _value(right)
            if isinstance(op, ast.Pow) and (abs(one) > _MOST or abs(other) > 1000):
                raise ValueError("these numbers are too large")
            result: float = _TWO[type(op)](one, other)
            if abs(result) > 10**300:
                raise ValueError("the result is too large")
            return result
        case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in _FUNCTIONS:
            return float(_FUNCTIONS[name](_value(argument)))
    raise ValueError(f"cannot work out {ast.unparse(node)}")


TOOLS = (current_time, calculate)
