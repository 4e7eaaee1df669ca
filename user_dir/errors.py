"""The one exception for a mistake of the user."""


class UserError(ValueError, SystemExit):
    """A mistake in what the user gave, told in one sentence that names the value and the remedy.

    A ``ValueError`` for callers of the library, and a ``SystemExit`` so that, left uncaught, it ends
    any command line (fairseq's own included) with that sentence and status 1 instead of a traceback.
    """

    def __init__(self, message: str):
        super().__init__(message)
        self.code = f"error: {message}"
