"""The real run of `turnwire parity`: the tools of its client, and the page."""
