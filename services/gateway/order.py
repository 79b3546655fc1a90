"""Who asks for what, as the rules need it: what every fact of the gateway carries besides its subject."""

from dataclasses import dataclass

from tenure.domain.ids import FactId, UserName
from tenure.domain.units import Millis
from tenure.events.fact import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Who asks for something, why, when, and the id its fact will have."""

    by: UserName
    comment: str
    now: Millis
    fact_id: FactId
    cluster: str
    origin: Origin | None = None
    """Who really asks, and from where."""
