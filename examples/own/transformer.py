"""A transformer of one's own with its own tokenizer: words become numbers, and a mask says which of them are real."""

import torch
from torch import nn

from apiece import federate

HAPPY, SAD = "good fine bright warm kind".split(), "bad dull cold harsh grim".split()
texts = [" ".join(words[(i + j) % 5] for j in range(2 + i % 6)) for i in range(300) for words in (HAPPY, SAD)]
vocabulary = {word: i for i, word in enumerate(["<pad>", *HAPPY, *SAD])}


def collate(samples):
    rows = [torch.tensor([vocabulary[word] for word in text.split()]) for text, _ in samples]
    ids = nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return {"ids": ids, "mask": ids > 0}, torch.tensor([label for _, label in samples])


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(len(vocabulary), 32), nn.Linear(32, 2)
        self.encoder = nn.TransformerEncoderLayer(32, nhead=4, dim_feedforward=64, dropout=0.1, batch_first=True)

    def forward(self, ids, mask):
        z = self.encoder(self.embed(ids), src_key_padding_mask=~mask) * mask[..., None]
        return self.out(z.sum(1) / mask.sum(1, keepdim=True))


print(federate(Transformer(), list(zip(texts, [0, 1] * 300)), "scaffold", collate=collate, clients=6, rounds=10))
