"""What each method of each service needs: the rights table by method. A method that is not here cannot be served."""

from dataclasses import dataclass

from tenure.domain.rights import Right


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a method needs. `right` None: nobody has to be identified.

    `about`: what the right is over. Where it is over a budget or a job, only the servicer knows which, and asks.
    """

    right: Right | None
    about: str = ""

    @property
    def is_order(self) -> bool:
        """A call of it is written down, and is no submission, which has limits of its own."""
        return self.right in (Right.CANCEL, Right.SET_SHARE, Right.SET_POLICY, Right.TEND_HOSTS)


_LOOK = Needs(right=Right.LOOK)
_HOSTS = Needs(right=Right.TEND_HOSTS)
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"

METHODS: dict[str, Needs] = {
    "/tenure.v1.Jobs/Submit": Needs(right=Right.SUBMIT, about="the budget"),
    "/tenure.v1.Jobs/SubmitBatch": Needs(right=Right.SUBMIT, about="each budget"),
    "/tenure.v1.Jobs/Get": _LOOK,
    "/tenure.v1.Jobs/List": _LOOK,
    "/tenure.v1.Jobs/Watch": _LOOK,
    "/tenure.v1.Jobs/Cancel": Needs(right=Right.CANCEL, about="the job"),
    "/tenure.v1.Jobs/Explain": _LOOK,
    "/tenure.v1.Jobs/Logs": Needs(right=Right.READ_OUTPUT, about="the job"),
    "/tenure.v1.Budgets/GetTree": _LOOK,
    "/tenure.v1.Budgets/SetShares": Needs(right=Right.SET_SHARE, about="each budget that changes"),
    "/tenure.v1.Budgets/History": _LOOK,
    "/tenure.v1.Budgets/Report": _LOOK,
    "/tenure.v1.Hosts/List": _LOOK,
    "/tenure.v1.Hosts/Drain": _HOSTS,
    "/tenure.v1.Hosts/Resume": _HOSTS,
    "/tenure.v1.Hosts/CompleteRepair": _HOSTS,
    "/tenure.v1.Hosts/Report": _LOOK,
    "/tenure.v1.Hosts/Fragmentation": _LOOK,
    "/tenure.v1.Policy/GetPolicy": _LOOK,
    "/tenure.v1.Policy/SetPolicy": Needs(right=Right.SET_POLICY),
    "/tenure.v1.Policy/PolicyHistory": _LOOK,
    "/tenure.v1.Identity/WhoAmI": Needs(right=Right.KNOW_ONESELF),
    "/grpc.health.v1.Health/Check": Needs(right=None),
    "/grpc.health.v1.Health/List": Needs(right=None),
    "/grpc.health.v1.Health/Watch": Needs(right=None),
    REFLECTION: _LOOK,
}
