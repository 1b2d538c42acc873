"""Training samples as a Parquet file, for trainers that read columns.

Promise: the columns are the fields of the JSON lines, with fixed types; reading the file gives the same samples. Needs
`pyarrow`, which nothing else does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from turnwire.capture.format import CaptureError
from turnwire.capture.samples import FORMAT, Sample

__all__ = ["parquet_file"]


def parquet_file(samples: Sequence[Sample]) -> bytes:
    """The samples as one file, or CaptureError where `pyarrow` is not installed."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise CaptureError("Parquet needs the `pyarrow` library: pip install 'turnwire[parquet]'") from None
    turn = {"turn_id": arrow.string(), "start": arrow.int64(), "end": arrow.int64(), "finish": arrow.string()}
    branch = {"sample": arrow.string(), "shared": arrow.int64(), "cause": arrow.string()}
    columns: dict[str, Any] = {
        "id": arrow.string(),
        "ids": arrow.list_(arrow.int32()),
        "loss_mask": arrow.list_(arrow.int8()),
        "logprobs": arrow.list_(arrow.float64()),
        "turns": arrow.list_(arrow.struct(list(turn.items()))),
        "branch": arrow.struct(list(branch.items())),
        "model": arrow.string(),
        "tokenizer": arrow.string(),
        "session": arrow.string(),
        "agent": arrow.string(),
        "format": arrow.string(),
    }
    schema = arrow.schema(list(columns.items()), metadata={"format": FORMAT})
    table = arrow.Table.from_pylist([msgspec.to_builtins(sample) for sample in samples], schema=schema)
    sink = arrow.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data
