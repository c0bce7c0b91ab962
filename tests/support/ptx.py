"""What an H100 needs for a kernel that Triton has compiled for one."""

import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory


def resources(ptx: str) -> tuple[int, int]:
    """Returns registers a thread and bytes spilled, by the ptxas that Triton takes (TRITON_PTXAS_PATH)."""
    from triton import knobs

    with TemporaryDirectory() as folder:
        (file := Path(folder, "kernel.ptx")).write_text(ptx)
        command = [knobs.nvidia.ptxas.path, "-v", "-arch=sm_90a", file, "-o", f"{folder}/kernel"]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    return int(re.findall(r"Used (\d+) registers", said)[0]), sum(map(int, re.findall(r"(\d+) bytes spill", said)))
