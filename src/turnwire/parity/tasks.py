"""Fifty small repositories of our own: each has one function that does not do what its docstring says, and a checker.

Promise: a task is a row; its checker refuses the repository as it is written and takes it once the function is right.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

__all__ = ["TASKS", "Task", "write_tasks"]


class Task(msgspec.Struct, frozen=True):
    """A function by name and parameters, what it should do, what it does, what is right, and calls that tell."""

    name: str
    parameters: str
    demand: str
    wrong: str
    right: str
    checks: str

    def source(self, expression: str) -> str:
        """The module with the function."""
        return f'def {self.name}({self.parameters}):\n    """{self.demand}"""\n    return {expression}\n'

    @property
    def prompt(self) -> str:
        return (
            f"The function {self.name} in {self.name}.py does not do what its docstring says. Fix it, change nothing "
            f"else, and run `python check.py`, which says nothing when all is well."
        )

    @property
    def checker(self) -> str:
        return f"from {self.name} import {self.name} as f\n\nassert {self.checks}\n"


_ROWS = """
clamp|x, low, high|The number x, but not below low and not above high.|max(low, x)|max(low, min(high, x))|(f(5, 0, 3), f(-1, 0, 3), f(2, 0, 3)) == (3, 0, 2)
is_even|n|Whether n is even.|n % 2 == 1|n % 2 == 0|(f(2), f(3), f(0)) == (True, False, True)
last|items|The last item, or None if there is none.|items[-1]|items[-1] if items else None|(f([1, 2]), f([])) == (2, None)
mean|numbers|The mean, or 0 of no numbers.|sum(numbers) / 2|sum(numbers) / len(numbers) if numbers else 0|(f([1, 2, 6]), f([])) == (3, 0)
initials|name|The capital first letters of each word.|name[0]|"".join(w[0].upper() for w in name.split())|(f("ada king lovelace"), f("Bo")) == ("AKL", "B")
reverse_words|text|The words in reverse order.|text[::-1]|" ".join(reversed(text.split()))|f("one two three") == "three two one"
factorial|n|The product of 1 to n.|sum(range(1, n + 1))|__import__("math").factorial(n)|(f(0), f(5)) == (1, 120)
is_leap|year|Whether a year is a leap year.|year % 4 == 0|year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)|(f(2024), f(1900), f(2000)) == (True, False, True)
celsius|fahrenheit|Degrees Celsius of degrees Fahrenheit.|fahrenheit - 32|(fahrenheit - 32) * 5 / 9|(f(212), f(32)) == (100, 0)
count_vowels|text|How many of the letters are vowels, of either case.|sum(c in "aeiou" for c in text)|sum(c in "aeiou" for c in text.lower())|(f("AbE"), f("xyz")) == (2, 0)
unique|items|The items without repeats, in order of first appearance.|list(set(items))|list(dict.fromkeys(items))|f([9, 1, 9, 5, 1, 7]) == [9, 1, 5, 7]
flatten|lists|One list of all the lists' items.|lists[0]|[x for part in lists for x in part]|(f([[1], [2, 3]]), f([])) == ([1, 2, 3], [])
second_largest|numbers|The second largest of the different numbers.|sorted(numbers)[-2]|sorted(set(numbers))[-2]|f([5, 5, 3, 1]) == 3
title_case|text|Every word with a capital first letter and small others.|text.upper()|" ".join(w.capitalize() for w in text.split())|f("hELLO wORLD") == "Hello World"
is_palindrome|text|Whether the letters read the same backwards, cases and spaces aside.|text == text[::-1]|(s := text.lower().replace(" ", "")) == s[::-1]|(f("Never odd or even"), f("ab")) == (True, False)
gcd|a, b|The greatest common divisor.|min(a, b)|__import__("math").gcd(a, b)|(f(12, 18), f(7, 5)) == (6, 1)
chunk|items, size|The items in lists of at most size.|[items]|[items[i : i + size] for i in range(0, len(items), size)]|f([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]
median|numbers|The middle of the sorted numbers, or the mean of the two in the middle.|sorted(numbers)[len(numbers) // 2]|__import__("statistics").median(numbers)|(f([3, 1, 2]), f([4, 1, 3, 2])) == (2, 2.5)
word_count|text|How often each word appears, cases aside.|{w: 1 for w in text.split()}|dict(__import__("collections").Counter(text.lower().split()))|f("a A b") == {"a": 2, "b": 1}
caesar|text, shift|Small letters moved by shift, around the alphabet; others stay.|"".join(chr(ord(c) + shift) for c in text)|"".join(chr((ord(c) - 97 + shift) % 26 + 97) if c.islower() else c for c in text)|f("xyz a!", 3) == "abc d!"
transpose|rows|Rows as columns.|rows|[list(column) for column in zip(*rows)]|f([[1, 2], [3, 4], [5, 6]]) == [[1, 3, 5], [2, 4, 6]]
invert|mapping|A dictionary from values to keys.|dict(mapping)|{v: k for k, v in mapping.items()}|f({"a": 1, "b": 2}) == {1: "a", 2: "b"}
binary|n|The binary digits of n, without a prefix.|bin(n)|format(n, "b")|(f(5), f(0)) == ("101", "0")
digits_sum|n|The sum of the decimal digits, signs aside.|sum(int(c) for c in str(n)[1:])|sum(int(c) for c in str(abs(n)))|(f(123), f(-45)) == (6, 9)
common|a, b|The items of a that are also in b, in a's order.|list(set(a) & set(b))|[x for x in a if x in b]|f([9, 5, 7, 1], [1, 9, 7]) == [9, 7, 1]
percent|part, whole|The part as a percentage, rounded to one place; 0 of an empty whole.|part / whole|round(100 * part / whole, 1) if whole else 0|(f(1, 3), f(1, 0)) == (33.3, 0)
slug|title|Small letters and digits, with single dashes between words.|title.replace(" ", "-")|"-".join(__import__("re").findall("[a-z0-9]+", title.lower()))|f("Hello,  World 2!") == "hello-world-2"
running_total|numbers|The sums of the first one, two, three and so on.|numbers|list(__import__("itertools").accumulate(numbers))|f([1, 2, 3]) == [1, 3, 6]
truncate|text, size|At most size characters; a cut text ends in three dots that count.|text[:size]|text if len(text) <= size else text[: size - 3] + "..."|(f("abcdefgh", 6), f("abc", 6)) == ("abc...", "abc")
rotate|items, steps|The items moved to the right by steps, around the end.|items[steps:] + items[:steps]|[items[(i - steps) % len(items)] for i in range(len(items))]|f([1, 2, 3, 4], 1) == [4, 1, 2, 3]
is_prime|n|Whether n is a prime.|n > 1|n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))|[x for x in range(12) if f(x)] == [2, 3, 5, 7, 11]
hours|minutes|Hours and minutes as H:MM.|f"{minutes // 60}:{minutes % 60}"|f"{minutes // 60}:{minutes % 60:02d}"|(f(65), f(600)) == ("1:05", "10:00")
longest|words|The longest word, the first of several.|max(words)|max(words, key=len)|f(["zz", "abc", "xyz"]) == "abc"
nth_root|x, n|The n-th root of x.|x / n|x ** (1 / n)|(f(8, 3), f(81, 4)) == (2, 3)
parse_pairs|text|A dictionary of "a=1;b=2"; spaces do not count, empty pairs are left out.|dict(p.split("=") for p in text.split(";"))|{k.strip(): v.strip() for k, _, v in (p.partition("=") for p in text.split(";") if p.strip())}|f("a=1; b = 2;") == {"a": "1", "b": "2"}
overlaps|a, b|Whether two ranges (start, end), the end excluded, share a point.|a[0] <= b[1]|a[0] < b[1] and b[0] < a[1]|(f((1, 3), (2, 5)), f((1, 2), (2, 3)), f((5, 6), (1, 2))) == (True, False, False)
difference|a, b|How far apart two numbers are.|a - b|abs(a - b)|(f(2, 5), f(5, 2)) == (3, 3)
pad|text, size|The text with zeros before it, size characters long at least.|text + "0" * size|text.zfill(size)|(f("7", 3), f("1234", 3)) == ("007", "1234")
group_by_size|words|Lists of words by their length.|{len(w): w for w in words}|{n: [w for w in words if len(w) == n] for n in dict.fromkeys(map(len, words))}|f(["a", "b", "cc"]) == {1: ["a", "b"], 2: ["cc"]}
fizz|n|Fizz for multiples of 3, Buzz for those of 5, FizzBuzz for both, else the number as text.|"Fizz" if n % 3 == 0 else "Buzz"|("Fizz" * (n % 3 == 0) + "Buzz" * (n % 5 == 0)) or str(n)|[f(n) for n in (3, 5, 15, 7)] == ["Fizz", "Buzz", "FizzBuzz", "7"]
strip_comments|text|The text without what follows a # on each line, and without the spaces before it.|text.split("#")[0]|"\\n".join(line.split("#")[0].rstrip() for line in text.split("\\n"))|f("a # x\\nb#y\\nc") == "a\\nb\\nc"
bigrams|text|Every two letters that follow each other.|list(text)|[text[i : i + 2] for i in range(len(text) - 1)]|(f("abcd"), f("a")) == (["ab", "bc", "cd"], [])
dot|a, b|The sum of the products of two lists, place by place.|sum(a) * sum(b)|sum(x * y for x, y in zip(a, b))|f([1, 2, 3], [4, 5, 6]) == 32
roman|n|The Roman numeral of 1 to 10.|"I" * n|["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X"][n - 1]|(f(4), f(9), f(3)) == ("IV", "IX", "III")
mode|items|The most frequent item, the first of several.|items[0]|max(dict.fromkeys(items), key=items.count)|(f([1, 2, 2, 3]), f([4, 5])) == (2, 4)
between|text, left, right|What stands between the first left mark and the next right mark.|text.split(left)[1]|text.split(left, 1)[1].split(right, 1)[0]|f("a <b> <c>", "<", ">") == "b"
add_days|day, count|The day of the week 0 to 6 after count days.|day + count|(day + count) % 7|(f(5, 3), f(0, 14)) == (1, 0)
rounded|x, step|x rounded to the nearest multiple of step.|x // step * step|round(x / step) * step|(f(17, 5), f(12, 5)) == (15, 10) and f(18, 5) == 20
nested|value, path|What lies at a path of keys like "a.b", or None.|value[path]|__import__("functools").reduce(lambda v, k: v.get(k) if isinstance(v, dict) else None, path.split("."), value)|(f({"a": {"b": 3}}, "a.b"), f({}, "a.b")) == (3, None)
version_key|version|A version like 1.10.2 as a tuple of numbers.|tuple(version)|tuple(int(part) for part in version.split("."))|f("1.10.2") > f("1.9") and f("2.0") == (2, 0)
"""  # noqa: E501 - a row is a line

TASKS: tuple[Task, ...] = tuple(Task(*row.split("|")) for row in _ROWS.strip().split("\n"))


def write_tasks(folder: Path) -> int:
    """Write the tasks: NAME/prompt.txt, NAME/check.py and NAME/repo/. How many there are."""
    for task in TASKS:
        repository = folder / task.name / "repo"
        repository.mkdir(parents=True, exist_ok=True)
        (repository / f"{task.name}.py").write_text(task.source(task.wrong), encoding="utf-8")
        (repository / "check.py").write_text(task.checker, encoding="utf-8")
        (folder / task.name / "prompt.txt").write_text(task.prompt + "\n", encoding="utf-8")
        (folder / task.name / "check.py").write_text(task.checker, encoding="utf-8")
    return len(TASKS)
