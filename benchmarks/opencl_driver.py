"""Which OpenCL driver tests and benchmarks use: PoCL's, or Intel's where PoCL is older than the processor.

`python -m benchmarks.opencl_driver` ends with 1 if there is none that can compile the replay's kernels.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

LIBRARY = Path(sys.prefix) / "lib" / "libintelocl.so"


def use_what_works() -> None:
    """Point whoever looks for drivers to Intel's, if it is installed here and nobody chose another."""
    if LIBRARY.exists():
        os.environ.setdefault("OCL_ICD_VENDORS", str(LIBRARY))


def main() -> int:
    use_what_works()
    from motet.errors import BadOption
    from motet.replay.opencl import Device

    try:
        print(f"OpenCL replays are tested on {Device().name}.")
        return 0
    except BadOption as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
