"""The call syntaxes: each codec reads one of them, told its markers by a table.

Promise: a codec never goes back in the text, and what it leaves unread is bounded.
"""
