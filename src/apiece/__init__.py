"""apiece: federated learning for clients whose data differ.

Every public name is listed once, in `__init__.pyi`, and is loaded when it is first used, so that importing the package
is cheap.
"""

import lazy_loader  # pyright: ignore[reportMissingTypeStubs]

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)  # pyright: ignore
__version__ = "0.1.0"
