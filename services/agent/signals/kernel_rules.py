"""What else in the kernel's log says that a host is unwell: a table. A line is the first rule's that it matches.

To have another message looked for, add a row: words of which the line surely holds one, a pattern, the code, how
grave it is, what to say, and how the line names the device (the last name in it counts). Messages of a healthy boot
must match none: tests hold one. Words that ordinary lines hold too make the whole log slow to read.
"""

import re
from dataclasses import dataclass

from services.agent.signals.signal import HOST
from tenure.domain.severity import Severity


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rule:
    """Lines that hold one of `tokens` and match `pattern` are `code`, of the device `names` finds or of `device`."""

    code: str
    severity: Severity
    text: str
    tokens: tuple[bytes, ...]
    pattern: re.Pattern[bytes]
    names: re.Pattern[bytes] | None = None
    device: str = HOST


def _rule(
    code: str,
    severity: Severity,
    text: str,
    *tokens: bytes,
    pattern: bytes = b"",
    names: bytes | None = None,
    device: str = HOST,
) -> Rule:
    named = None if names is None else re.compile(names)
    made = re.compile(pattern)
    return Rule(code=code, severity=severity, text=text, tokens=tokens, pattern=made, names=named, device=device)


_PCI = rb"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_DISK = rb"\b((?:sd[a-z]+|vd[a-z]+|xvd[a-z]+|nvme\d+(?:n\d+)?|dm-\d+|md\d+|mmcblk\d+)(?:p?\d+)?)\b"
_FILE_SYSTEM = rb"\((?:device )?([\w.-]{1,40})\b"
_WATCH, _DRAIN = Severity.WATCH, Severity.DRAIN

RULES = (
    _rule(
        "pcie_corrected",
        _WATCH,
        "corrected PCIe errors",
        b"PCIe Bus Error: ",
        b"AER: ",
        pattern=rb"(?:severity=|AER: (?:Multiple )?)Correct",
        names=_PCI,
    ),
    _rule(
        "pcie_uncorrected",
        _DRAIN,
        "uncorrected PCIe error",
        b"PCIe Bus Error: ",
        b"AER: ",
        pattern=rb"severity=Uncorrect|AER: (?:Multiple )?Uncorrect",
        names=_PCI,
    ),
    _rule(
        "xid_119",
        _DRAIN,
        "Xid 119: the GPU's system processor (GSP) does not answer",
        b"NVRM: Rate limiting GSP RPC error",
        names=_PCI,
    ),
    _rule(
        "gpu_init_failed",
        _DRAIN,
        "the driver could not initialize the GPU",
        b"RmInitAdapter failed",
        pattern=rb"NVRM: ",
        names=_PCI,
        device="gpu",
    ),
    _rule(
        "gpu_probe_failed",
        _DRAIN,
        "the driver could not take up every GPU",
        b"NVRM: The NVIDIA probe routine failed",
        device="gpu",
    ),
    _rule(
        "pcie_link_down",
        _DRAIN,
        "a PCIe card went away",
        b"pciehp: ",
        pattern=rb"Link Down|Card not present",
        names=_PCI,
    ),
    _rule(
        "oom_kill_cgroup",
        _WATCH,
        "processes were killed at the memory limit of their group",
        b"emory cgroup out of memory",
        b"oom-kill:constraint=CONSTRAINT_MEMCG",
        device="memory",
    ),
    _rule(
        "oom_kill",
        _WATCH,
        "the host ran out of memory and killed processes",
        b"Out of memory: Kill",
        b"oom_reaper: reaped process",
        b"oom-kill:constraint=",
        device="memory",
    ),
    _rule(
        "memory_uncorrected",
        _DRAIN,
        "uncorrected memory errors",
        b"EDAC MC",
        b"Memory failure: 0x",
        pattern=rb"EDAC MC\d+: \d+ UE |Memory failure: 0x",
        device="memory",
    ),
    _rule(
        "memory_corrected", _WATCH, "corrected memory errors", b"EDAC MC", pattern=rb"MC\d+: \d+ CE ", device="memory"
    ),
    _rule("machine_check", _WATCH, "the processor reported hardware errors", b"mce: [Hardware Error]", device="cpu"),
    _rule(
        "fs_read_only",
        _DRAIN,
        "a file system was made read-only, or shut down, after errors",
        b"emounting filesystem read-only",
        b"forced readonly",
        b"filesystem has been shut down",
        b"hutting down filesystem",
        pattern=rb"\b(?:EXT\d-fs|BTRFS|F2FS-fs|XFS)",
        names=_FILE_SYSTEM,
        device="disk",
    ),
    _rule(
        "fs_error",
        _WATCH,
        "errors of a file system",
        b"-fs error",
        b"BTRFS error",
        b"BTRFS critical",
        b"XFS (",
        pattern=rb"\b(?:EXT\d|F2FS)-fs error|BTRFS (?:error|critical)|XFS .*(?:[Cc]orruption|I/O error|Internal error)",
        names=_FILE_SYSTEM,
        device="disk",
    ),
    _rule(
        "disk_failed",
        _DRAIN,
        "a disk stopped answering",
        b"Device not ready; aborting",
        b"isabling device after reset failure",
        b"Removing after probe failure",
        b"controller is down; will reset",
        b"rejecting I/O to dead device",
        b"rejecting I/O to offline device",
        names=_DISK,
        device="disk",
    ),
    _rule(
        "disk_error",
        _WATCH,
        "read or write errors of a disk",
        b"I/O error",
        b"medium error",
        pattern=rb"(?:I/O|medium) error,? (?:on )?dev(?:ice)? ",
        names=_DISK,
        device="disk",
    ),
    _rule(
        "nic_failed",
        _DRAIN,
        "the firmware of a network card failed",
        b"health compromised",
        b"irmware internal error",
        b"Fatal error 0x",
        pattern=rb"mlx\d_core",
        names=_PCI,
    ),
    _rule(
        "lockup",
        _WATCH,
        "a processor or a process hung in the kernel",
        b"BUG: soft lockup",
        b"hard LOCKUP",
        b"blocked for more than",
        pattern=rb"lockup|LOCKUP|INFO: \w+ ",
        device="cpu",
    ),
)
