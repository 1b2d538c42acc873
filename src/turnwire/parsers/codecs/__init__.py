"""The call syntaxes: each codec reads one of them, with the markers of its table.

Promise: a codec never goes back in the text, and what it leaves unread is bounded.
"""
