"""Makes this folder's family templates and the replay table importable by the tests."""

import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
for place in (_HERE, _HERE.parents[1] / "benchmarks"):
    sys.path.insert(0, str(place))
