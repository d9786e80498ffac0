"""The client of the package ``wyoming``, which imports a module that Python 3.11 warns of."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import wyoming.audio  # noqa: F401
