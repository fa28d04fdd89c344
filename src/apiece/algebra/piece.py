"""What an algorithm is made of: pieces, which fill slots of the round; FedAvg is what happens where no piece fills any.
Leaves of memories and reports that are vectors over parameters, of shape [D], follow the synchronization of these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from apiece.algebra.broadcast import FederationFacts
from apiece.algebra.draws import Draw
from apiece.algebra.message import Message
from apiece.algebra.optim import Optimizer
from apiece.algebra.returned import hold
from apiece.algebra.view import Loss, Predict, Rule, View
from apiece.vector.space import Space


@dataclass(frozen=True)
class Piece:
    """A change to federated averaging, by the slots that it fills: they stand below in the order of a run.

    >>> from dataclasses import dataclass
    >>> from apiece import algorithm, federate
    >>> @dataclass(frozen=True)
    ... class Near(Piece):
    ...     '''g <- g + mu (theta - start).'''
    ...     mu: float = 0.1
    ...     def correct(self, view: View):
    ...         return (), lambda scratch, g, theta, batch: (scratch, g + self.mu * (theta - view.start))
    >>> near = algorithm(Near(), name="near")
    >>> len(federate("softmax_regression", "digits", near, clients=5, rounds=2, steps=5).metrics)
    2
    """

    reads: ClassVar[frozenset[str]] = frozenset()  # parts of the View that rows keep: "model", "gradient", "fresh"
    excludes: ClassVar[dict[str, str]] = {}  # pieces, or slots of others, that it cannot be composed with -> the reason
    runs_last: ClassVar[bool] = False  # it comes behind all others on a client, and learns before them on the server
    without: ClassVar[str] = ""  # the name under which predictions without this piece are measured as well
    serves: ClassVar[str] = "all"  # whose model `personal` may change: of "members" of the training, "newcomers" or all
    asks_all: ClassVar[bool] = False  # the first round of a run asks every client
    keeps_optimizer: ClassVar[bool] = False  # clients keep their optimizer's state, whatever the run's setting

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        hold(cls, Piece)  # slots that take or return something else are refused by name

    @property
    def stream(self) -> str:
        """The name of this piece's random draws and memories: that of its class."""
        return type(self).__name__

    @property
    def smallest_batch(self) -> float:
        """The fewest samples of a step's batch with which the piece takes no gradient at a single one; inf for none."""
        return 2

    def fills(self, *slots: str) -> bool:
        """Whether the piece fills one of these slots."""
        return any(getattr(type(self), slot) is not getattr(Piece, slot) for slot in slots)

    @classmethod
    def neutral(cls) -> tuple[Piece, str] | str:
        """(the value that changes nothing, the algorithm that it equals bitwise), or why there is none."""
        raise NotImplementedError(
            f"{cls.__name__} must declare its neutral value, or why there is none: give it a class method `neutral` "
            "that returns (the piece with the value that changes nothing, the name of the algorithm that is left, such "
            "as 'fedavg'), or the reason as a text"
        )

    def complete(self, space: Space, setting: FederationFacts | None, optimizer: Optimizer) -> Piece:
        """This piece for a model's vector space, a federation and the clients' optimizer."""
        return self

    def doubt(self, share: float, server: Optimizer) -> str:
        """Why training may fail where a round asks this share of the clients, in a sentence; "" if nothing is known."""
        return ""

    def prepare(self, module: nn.Module) -> nn.Module:
        """The module that is trained, such as one with a wider head; torch draws from the run's seed here."""
        return module

    def server_memory(self, theta: Tensor) -> Any:
        """The piece's memory on the server, at the initial model."""
        return ()

    def client_memory(self, theta: Tensor) -> Any:
        """The piece's memory on a client, at the initial model."""
        return ()

    def tell(self, memory: Any) -> Any:
        """What the server's memory says to clients."""
        return ()

    def draws(self, space: Space) -> tuple[Draw, ...]:
        """What is drawn at random for the client."""
        return ()

    def start(self, view: View, theta: Tensor) -> Tensor:
        """Where training starts."""
        return theta

    def objective(self, view: View, loss: Loss) -> Loss:
        """What every local step minimizes."""
        return loss

    def correct(self, view: View) -> tuple[Any, Rule] | None:
        """What every local step adds to its gradient before the optimizer moves theta: (first scratch, rule)."""
        return None

    def keep(self, view: View, theta: Tensor) -> Tensor:
        """The model that the client keeps."""
        return theta

    def report(self, view: View) -> Any:
        """What is sent beside the model: a tree of leaves marked Uniform, Weighted, Sum or PerClient."""
        return ()

    def upload(self, view: View, message: Message) -> Message:
        """All that leaves the client."""
        return message

    def remember(self, view: View) -> Any:
        """What the client's memory becomes; `view.message` is what left."""
        return view.client

    def log(self, memory: Any, g: Tensor, report: Any, share: float) -> dict[str, Any]:
        """Numbers of this round for its line in metrics.jsonl, from what `learn` is given."""
        return {}

    def learn(self, memory: Any, g: Tensor, report: Any, share: float) -> tuple[Tensor, Any]:
        """What the server makes of the means: g is that of sent - kept, `share` is answered / registered clients."""
        return g, memory

    def settle(self, memory: Any, before: Tensor, after: Tensor) -> Any:
        """What the server's memory becomes once its optimizer has gone from `before` to `after`."""
        return memory

    def evaluate(self, memory: Any, theta: Tensor) -> Tensor:
        """The global model that is measured and saved, made from the server's vector."""
        return theta

    def personal(self, view: View, theta: Tensor) -> Tensor:
        """The model that the client predicts with, made from its training data."""
        return theta

    def predict(self, view: View) -> Predict | None:
        """How the client predicts, x -> scores, where that is more than its model `view.end`."""
        return None

    def observe(self, view: View) -> dict[str, Any]:
        """Pictures and figures of this client, never read back."""
        return {}
