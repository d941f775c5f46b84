"""PyTorch's Transformer and LSTM, to compare the speed of updates (extra `bench`)."""

import os
from collections.abc import Callable, Sequence

import torch
from torch import nn

from transformer.config import Config
from transformer.tokens import PAD, Batch


class Seq2Seq(nn.Module):
    """Two nn.LSTM as encoder and decoder, with global attention ("general") and one embedding.

    It has the matrix products and dropout of `model.kind=recurrent` without input feeding. Each row is one
    sentence without padding and needs no mask. Arrays are time-major, which is fastest for nn.LSTM.
    """

    def __init__(self, config: Config):
        super().__init__()
        m = config.model
        self.scale, self.dropout_embedding = m.d_model**0.5, nn.Dropout(m.P_drop_embedding)
        self.embedding = nn.Embedding(m.vocab_size, m.d_model)
        nn.init.normal_(self.embedding.weight, std=m.d_model**-0.5)
        self.encoder = nn.LSTM(m.d_model, m.d_model, m.N, dropout=m.P_drop)
        self.decoder = nn.LSTM(m.d_model, m.d_model, m.N_decoder, dropout=m.P_drop)
        self.keys = nn.Linear(m.d_model, m.d_model, bias=False)
        self.combine = nn.Linear(2 * m.d_model, m.d_model, bias=False)
        self.dropout = nn.Dropout(m.P_drop)

    def forward(self, source: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
        """Computes the logits [T B V] of target tokens from the source [S B] and the tokens before [T B]."""
        embed = lambda tokens: self.dropout_embedding(self.embedding(tokens) * self.scale)
        memory, state = self.encoder(embed(source))
        # nn.LSTM has no dropout after its last layer.
        memory = self.dropout(memory).transpose(0, 1)
        output, _ = self.decoder(embed(before), state)
        output = self.dropout(output).transpose(0, 1)
        attention = torch.softmax(output @ self.keys(memory).transpose(1, 2), dim=-1)
        both = torch.cat([attention @ memory, output], dim=-1)
        attentional = self.dropout(torch.tanh(self.combine(both)))
        return attentional @ self.embedding.weight.T


class Transformer(nn.Module):
    """nn.Transformer with one embedding: the paper's model, with our matrix products and dropout.

    Each row has one sentence. The source's padding is masked; the target's padding comes last and needs no
    mask. nn.Transformer always adds a LayerNorm at the end of each stack.
    """

    def __init__(self, config: Config):
        super().__init__()
        m, length = config.model, config.data.row_len
        self.scale, self.dropout = m.d_model**0.5, nn.Dropout(m.P_drop_embedding)
        self.embedding = nn.Embedding(m.vocab_size, m.d_model)
        nn.init.normal_(self.embedding.weight, std=m.d_model**-0.5)
        self.layers = nn.Transformer(m.d_model, m.h, m.N, m.N_decoder, m.d_ff, m.P_drop, batch_first=True)
        # nn.Transformer has one dropout rate for everything.
        for module in self.layers.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = m.P_drop_attention
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = m.P_drop_relu
        # The values of positions do not affect the speed.
        self.register_buffer('positions', torch.zeros(length, m.d_model))
        self.register_buffer('future', nn.Transformer.generate_square_subsequent_mask(length))

    def forward(
        self, source: torch.Tensor, before: torch.Tensor, unread: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Computes logits [B T V] from source [B S], padding where `unread`, and the tokens before [B T]."""
        embed = lambda tokens: self.dropout(
            self.embedding(tokens) * self.scale + self.positions[: tokens.shape[1]]
        )
        length = before.shape[1]
        x = self.layers(
            embed(source),
            embed(before),
            tgt_mask=self.future[:length, :length],
            src_key_padding_mask=unread,
            memory_key_padding_mask=unread,
            tgt_is_causal=True,
        )
        return x @ self.embedding.weight.T


def make_passes(
    config: Config, batches: Sequence[Batch], dtype: str, device: str = 'cpu'
) -> Callable[[int], int | None]:
    """Returns passes through batches, each an update of `Seq2Seq` or `Transformer`.

    On CPUs they use all processors. On a GPU (`device='cuda'`) the loss is compiled, and a pass returns the
    most bytes that have been allocated so far.
    """
    torch.set_num_threads(os.cpu_count())
    torch.manual_seed(config.train.seed)
    recurrent, train = config.model.kind == 'recurrent', config.train
    model = (Seq2Seq if recurrent else Transformer)(config).train().to(device)
    adam = torch.optim.Adam(model.parameters(), 1e-4, (train.beta1, train.beta2), train.adam_eps, fused=True)
    placed = [[array.to(device) for array in place(batch, recurrent)] for batch in batches]
    loss_of = torch.compile(loss) if device == 'cuda' else loss

    def run(passes: int) -> int | None:
        for batch in placed * passes:
            adam.zero_grad(set_to_none=True)
            loss_of(model, batch, dtype, train.eps_ls).backward()
            adam.step()
        if device == 'cuda':
            torch.cuda.synchronize()
            return torch.cuda.max_memory_allocated()

    return run


def place(batch: Batch, time_major: bool) -> tuple[torch.Tensor, ...]:
    """Returns a model's arguments and the target, as tensors."""
    tokens = (batch[side].tokens for side in ('source', 'target'))
    source, target = (torch.tensor(side.T if time_major else side, dtype=torch.long) for side in tokens)
    unread = torch.tensor(batch['source'].segments == 0)
    # The last token takes the place of the start token, at the same cost.
    before = target.roll(1, 0 if time_major else 1)
    return source, before, *([unread] if unread.any() else []), target


def loss(model: nn.Module, batch: Sequence[torch.Tensor], dtype: str, eps_ls: float) -> torch.Tensor:
    """Computes the mean cross-entropy of the target tokens of a batch from `place`."""
    *arguments, target = batch
    with torch.autocast(target.device.type, torch.bfloat16, enabled=dtype == 'bfloat16'):
        logits = model(*arguments).flatten(0, 1)
        return nn.functional.cross_entropy(logits, target.flatten(), ignore_index=PAD, label_smoothing=eps_ls)
