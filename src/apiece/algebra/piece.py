"""What an algorithm is made of: the View that a piece may read, and the slots that it may fill.

One round, with every slot where it acts (server left, client right; FedAvg is what happens where no piece says
anything):

    tell(memory), broadcast ---> sent          the model that the client receives
                                 start         where training starts
                                 objective     what is minimized        } every
                                 correct       what is added to g       } local
                                 (optimizer)   theta <- theta - lr g    } step
                                 keep          the model that the client keeps
                                 report        what is said beside the model
                                 upload        what leaves the client, all of it
                                 remember      what the client's memory becomes
    mean of the answers <------- message
    learn(memory, g, report)     what the server makes of the means, then its optimizer steps
    settle(memory, before, after)    what it remembers of that step

and, at any time, `personal`: the model that a client predicts with, and `predict`: how, where that is more than its
model; `evaluate`: the global model, where that is not the server's vector. Pieces never know each other. A vector over
parameters is a leaf of shape [D]: such leaves of memories, reports and of what is told follow the synchronization of
their group; every other leaf passes unmasked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from apiece.algebra.draws import Draw
from apiece.algebra.message import Message
from apiece.algebra.view import Loss, Rule, View


@dataclass(frozen=True)
class Piece:
    """A change to federated averaging. Every slot changes nothing unless a piece says so.

    `reads` names what of the View must be kept for this piece between rounds ("model", "gradient", "fresh"). `neutral`
    is the value of this piece that equals another algorithm bitwise, as (piece, what it equals), or a sentence that
    says why there is none. `excludes` maps the names of pieces that this one cannot be composed with to the reason. A
    piece that `runs_last` comes behind the others wherever it stands in a sum, and learns before them: it scales the
    message and its mean that all have made, or trains on from their model. `without`, if any, is the name under which
    what clients predict without this piece is measured as well. Where a piece is for `newcomers`, its `personal` leaves
    the model of a client that took part as it is; where it is for `members`, that of one that never did. Where a piece
    `asks_all`, the first round of a run asks every client.
    """

    reads: ClassVar[frozenset[str]] = frozenset()
    excludes: ClassVar[dict[str, str]] = {}
    runs_last: ClassVar[bool] = False
    without: ClassVar[str] = ""
    newcomers: ClassVar[bool] = False
    members: ClassVar[bool] = False
    asks_all: ClassVar[bool] = False

    @property
    def stream(self) -> str:
        """The name that this piece's draws and memories go by: that of its class."""
        return type(self).__name__

    def fills(self, *slots: str) -> bool:
        """Whether it says something in one of these slots, by name."""
        return any(getattr(type(self), slot) is not getattr(Piece, slot) for slot in slots)

    def remakes(self, newcomer: bool) -> bool:
        """Whether `personal` may make another model of a client's, of a newcomer or of one that took part."""
        return self.fills("personal") and not (self.members if newcomer else self.newcomers)

    def clash(self, other: Piece) -> str:
        """Why this piece cannot be composed with that one, if it cannot."""
        return self.excludes.get(type(other).__name__, "")

    @classmethod
    def neutral(cls) -> tuple[Piece, str] | str:
        """Which value of this piece changes nothing, or why there is none."""
        raise NotImplementedError(f"{cls.__name__} must declare its neutral value, or why there is none")

    def server_memory(self, theta: Tensor) -> Any:
        return ()

    def client_memory(self, theta: Tensor) -> Any:
        return ()

    def draws(self, space: Any) -> tuple[Draw, ...]:
        return ()

    def complete(self, space: Any, setting: Any, optimizer: Any) -> Piece:
        """This piece for a model's vector space, a federation and the clients' optimizer: a recipe is made whole here,
        once.
        """
        return self

    def prepare(self, module: Any) -> Any:
        """The module that is trained (a wider head, say); what torch draws here is drawn from the run's seed."""
        return module

    def tell(self, memory: Any) -> Any:
        """What clients are told of the server's memory."""
        return ()

    def start(self, view: View, theta: Tensor) -> Tensor:
        """Where training starts."""
        return theta

    def objective(self, view: View, loss: Loss) -> Loss:
        """What is minimized."""
        return loss

    def correct(self, view: View) -> tuple[Any, Rule] | None:
        """What is added to a gradient, step by step: the first scratch and the rule."""
        return None

    def keep(self, view: View, theta: Tensor) -> Tensor:
        """The model that the client keeps."""
        return theta

    def report(self, view: View) -> Any:
        """What is said beside the model: a tree of Uniform, Weighted, Sum or Rows."""
        return ()

    def upload(self, view: View, message: Message) -> Message:
        """What leaves the client."""
        return message

    def remember(self, view: View) -> Any:
        """What the client's memory becomes; `view.message` is what left."""
        return view.client

    def learn(self, memory: Any, g: Tensor, report: Any, share: float) -> tuple[Tensor, Any]:
        """What the server makes of the means: g is the mean of sent - kept, `share` is answered / registered."""
        return g, memory

    def log(self, memory: Any, g: Tensor, report: Any, share: float) -> dict[str, Any]:
        """Numbers of this round for its line in metrics.jsonl, by name, from what `learn` is given: never read back."""
        return {}

    def settle(self, memory: Any, before: Tensor, after: Tensor) -> Any:
        """What the server's memory becomes once its vector has gone from `before` to `after`."""
        return memory

    def evaluate(self, memory: Any, theta: Tensor) -> Tensor:
        """The global model that is measured and saved, made from the server's vector; training goes on from that."""
        return theta

    def personal(self, view: View, theta: Tensor) -> Tensor:
        """The model that the client predicts with, made from its training data: pieces go on from one another's."""
        return theta

    def predict(self, view: View) -> Callable[[Any], Tensor] | None:
        """What the client predicts with, x -> scores, made from its training data; `None` is the model `view.end`."""
        return None

    def observe(self, view: View) -> dict[str, Any]:
        """Pictures and figures of this client, never read back."""
        return {}
