"""Floors and ceilings that no profile states, each with its evidence."""

from __future__ import annotations

GIB = 1 << 30
MIB = 1 << 20

CPUS = 2
"""The ladder's times and Ray's start were measured on two; on one, Ray's heartbeats time out under load."""
SMOKE_MEMORY = 3 * GIB
"""Peak of all processes of the default climb: 1.9 GiB (README); with the pages of what it imports, 3."""
MEMORY_SHARE = 0.9
"""A machine sold with 16 GB shows 15.5: firmware and kernel take the rest."""
RUN_DISK = 1 * GIB
"""A climb's records and Ray's session folder: the tiny model's take 50 MB."""
DISK_SHARE = 0.05
"""Ray stops taking objects when the disk is 95 % full (RAY_local_fs_capacity_threshold, 0.95)."""
SHM = 256 * MIB
"""NCCL and Ray's object store live there; an engine gives a container 64 MiB, and NCCL then fails with
``unable to allocate shared memory``, or a worker with a bus error."""
FILES = 4096
"""Below it Ray warns (ray/_private/worker.py, 2.59.0); it raises the soft limit to 65536 where it may."""
PROCESSES = 4096
"""Ray's raylet, GCS and each worker have dozens of threads, and each counts: a climb has several hundred."""
BUSY_SHARE = 0.1
"""Of a card's memory; an idle card with a display shows a few hundred MiB at most."""
GLIBC = {"manylinux_2_28": (2, 28), "manylinux_2_31": (2, 31)}
"""The platform tag of a lock is the oldest C library that its wheels run on (PEP 600)."""
MODELS = {
    "P4": "6.1",
    "P40": "6.1",
    "P100": "6.0",
    "V100": "7.0",
    "T4": "7.5",
    "A10": "8.6",
    "A100": "8.0",
    "L4": "8.9",
    "L40": "8.9",
    "L40S": "8.9",
    "H100": "9.0",
    "H200": "9.0",
}
"""Compute capability by a word of the card's name, for drivers before 510 that cannot be asked
(NVIDIA, CUDA GPU compute capability)."""
