"""NVIDIA's catalogue of Xid errors: what each means, what it asks for, and so how grave it is. A data table.

Source: "Analyzing Xid Errors with the Xid Catalog" (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), the
columns Code, Description and Resolution Bucket (Immediate Action) of the codes that occur. Codes it marks as unused
are left out. A row is `code action description`.
"""

import re
from dataclasses import dataclass

from tenure.domain.severity import Severity


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid:
    """One row. `action` is the catalogue's immediate action."""

    code: int
    action: str
    meaning: str
    severity: Severity


_SEVERITY = {
    "IGNORE": Severity.WATCH,
    "RESTART_APP": Severity.WATCH,
    "RESTART_VM": Severity.WATCH,
    "UPDATE_SWFW": Severity.WATCH,
    "CONTACT_SUPPORT": Severity.WATCH,
    "CHECK_UVM": Severity.WATCH,
    "WORKFLOW_XID_45": Severity.WATCH,
    "CHECK_MECHANICALS": Severity.DRAIN,
    "RESET_GPU": Severity.DRAIN,
    "RESET_WHEN_CONVENIENT": Severity.DRAIN,  # RESTART_APP in the table; its notes ask for a reset when convenient
    "WORKFLOW_XID_48": Severity.DRAIN,
    "WORKFLOW_NVLINK_ERR": Severity.DRAIN,
    "WORKFLOW_NVLINK5_ERR": Severity.DRAIN,  # see `severity_of`: the line says whether it was fatal
    "XID_154": Severity.DRAIN,  # see `severity_of`: the line names the recovery
    "RESTART_BM": Severity.FATAL,  # the GPU is gone until the machine has been restarted
}

_TABLE = """
8 RESTART_APP GPU stopped processing
13 RESTART_APP graphics engine exception, mostly an application's illegal access
14 IGNORE fake or injected error
25 RESTART_APP invalid or illegal push buffer stream
31 RESTART_APP GPU memory page fault, mostly an application's illegal access
32 RESTART_APP invalid or corrupted push buffer stream
37 IGNORE driver firmware error
38 IGNORE driver firmware error
39 RESTART_APP copy engine exception
40 RESTART_APP copy engine exception
41 RESTART_APP copy engine exception
43 IGNORE GPU stopped processing for an application that hit its own fault
44 IGNORE graphics engine fault during context switch
45 WORKFLOW_XID_45 preemptive cleanup after earlier errors or an application's end
46 RESET_GPU GPU stopped processing
48 WORKFLOW_XID_48 double bit ECC error
54 CHECK_MECHANICALS auxiliary power is not connected
60 RESTART_APP video processor exception
62 RESET_GPU internal micro-controller halt
63 IGNORE GPU memory remapping event
64 RESET_GPU GPU memory remapping failure
66 IGNORE illegal access by the driver
67 IGNORE illegal access by the driver
68 RESTART_APP video decoder exception
69 RESTART_APP graphics engine class error
70 RESTART_APP copy engine 3 error
71 RESTART_APP copy engine 4 error
72 RESTART_APP copy engine 5 error
74 WORKFLOW_NVLINK_ERR NVLink error
75 RESTART_APP copy engine 6 error
76 RESTART_APP copy engine 7 error
77 RESTART_APP copy engine 8 error
78 UPDATE_SWFW vGPU start error
79 RESTART_BM GPU has fallen off the bus
80 RESTART_APP corrupted data sent to the GPU
82 RESTART_APP JPEG engine 0 error
83 RESTART_APP video decoder 1 error
84 RESTART_APP video decoder 2 error
85 RESTART_APP copy engine 9 error
86 RESTART_APP optical flow engine exception
88 RESTART_APP video decoder 3 error
89 RESTART_APP video decoder 4 error
92 IGNORE high single bit ECC error rate
93 IGNORE provisioned InfoROM wear limit reached
94 RESET_WHEN_CONVENIENT contained memory error
95 RESET_GPU uncontained memory error
96 RESTART_APP video decoder 5 error
97 RESTART_APP video decoder 6 error
98 RESTART_APP video decoder 7 error
99 RESTART_APP JPEG engine 1 error
100 RESTART_APP JPEG engine 2 error
101 RESTART_APP JPEG engine 3 error
102 RESTART_APP JPEG engine 4 error
103 RESTART_APP JPEG engine 5 error
104 RESTART_APP JPEG engine 6 error
105 RESTART_APP JPEG engine 7 error
106 IGNORE SMBPBI test message
107 IGNORE SMBPBI test message
109 RESET_GPU context switch timeout
110 RESET_GPU security fault
119 RESET_GPU the GPU's system processor (GSP) does not answer
120 RESET_GPU error of the GPU's system processor (GSP)
121 IGNORE corrected errors of the C2C link to the CPU
126 RESTART_APP copy engine 10 error
127 RESTART_APP copy engine 11 error
128 RESTART_APP copy engine 12 error
129 RESTART_APP copy engine 13 error
130 RESTART_APP copy engine 14 error
131 RESTART_APP copy engine 15 error
132 RESTART_APP copy engine 16 error
133 RESTART_APP copy engine 17 error
134 RESTART_APP copy engine 18 error
135 RESTART_APP copy engine 19 error
136 RESET_GPU NVLink training failed
137 IGNORE NVLink privilege error, mostly an application's illegal peer access
139 RESTART_APP optical flow engine 1 error
140 RESET_GPU unrecovered ECC error
141 IGNORE CUDA fast path error
142 CONTACT_SUPPORT video encoder 3 error
143 RESET_GPU GPU initialization error
144 WORKFLOW_NVLINK5_ERR NVLink SAW error
145 WORKFLOW_NVLINK5_ERR NVLink RLW error
146 WORKFLOW_NVLINK5_ERR NVLink TLW error
147 WORKFLOW_NVLINK5_ERR NVLink TREX error
148 WORKFLOW_NVLINK5_ERR NVLink NVLPW_CTRL error
149 WORKFLOW_NVLINK5_ERR NVLink NETIR error
150 WORKFLOW_NVLINK5_ERR NVLink MSE error
151 RESTART_VM key rotation error
152 IGNORE DLA SMMU error
153 IGNORE DLA timeout
154 XID_154 the recovery that the GPU needs has changed
155 RESET_GPU NVLink taken down by software
156 RESET_GPU resource retirement event
157 IGNORE resource retirement failure
158 RESET_GPU GPU fatal timeout
159 CHECK_UVM CHI non-data error of the C2C link
160 IGNORE channel retirement event
161 IGNORE channel retirement failure
162 IGNORE power smoothing reengaged
163 IGNORE power smoothing disengaged
164 IGNORE power smoothing circuit near the end of its life
165 IGNORE power smoothing circuit worn out
166 IGNORE traffic before the link was encrypted
167 RESET_GPU fatal PCIe timeout
168 IGNORE errors in the write protected region
169 RESET_GPU internal micro-controller halt (SEC2)
170 IGNORE interrupt in confidential computing mode
171 WORKFLOW_XID_48 uncorrectable DRAM error (details of Xid 48)
172 WORKFLOW_XID_48 uncorrectable SRAM error (details of Xid 48)
"""


