"""A refusal: bad input said in one line that names the field, what is wrong and what to do."""


class Refusal(ValueError):
    """Input from outside that is not accepted. Nothing has been written when it is raised.

    `field` is the name the user gave the value under, `problem` what is wrong with it, `fix` what would be accepted.
    """

    def __init__(self, *, field: str, problem: str, fix: str) -> None:
        super().__init__(f"{field}: {problem}; {fix}")
        self.field = field
        self.problem = problem
        self.fix = fix
