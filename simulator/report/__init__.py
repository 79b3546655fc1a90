"""What a simulated log says in numbers: `report.json` (design, section 6).

facts -> history (what happened) -> measures (owed, delivered, occupied, waited, lost) -> Report
      -> breaches (I1-I10)                                                             -^
"""

from simulator.report.build import build_report
from simulator.report.fields import Report
from simulator.report.file import write_report

__all__ = ["Report", "build_report", "write_report"]
