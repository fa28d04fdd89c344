"""Clients on machines of their own as the server's loop sees them, and what they measure by messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from apiece.algebra.generators import Pipeline, Table
from apiece.engine import messages
from apiece.engine.clients import BadClient
from apiece.engine.federated import Federated
from apiece.engine.messages import Header
from apiece.engine.state import Server
from apiece.engine.traffic import down
from apiece.errors import UserError
from apiece.measure.evaluate import Panel, mean_of, spread, summary
from apiece.measure.global_average import evaluated
from apiece.measure.scoring import Values
from apiece.storage.row_format import Row, RowFormat
from apiece.vector.metric import Metric
from apiece.vector.task import targets
from apiece.wired import measuring
from apiece.wired.measuring import Said
from apiece.wired.remote import Remote
from apiece.wired.rows import WiredRows
from apiece.wired.server import Wired, WiredClients, text_of
from apiece.wired.transport import Transport

if TYPE_CHECKING:
    from apiece.config.assemble import Experiment


class RemoteRows(WiredRows):
    """Which memories counted, of clients whose folders the server cannot read."""

    def get(self, client: int) -> Row | None:
        """None: the memory is the client's own."""
        return None

    def check(self, number: int, digest: str | None = None) -> None:
        """Raise an error if the list is damaged; a client that lost its memory says so when it is asked."""
        self._counted(digest)


class RemoteClients(WiredClients):
    """The clients of a `Remote`: the same messages as to processes of this machine, by the federation's transport."""

    def _counts(self, layout: RowFormat, digest: str) -> WiredRows:
        return RemoteRows(layout, self.folder, digest)

    def _transport(self, experiment: Experiment, lift: Wired) -> Transport:
        return experiment.federation.connect(self.run, text_of(experiment, self.run))

    def touched(self) -> list[int]:
        """Nobody: no client's row can be read here."""
        return []