def _rows() -> dict[int, Xid]:
    rows: dict[int, Xid] = {}
    for line in _TABLE.strip().splitlines():
        code, action, meaning = line.split(" ", 2)
        rows[int(code)] = Xid(code=int(code), action=action, meaning=meaning, severity=_SEVERITY[action])
    return rows


XIDS = _rows()
"""Each known Xid by its code."""

APPLICATION = frozenset((13, 31, 43, 45, 69))
"""What an application's own fault raises, one after the other, on the GPU it ran on: one incident."""

_FATAL = re.compile(rb"\b(Fatal|Nonfatal)\b")
_RECOVERY = re.compile(rb"\bto 0x[0-9a-fA-F]+ \(([^)]*)\)")
_CAUSED = re.compile(rb"caused by previous Xid (\d+)")


def variant(code: bytes, message: bytes) -> bytes:
    """What of the message of Xid 45 and 154 matters to `describe`; nothing of others', the links' (144-150) apart."""
    if code == b"45":
        caused = _CAUSED.search(message)
        return b"" if caused is None else caused.group(1)
    if code == b"154":
        recovery = _RECOVERY.search(message)
        return b"" if recovery is None else recovery.group(1)
    return b""


def describe(code: int, message: bytes) -> tuple[Severity, str]:
    """How grave a sighting is and what to say of it. `message` is what follows the code in the line.

    144 to 150 say themselves whether the link was lost (Fatal); 154 names the recovery that is needed now; 45 names the
    earlier Xid it echoes, which may be another GPU's.
    """
    known = XIDS.get(code)
    if known is None:
        return Severity.WATCH, f"Xid {code}: not in the catalogue"
    severity, text = known.severity, f"Xid {code}: {known.meaning}"
    if known.action == "WORKFLOW_NVLINK5_ERR":
        fatal = _FATAL.search(message)
        severity = Severity.DRAIN if fatal is not None and fatal.group(1) == b"Fatal" else Severity.WATCH
        text += "" if fatal is None else f" ({fatal.group(1).decode().lower()})"
    elif known.action == "XID_154":
        recovery = _RECOVERY.search(message)
        needed = "" if recovery is None else recovery.group(1).decode("ascii", "replace")
        severity = Severity.WATCH if needed in ("", "None") else Severity.DRAIN
        text += f": {needed}" if needed else ""
    elif code == 45 and (caused := _CAUSED.search(message)) is not None:
        text += f" (echo of Xid {int(caused.group(1)[:9])}, which may be another GPU's)"
    return severity, text
