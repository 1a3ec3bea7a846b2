"""The one family of errors a user can meet, and the exit code each stands for."""


class ManyhandsError(Exception):
    """A mistake or mishap that is told in one sentence: what, where and what to do."""

    exit_code = 1


class UsageError(ManyhandsError):
    """Wrong usage or settings, a destination that cannot be written among them."""

    exit_code = 2


class InputError(ManyhandsError):
    """Input data that cannot be used as it is."""

    exit_code = 3


class UnknownWordError(InputError, KeyError):
    """A word without a vector; whoever asks as one asks a dict may catch it as a dict's error."""

    def __str__(self) -> str:
        return Exception.__str__(self)  # a KeyError shows its sentence in quotation marks


class MissingPartError(ManyhandsError):
    """An extra or an engine that is not installed."""

    exit_code = 4


class ResumableError(ManyhandsError):
    """Work that was interrupted, and can be taken up again."""

    exit_code = 5


class SpentError(ResumableError):
    """Training that stopped at its budget."""


class UnderTrainedError(ManyhandsError):
    """Training that ended short of what was asked."""

    exit_code = 6


def missing_extra(what: str, extra: str) -> MissingPartError:
    """The error for a library that an extra brings.

    >>> print(missing_extra("s3fs", "s3"))
    s3fs is not installed; get it with: pip install 'manyhands[s3]'
    """
    return MissingPartError(f"{what} is not installed; get it with: pip install 'manyhands[{extra}]'")
