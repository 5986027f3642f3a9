"""How much memory a run holds."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path


def memory_of_all_processes() -> float:
    """Return the megabytes that this process and its children hold, pages that they share counted once."""
    family = [os.getpid(), *(child.pid for child in multiprocessing.active_children())]
    if not Path("/proc/self/smaps_rollup").exists():
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    total = 0
    for pid in family:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith(("Pss:", "SwapPss:")):
                total += int(line.split()[1])
    return total / 1024
