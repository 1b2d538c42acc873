"""One small file per model family, each a table that the machine, guided decoding and detection read.

How to add a family:

1. Make a module here that defines `DIALECTS`, a tuple of `Dialect`. Nothing else has to be registered.
2. Name it as its publisher does; put every spelling other registries use into `aliases` (case and `-_. ` do not
   count) and names that mean only its reasoning into `reasoning_aliases`.
3. Say how it reasons (`Reasoning`): markers, labels after the opener, what a call inside a thought does.
4. Say how it calls: pick a syntax from `turnwire.parsers.codecs` and fill in its table: `Tagged` for tags around
   each argument (`PlainTags` where nothing wraps them), `Envelope` for JSON objects that carry the name, `Named` for a
   name outside JSON arguments, `PythonCalls`, `Braced` for Gemma's notation, `Nested` for tags within tags. A family
   may have several; the first whose sign matches reads.
5. Say how it writes a call (`writes`, or `no_form` with the reason), by which marks and ids it is known (`known_by`,
   `ids`), and what its template puts between turns (`turns`).
6. Add its output to the samples of the tests. The laws (any cut gives the same events, nothing lost, linear work, any
   value comes back as it was written) run for it at once.

Where message headers say what a text is (channels), the family has a `router` instead: its codec reads everything.
`Channels` is one for messages of header and body: its table names the markers, and a small `rule` turns a header into
a `Route`.

A new syntax is a frozen table with `signs`, `closers` and `codec(machine)`, and a codec with `enter`, `run`, `plain`,
`finish` (see `Codec` in dialect.py). A codec consumes text at the machine's sink and never goes back:

- `sink.keep(raw)` for structure, `machine.open_call(name)` once the name is sure, `sink.argue(text, raw)` for argument
  text, `sink.close_call()` at its end, `machine.refuse()` if the text on trial turns out to be prose,
  `machine.leave()` when the calls are over.
- States are an Enum, steps and moves literal tables, markers are found by `Scanner`. What `run` leaves unconsumed is
  bounded.

Promise: a module here is data; what it says of a family is all that is known of it.
"""