class RemoteEvaluation:
    """Each client's own values, and the sums over all test samples, from one message to each client."""

    def __init__(self, federated: Federated, federation: Remote, clients: RemoteClients, panel: Panel) -> None:
        self.federated, self.federation, self.clients, self.panel = federated, federation, clients, panel
        self._forms: dict[tuple[str, bool], Said] = {}

    @property
    def metrics(self) -> tuple[Metric, ...]:
        return self.federated.setup.task.metrics

    def __call__(self, server: Server, lr: float, everyone: bool) -> tuple[dict[str, Any], dict[int, Values]]:
        """(the metrics after a round, by name; the values of each client that answered), of all or the panel."""
        able = [c for c in self.federation.participants if self.federation.test_size(c)]
        asked = able if everyone else self.panel.of(able, server.round)
        said = self._evaluated(server, lr, asked)
        found = self._overall(list(said.values()))
        by_way = {c: self._values(own) for c, own in said.items()}
        for metric in self.metrics:
            found |= summary(metric, (own[""] for own in by_way.values()))
            for name in self.federated.setup.ways[1:]:
                found |= mean_of(metric, (o[name] for o in by_way.values()), f"personal_{metric.name}_{name}")
        return found, {client: own[""] for client, own in by_way.items()}

    def of(self, server: Server, lr: float, asked: list[int]) -> dict[int, Values]:
        """The values of these clients, each of which keeps the model that it predicts with."""
        return {client: self._values(own)[""] for client, own in self._evaluated(server, lr, asked).items()}

    def adapted(self, server: Server, lr: float, most: int) -> dict[str, float]:
        """The metrics after one round's local work, of at most `most` nodes."""
        able = [c for c in self.federation.participants if self.federation.test_size(c)]
        able = [c for c in able if self.clients.steps(c, server.round)]
        said = self._evaluated(server, lr, spread(able, most), "adapt")
        values, found = [self._values(own)[""] for own in said.values()], {}
        for metric in self.metrics:
            found |= mean_of(metric, values, f"adapted_{metric.name}")
        return found

    def _evaluated(self, server: Server, lr: float, asked: list[int], operation: str = "evaluate") -> dict[int, Said]:
        setup = self.federated.setup
        shared = self.federated.shared(server, lr)
        models = self._models(server, lr, asked)
        if setup.broadcast.common:
            shared = shared._replace(model=evaluated(self.federated, server))
        elif not isinstance(setup.broadcast, Pipeline | Table):
            models = {client: shared.vector for client in asked}
        asked = asked if setup.broadcast.common else list(models)
        headers = [self._asked(operation, server, lr, client) for client in asked]
        return self._answers(headers, lambda c: down(setup, shared, models.get(c, ()), -1))

    def _models(self, server: Server, lr: float, asked: list[int]) -> dict[int, Tensor]:
        """The model that each client is sent, where each has its own."""
        setup, broadcast = self.federated.setup, self.federated.setup.broadcast
        if isinstance(broadcast, Table):
            return {c: broadcast.model(server.params, server.broadcast, self.clients.at_rest(c)) for c in asked}
        if not isinstance(broadcast, Pipeline):
            return {}
        shared = self.federated.shared(server, lr)._replace(model=server.params[: broadcast.split], from_server={})
        headers = [self._asked("describe", server, lr, client) for client in asked]
        told = self._answers(headers, lambda client: down(setup, shared, (), -1))
        with torch.no_grad():
            made = lambda v: broadcast.generate(
                server.params[broadcast.split :], broadcast.normalize(server.broadcast, v)
            )
            return {client: made(own["v"]) for client, own in told.items()}

    def _asked(self, operation: str, server: Server, lr: float, client: int) -> Header:
        """The header of a message that measures."""
        counted = self.clients.counts.counted(client) if self.clients.fresh else {}
        number = self.federated.setup.lr_in(lr, self.federation.names[client])
        return Header(self.clients.run, operation, client, server.round, number=number, **counted)

    def _answers(self, asked: list[Header], sent: Callable[[int], dict[str, Tensor]]) -> dict[int, Said]:
        """What clients told; an answer that does not fit is left out, as is who did not answer."""
        found, headers = dict[int, Said](), {header.client: header for header in asked}
        message = lambda client: messages.pack(headers[client], sent(client))
        for client, answer in zip(headers, self.clients.transport.ask(list(headers), message), strict=True):
            if answer is None:
                continue
            said = self._told(headers[client], answer)
            if isinstance(said, BadClient):
                self.clients.transport.declined(client, str(said))
            else:
                found[client] = said
        return found

    def _told(self, asked: Header, answer: bytes | memoryview) -> Said | BadClient:
        """What a client told, or why that cannot be its answer to the message with this header."""
        try:
            header, said = messages.unpack(answer)
        except UserError as error:
            return self.clients.unfit(asked, str(error).partition(":")[0])
        tests = self.federation.test_size(asked.client)
        if bad := self.clients.misfit(asked, header, said, self._form(asked.operation, bool(tests))):
            return bad
        if asked.operation == "describe":
            return said
        each = int(targets(self.clients.like[1])[0])
        why = measuring.impossible(said, tests, each)
        return self.clients.unfit(asked, why) if why else said

    def _form(self, operation: str, tested: bool) -> Said:
        if (operation, tested) not in self._forms:
            form: Any = self.clients.forms["embed"] if operation == "describe" else None
            made = {"v": form.x} if form else measuring.form(self.federated.setup, operation, self.clients.like, tested)
            self._forms[operation, tested] = made
        return self._forms[operation, tested]

    def _values(self, said: Said) -> dict[str, Values]:
        """A client's values by the way it predicts, without those that its samples do not define."""
        return {
            way: {
                metric.name: float(said["values"][place, column])
                for column, metric in enumerate(self.metrics)
                if bool(said["defined"][place, column])
            }
            for place, way in zip(range(len(said["values"])), self.federated.setup.ways, strict=False)
        }

    def _overall(self, said: list[Said]) -> dict[str, float]:
        """The metrics and the loss of the one global model over all clients' test samples, where there is one."""
        setup = self.federated.setup
        own = setup.periods.personal or setup.buffer_periods.personal or not setup.broadcast.common
        count = sum(int(each["count"]) for each in said)
        if own or not count:
            return {}
        found = {}
        for metric in self.metrics:
            if metric.over == "samples":
                mean = torch.stack([each[f"sum.{metric.name}"] for each in said]).sum(0) / count
                found[f"global_{metric.name}"] = float(mean if metric.finish is None else metric.finish(mean))
        losses = np.array([float(each["loss"]) for each in said])
        return found | {"global_loss": float(losses.sum() / count)}
