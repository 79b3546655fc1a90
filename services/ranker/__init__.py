"""The ranker: what each budget had, is promised and is entitled to, and so who starts first (P1-P4)."""
