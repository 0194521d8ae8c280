"""The error of a simulation whose guarantee did not hold."""


class ViolationError(BaseException):
    """A guarantee did not hold. Nothing that suppresses an `Exception` hides it."""
