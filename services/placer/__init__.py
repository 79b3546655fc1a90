"""The placer: fair-share order and hosts in, starts and preemptions out (P5-P7, P9-P11)."""
