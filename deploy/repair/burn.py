"""A short burn of a host: every core computes the same, every GPU multiplies the same, all GPUs reduce together.

Standard library only; the GPUs are burnt where PyTorch is there, else they have to answer. BURN_S: seconds a stage (5).
Its argument: so many GPUs there should be.
"""

import hashlib
import multiprocessing
import os
import shutil
import subprocess
import sys
import time

BURN_S = float(os.environ.get("BURN_S", "5"))


def burn_core(_: int) -> str:
    """The same digests over and over for a while; what they are, or "wrong" once they differ."""
    until, first = time.monotonic() + BURN_S, ""
    while time.monotonic() < until:
        block = b"tenure"
        for _ in range(2000):
            block = hashlib.sha512(block).digest() * 8
        now = hashlib.sha256(block).hexdigest()
        if first not in ("", now):
            return "wrong"
        first = now
    return first


def burn_cores() -> str:
    """All cores at once."""
    cores = os.cpu_count() or 1
    with multiprocessing.get_context("fork").Pool(cores) as pool:
        found = set(pool.map(burn_core, range(cores)))
    if len(found) != 1 or "wrong" in found:
        sys.exit(f"cores disagree: {len(found)} different results")
    return f"{cores} cores agree"


def burn_gpus(wanted: int) -> str:
    """All GPUs; there are to be as many as are `wanted`, whatever a missing driver says."""
    if shutil.which("nvidia-smi") is None:
        if wanted:
            sys.exit(f"0 of {wanted} GPUs answer: there is no nvidia-smi")
        return "no GPUs"
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    if listed.returncode != 0 and not wanted:
        return "no GPUs"
    if listed.returncode != 0:
        sys.exit(f"nvidia-smi fails: {(listed.stdout + listed.stderr).strip()[:200]}")
    count = sum(line.startswith("GPU ") for line in listed.stdout.splitlines())
    if count < wanted:
        sys.exit(f"{count} of {wanted} GPUs answer")
    try:
        import torch
    except ImportError:
        return f"{count} GPUs answer (no PyTorch to burn them with)"
    if torch.cuda.device_count() != count:
        sys.exit(f"PyTorch sees {torch.cuda.device_count()} of {count} GPUs")
    sums = []
    for index in range(count):
        torch.manual_seed(1)
        one = torch.rand(4096, 4096).to(f"cuda:{index}")
        until = time.monotonic() + BURN_S
        while time.monotonic() < until:
            product = one @ one
            torch.cuda.synchronize(index)
        sums.append(float(product.double().sum()))
    if len(set(sums)) > 1:
        sys.exit(f"GPUs disagree: {sums}")
    ones = [torch.ones(1 << 20, device=f"cuda:{index}") for index in range(count)]
    if count > 1:
        torch.cuda.nccl.all_reduce(ones)
    if any(float(each.mean()) != count for each in ones):
        sys.exit("the all-reduce gives a wrong sum")
    return f"{count} GPUs agree, alone and together"


if __name__ == "__main__":
    print(f"{burn_cores()}; {burn_gpus(int(sys.argv[1]) if sys.argv[1:] else 0)}")
