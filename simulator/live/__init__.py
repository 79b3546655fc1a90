"""What comes next on the live system: the present state simulated forward with the services' own deciders.

the log -> State (ranker, placer, history) -> Present -> draws of the future -> Forecast, Alternatives
"""
