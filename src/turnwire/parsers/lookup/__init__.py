"""How a dialect is found: by name, by what a model shows, in a file or an installed package.

Promise: what cannot be found is refused with what to change.
"""
